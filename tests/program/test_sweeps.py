"""Sweeps: members equal separate runs."""

import dataclasses
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import QUICK

import ppax
from ppax.critics import PopArt
from ppax.networks import mlp

sweeps = importlib.import_module("ppax.program.sweeps")
pytestmark = pytest.mark.usefixtures("vmapped_keys")


def make(members, num_envs=4):
    env = ppax.make("CartPole-v1", num_envs)
    agent = ppax.PPO(mlp(env, hidden=(16,)), learning_rate=1e-3, critic=PopArt())
    keys = jax.random.split(jax.random.key(0), members)
    return agent, env, ppax.start_sweep(agent, env, 8, keys)


@pytest.mark.parametrize(
    "members", [3, *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 4))]
)  # 3 is not divisible by two devices
def test_members_equal_their_separate_runs(members):
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


@pytest.fixture(scope="module")
def players():
    """Two independent players and an environment that is never stepped."""
    env = ppax.make("Pursuit-2", 4)
    return ppax.Independent(ppax.PPO(mlp(env, hidden=(4,))), 2), env


def rates(agent, learning_rate):
    return dataclasses.replace(agent, agent=dataclasses.replace(agent.agent, learning_rate=learning_rate))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (0.5, [0.5, 0.5, 0.5]),
        ([1.0, 2.0], [[1.0, 2.0]] * 3),  # one for each player, the same in all members
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]),  # one for each member
        (np.arange(6.0).reshape(3, 2), np.arange(6.0).reshape(3, 2)),
    ],
)
def test_values_per_player_and_values_per_member(players, given, expected):
    agent, env = players
    swept, _ = sweeps._members(rates(agent, np.array(given, np.float32)), env, 3)
    np.testing.assert_array_equal(swept.agent.learning_rate, expected)
    grouped = ppax.Groups({"both": rates(agent, np.array(given, np.float32))}, (("both", 2),))
    swept, _ = sweeps._members(grouped, env, 3)
    np.testing.assert_array_equal(swept.agents["both"].agent.learning_rate, expected)


def test_ambiguous_values_per_player_or_member_are_refused(players):
    agent, env = players
    text = r"agent\.agent\.learning_rate has 2 values, for 2 states and for 2 players: must have shape \(2, 2\)"
    with pytest.raises(ppax.ConfigError, match=text):
        sweeps._members(rates(agent, np.ones(2, np.float32)), env, 2)
    swept, _ = sweeps._members(rates(agent, np.ones((2, 2), np.float32)), env, 2)
    assert swept.agent.learning_rate.shape == (2, 2)


def test_a_wrong_number_of_values_is_refused_by_name():
    agent, env, states = make(4)
    with pytest.raises(ppax.ConfigError, match=r"agent\.learning_rate has 3 values for 4 states: must be one, or 4"):
        ppax.sweep(dataclasses.replace(agent, learning_rate=jnp.ones(3)), env, states, 1)
