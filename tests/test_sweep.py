"""A sweep's members train as they would alone."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.critics import PopArt
from ppax.networks import mlp
from worlds import QUICK

pytestmark = pytest.mark.usefixtures("vmapped_keys")


def make(members, num_envs=4):
    env = ppax.make("CartPole-v1", num_envs)
    agent = ppax.PPO(mlp(env, hidden=(16,)), learning_rate=1e-3, critic=PopArt())
    keys = jax.random.split(jax.random.key(0), members)
    return agent, env, ppax.start_sweep(agent, env, 8, keys)


@pytest.mark.parametrize(
    "members", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 4))]
)  # 3 do not divide over two devices
def test_members_equal_their_solo_runs(members):
    agent, env, states = make(members)
    rates = jnp.linspace(1e-4, 1e-2, members)
    shares = jnp.linspace(0.1, 0.9, members)
    swept = dataclasses.replace(agent, learning_rate=rates, critic=PopArt(shares))
    together = jax.jit(ppax.sweep, compiler_options=QUICK)(swept, env, states, 5)
    alone = jax.jit(ppax.train, compiler_options=QUICK)
    for i in range(members):
        member = dataclasses.replace(agent, learning_rate=rates[i], critic=PopArt(shares[i]))
        solo = alone(member, env, jax.tree.map(lambda x, i=i: x[i], states), 5)
        for a, b in zip(jax.tree.leaves(solo.state.learner), jax.tree.leaves(together.state.learner), strict=True):
            np.testing.assert_allclose(a, b[i], atol=1e-5)
        np.testing.assert_allclose(solo.metrics["loss"], together.metrics["loss"][i], rtol=1e-4)
    np.testing.assert_array_equal(together.state.iteration, np.full(members, 5))
    np.testing.assert_allclose(together.state.learner.critic.weight, 1.0 - (1.0 - shares) ** 5, rtol=1e-5)


def test_a_wrong_number_of_values_is_named():
    agent, env, states = make(4)
    with pytest.raises(ppax.ConfigError, match=r"agent\.learning_rate has 3 values for 4 states: must be one, or 4"):
        ppax.sweep(dataclasses.replace(agent, learning_rate=jnp.ones(3)), env, states, 1)
