"""JAX's switches for debugging: `jax_debug_nans`, `jax_debug_infs` and `jax.disable_jit` with runs of all kinds."""

import math
import traceback

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.core.types import ConfigError, part
from support.worlds import Counter

QUIET = ppax.Log(console=False)


def agent_for(env, **options):
    network = ppax.networks.network(env, hidden=(4,), **options)
    return ppax.PPO(network, minibatch=ppax.minibatches.Shuffle(1), num_epochs=1)


def pendulums():
    return ppax.envs.host(lambda: gymnasium.make("Pendulum-v1"), 2)


def counters():
    return ppax.envs.VectorEnv(Counter(length=5), 2)


def test_the_implementation_of_random_keys_may_be_a_context():
    """The run's first state is made in another thread, which does not have the context."""
    env = counters()
    with jax.default_prng_impl("rbg"):
        run = ppax.fit(agent_for(env), env, total_steps=16, num_steps=4, log=QUIET)
    assert str(jax.random.key_impl(run.state.key)) == "rbg"
    assert int(run.state.iteration) == 2


@pytest.mark.parametrize("switch", [jax.debug_nans, jax.debug_infs])
@pytest.mark.parametrize("make", [counters, pendulums])
def test_iterations_without_a_finished_episode_are_no_fault(switch, make):
    with make() as env, switch(True):
        run = ppax.fit(agent_for(env), env, total_steps=16, num_steps=4, log=ppax.Log(console=False, every=1))
    first = run.history[0]
    assert math.isnan(first["episode_return"])
    assert math.isnan(first["episode_return_max"])
    assert math.isnan(first["episode_return_std"])
    assert math.isfinite(first["grad_norm"])


def test_train_in_the_users_own_jit_is_no_fault():
    env = counters()
    agent = agent_for(env)
    state = jax.jit(lambda: ppax.start(agent, env, 4, jax.random.key(0)))()
    with jax.debug_nans(True), jax.debug_infs(True):
        trained = jax.jit(lambda state: ppax.train(agent, env, state, 1))(state)
        assert math.isnan(trained.metrics["episode_return"])
        assert trained.metrics["episodes"] == 0.0


@part
class Faulty(Counter):
    """Counter whose fourth reward is the logarithm of a negative number."""

    def step(self, state, action, key):
        out = super().step(state, action, key)
        return out._replace(reward=out.reward + broken_reward(state.time))


def broken_reward(time):
    return jnp.log(jnp.where(time == 3, -1.0, 1.0))


def test_a_nan_is_found_at_its_operation():
    env = ppax.envs.VectorEnv(Faulty(length=5), 2)
    agent = agent_for(env)
    with pytest.raises(ppax.NumericalError, match="its reward is nan"):
        ppax.fit(agent, env, total_steps=16, num_steps=8, log=QUIET)
    with jax.debug_nans(True), pytest.raises(FloatingPointError) as error:
        ppax.fit(agent, env, total_steps=16, num_steps=8, log=QUIET)
    assert "broken_reward" in [frame.name for frame in traceback.extract_tb(error.value.__traceback__)]


@part
class Watched(Counter):
    """Counter that notes the kind of its states: of a tracer of `vmap` alone, Python can print the values."""

    def step(self, state, action, key):
        SEEN.append(type(state.time).__name__)
        return super().step(state, action, key)


SEEN = []


@pytest.mark.nightly  # each operation is compiled on its own
def test_fit_without_jit_gives_the_same_run():
    env = ppax.envs.VectorEnv(Watched(length=3), 2)
    agent = agent_for(env)
    compiled = ppax.fit(agent, env, total_steps=8, num_steps=4, log=QUIET)
    SEEN.clear()
    with jax.disable_jit():
        interpreted = ppax.fit(agent, env, total_steps=8, num_steps=4, log=QUIET)
    assert "BatchTracer" in SEEN
    assert compiled.history[-1]["episode_return"] == interpreted.history[-1]["episode_return"]
    leaves = zip(*(jax.tree.leaves(run.state.learner.params) for run in (compiled, interpreted)), strict=True)
    for one, other in leaves:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("memory", [None, ppax.networks.memories.GRU(4)])
def test_fit_on_the_host_without_jit(memory):
    options = {} if memory is None else {"memory": memory}
    # the loop and the update split one key alike, in two programs that are one without jit
    with pendulums() as env, jax.disable_jit(), jax.debug_key_reuse(False):
        run = ppax.fit(agent_for(env, **options), env, total_steps=16, num_steps=4, log=QUIET)
        assert run.policy().act(np.zeros(3, np.float32)).shape == (1,)
    assert math.isfinite(run.history[-1]["grad_norm"])


def test_sweeps_need_jit():
    from ppax.training.sweeps import MembersTraining

    env = counters()
    agent = agent_for(env)
    with jax.disable_jit(), pytest.raises(ConfigError, match=r"call ppax\.fit for one of its settings"):
        MembersTraining([agent], [env], None)
