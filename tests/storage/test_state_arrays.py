"""States as named arrays: each leaf has a name of its own, and returns to its place."""

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import ppax
from ppax.core.types import EnvReset, part
from ppax.networks import mlp
from ppax.storage.state_arrays import from_arrays, named_leaves, to_arrays
from support.worlds import Counter


def test_a_dot_in_a_name_is_no_step_of_a_path():
    tree = {"arm": {"pos": 1.0}, "arm.pos": 2.0, "arm\\.pos": 3.0}
    named = named_leaves(tree)
    assert sorted(named.values()) == [1.0, 2.0, 3.0]
    arrays, keys = to_arrays(jax.tree.map(jnp.float32, tree))
    back = from_arrays(jax.tree.map(jnp.float32, tree), arrays, keys)
    assert jax.tree.map(float, back) == tree


@part
class Dotted(Counter):
    """Observations that would have the same dotted path."""

    @property
    def observation_space(self):
        entry = spaces.Box(-9.0, 9.0, (1,), np.float32)
        return spaces.Dict({"arm": spaces.Dict({"pos": entry}), "arm.pos": entry})

    def _named(self, obs):
        return {"arm": {"pos": obs[:1]}, "arm.pos": obs[1:2]}

    def reset(self, key):
        state, obs, *rest = super().reset(key)
        return EnvReset(state, self._named(obs), *rest)

    def step(self, state, action, key):
        out = super().step(state, action, key)
        return out._replace(obs=self._named(out.obs))


def test_a_run_whose_observations_have_dots_in_their_names_resumes(tmp_path):
    env = ppax.envs.VectorEnv(Dotted(), 4)
    agent = ppax.PPO(mlp(env, hidden=(4,)), normalize_obs=True, num_epochs=1)
    run = ppax.fit(agent, env, 32, num_steps=8, run_dir=tmp_path / "run", log=ppax.Log(console=False))
    again = ppax.resume(tmp_path / "run", agent=agent, env=env)
    for one, other in zip(jax.tree.leaves(run.state.learner), jax.tree.leaves(again.state.learner), strict=True):
        np.testing.assert_array_equal(one, other)
