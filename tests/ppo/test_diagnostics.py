"""Metrics of a rollout that the doctor reads: ends of episodes, scale of observations."""

import jax
import jax.numpy as jnp
import numpy as np

import ppax
from ppax.arrays.metrics import reductions_of
from ppax.core.types import Transition
from ppax.envs import TimeLimit, VectorEnv
from ppax.ppo.diagnostics import ends_of_episodes, largest_observation
from support.worlds import Counter


def test_ends_of_episodes_and_the_largest_observation_by_hand():
    flags = {"terminated": jnp.array([[True, False, True]]), "truncated": jnp.array([[True, True, False]])}
    rest = dict.fromkeys(("obs", "action", "log_prob", "value", "reward", "first", "valid"), jnp.zeros((1, 3)))
    ends = ends_of_episodes(Transition(carry=(), **rest, **flags))
    assert {name: float(x) for name, x in ends.items()} == {"terminations": 2.0, "truncations": 1.0}
    assert dict(reductions_of(ends)) == {"terminations": "sum", "truncations": "sum"}
    obs = {"x": jnp.array([[[1.0, -7.0]]]), "picture": jnp.full((1, 1, 2), 255, jnp.uint8), "y": jnp.array([[3.0]])}
    largest = largest_observation(obs)
    assert float(largest["obs_max"]) == 7.0
    assert dict(reductions_of(largest)) == {"obs_max": "max"}
    assert dict(largest_observation({"picture": obs["picture"]})) == {}


def logged(env, iterations=3):
    vector = VectorEnv(env, 2)
    agent = ppax.PPO(ppax.networks.network(vector, hidden=(4,)))
    state = ppax.start(agent, vector, 8, jax.random.key(0))
    return ppax.train(agent, vector, state, iterations).metrics


def test_rows_count_ends_and_leave_out_autoreset_steps():
    """24 steps of 2 environments, episodes of 3 steps and a step that resets: 6 episodes in each."""
    ended, cut = logged(Counter(terminates=True)), logged(TimeLimit(Counter(length=99), 3))
    assert [float(ended[name]) for name in ("episodes", "terminations", "truncations")] == [12.0, 12.0, 0.0]
    assert [float(cut[name]) for name in ("episodes", "terminations", "truncations")] == [12.0, 0.0, 12.0]
    # the counter is observed at 0, 1, 2; 3 is the final observation, seen in the step that resets alone
    np.testing.assert_array_equal(ended["obs_max"], 2.0)
