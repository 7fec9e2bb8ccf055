"""Schedules: the list of values that N updates really use, leaves at any depth, clear refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from ppax import PPO, ConfigError
from ppax.networks import mlp
from ppax.schedules import Constant, Cosine, Linear


class Spaces:
    observation_space = spaces.Box(-1.0, 1.0, (2,))
    action_space = spaces.Discrete(2)


AGENT = PPO(mlp(Spaces), learning_rate=3e-4)


def used(schedule, updates, read=lambda agent: agent.learning_rate):
    """What each update u of N sees: progress u / N, as `train` counts it."""
    value = jax.jit(jax.vmap(lambda u: jnp.asarray(read(schedule(AGENT, u / updates)), jnp.float32)))
    return np.asarray(value(jnp.arange(updates)), np.float64)


def test_linear_begins_full_and_ends_one_step_above_nothing():
    # N = 4: 1, 3/4, 1/2, 1/4 of 3e-4
    np.testing.assert_allclose(used(Linear(), 4), 3e-4 * np.array([1.0, 0.75, 0.5, 0.25]), rtol=1e-6)
    for updates in (1, 7, 977):
        rates = used(Linear(), updates)
        np.testing.assert_allclose(rates, 3e-4 * (1 - np.arange(updates) / updates), rtol=2e-4)
        np.testing.assert_allclose([rates[0], rates[-1]], [3e-4, 3e-4 / updates], rtol=2e-4)
        assert (rates > 0.0).all()


def test_linear_to_a_share():
    # from 1 to .2 in 4: 1, .8, .6, .4
    np.testing.assert_allclose(used(Linear(end=0.2), 4), 3e-4 * np.array([1.0, 0.8, 0.6, 0.4]), rtol=1e-6)


def test_cosine():
    # .5 (1 + cos(pi u / 4)): 1, .853553, .5, .146447
    np.testing.assert_allclose(used(Cosine(), 4), 3e-4 * np.array([1.0, 0.853553, 0.5, 0.146447]), rtol=1e-5)
    # .1 + .9 of that
    shares = 0.1 + 0.9 * np.array([1.0, 0.853553, 0.5, 0.146447])
    np.testing.assert_allclose(used(Cosine(end=0.1), 4), 3e-4 * shares, rtol=1e-5)


def test_constant():
    np.testing.assert_allclose(used(Constant(), 5), 3e-4, rtol=1e-6)


@pytest.mark.parametrize("schedule", [Linear, Cosine])
def test_nothing_runs_past_the_end(schedule):
    """Training may go on after the planned end: a rate must not turn negative, nor rise again."""
    for progress in (1.0, 1.25, 2.0):
        assert schedule()(AGENT, jnp.float32(progress)).learning_rate == 0.0
        late = schedule(end=0.5)(AGENT, jnp.float32(progress)).learning_rate
        np.testing.assert_allclose(late, 1.5e-4, rtol=1e-6)


@pytest.mark.parametrize("schedule", [Linear, Cosine])
def test_nested_leaves_and_only_those_named(schedule):
    agent = schedule(("loss.clip_eps", "advantage.gae_lambda"))(AGENT, jnp.float32(0.5))
    np.testing.assert_allclose([agent.loss.clip_eps, agent.advantage.gae_lambda], [0.1, 0.475], rtol=1e-6)
    assert agent.learning_rate == 3e-4
    assert agent.loss.vf_coef == AGENT.loss.vf_coef
    assert jax.tree.structure(agent) == jax.tree.structure(AGENT)


def test_it_does_not_compound():
    """The agent that is annealed is the configured one each time, so calling twice means the same twice."""
    schedule = Linear()
    a, b = (schedule(AGENT, jnp.float32(0.5)).learning_rate for _ in range(2))
    assert a == b


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("learning_rat", ["'learning_rat'", "PPO", "learning_rate", "gamma"]),
        ("loss.clip", ["'clip'", "ClippedSurrogate", "clip_eps", "vf_coef", "ent_coef"]),
        ("num_epochs", ["'num_epochs'", "learning_rate"]),  # a size: not a number that may change
        ("", ["learning_rate"]),
        ("loss", ["clip_eps"]),  # a part, not a number in it
        ("gamma.x", ["gamma"]),  # nothing below a number
    ],
)
def test_an_unknown_leaf_is_refused_with_the_choices(path, words):
    with pytest.raises(ConfigError) as error:
        Linear((path,))(AGENT, jnp.float32(0.5))
    for word in words:
        assert word in str(error.value)
