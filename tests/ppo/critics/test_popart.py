"""PopArt: statistics against float64, loss by hand, and V unchanged by updates of the statistics."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax.networks import mlp
from ppax.ppo.critics import PopArt, ValueStats

STATE = ValueStats(jnp.float32(0.7), jnp.float32(10.0), jnp.float32(4.0))  # std 2


def rollouts(count, scale=1.0, offset=0.0):
    rng = np.random.default_rng(0)
    for i in range(count):
        yield (offset + scale * rng.normal(i, 1.0 + i, (5, 8))).astype(np.float32), rng.random((5, 8)) < 0.7


@pytest.mark.parametrize("rate", [0.05, 0.4, 1.0])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e3, -50.0), (1e-3, 0.0), (1.0, 1e4)])
def test_statistics_are_weighted_moments(rate, scale, offset):
    """Compare in float64: update k of n has weight rate (1 - rate)^(n - k), divided by the sum of all weights."""
    critic, seen = PopArt(rate, min_std=1e-9), []
    state = critic.init().state
    for targets, valid in rollouts(6, scale, offset):
        state = critic.update(state, jnp.where(valid, targets, jnp.nan), jnp.asarray(valid)).state
        seen.append(targets[valid].astype(np.float64))
        weight = rate * (1.0 - rate) ** np.arange(len(seen))[::-1]
        mean = np.average([x.mean() for x in seen], weights=weight)
        var = np.average([((x - mean) ** 2).mean() for x in seen], weights=weight)
        np.testing.assert_allclose(state.weight, weight.sum(), rtol=1e-5)
        np.testing.assert_allclose(state.mean, mean, rtol=1e-5, atol=1e-6 * scale)
        np.testing.assert_allclose(state.var, var, rtol=2e-4)


def test_a_rollout_without_valid_rows_changes_nothing():
    critic, nothing = PopArt(0.3), jnp.zeros((2, 3), bool)
    for state in (STATE, critic.init().state):
        after, rescale = critic.update(state, jnp.full((2, 3), 99.0), nothing)
        np.testing.assert_array_equal(jnp.stack(after), jnp.stack(state))
        np.testing.assert_array_equal(jnp.stack(rescale), [1.0, 0.0])


def test_loss_and_gradient_by_hand():
    # V = 10 + 2 * .75 = 11.5; R = 14 is 2 in units of std: error -1.25
    assert PopArt().value(STATE, jnp.array([0.75])) == 11.5
    row = jnp.float32(14.0), jnp.float32(11.0)
    error = lambda critic, x: jax.value_and_grad(critic.error, argnums=1)(STATE, jnp.array([x]), *row)  # noqa: E731
    loss, slope = error(PopArt(), 0.75)
    np.testing.assert_allclose([loss, slope[0]], [0.78125, -1.25], rtol=1e-6)
    # Huber beyond half a std: .5 (1.25 - .25), slope -.5
    np.testing.assert_allclose(jnp.hstack(error(PopArt(huber_delta=0.5), 0.75)), [0.5, -0.5], rtol=1e-6)
    # old V = 11 is .5 in units of std: a clip of .125 stops at .625, farther from 2, with gradient 0; .3 has no effect
    np.testing.assert_allclose(jnp.hstack(error(PopArt(value_clip=0.125), 0.75)), [0.5 * 1.375**2, 0.0], rtol=1e-6)
    np.testing.assert_allclose(jnp.hstack(error(PopArt(value_clip=0.3), 0.75)), [0.78125, -1.25], rtol=1e-6)


def test_constant_targets_have_the_minimum_std():
    critic = PopArt(1.0, min_std=0.5)
    state, rescale = critic.update(STATE, jnp.full((2, 3), 12.0), jnp.ones((2, 3), bool))
    np.testing.assert_allclose(jnp.stack(state), [1.0, 12.0, 0.0])
    np.testing.assert_allclose(jnp.stack(rescale), [4.0, -4.0])  # 2 / .5, (10 - 12) / .5
    assert critic.value(state, jnp.array([1.0])) == 12.5
    assert critic.metrics(state, None, None) == {"popart_mean": 12.0, "popart_std": 0.5}


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_statistics_updates_preserve_values_and_policy(scale):
    env = ppax.make("Pendulum-v1", 4)
    agent = ppax.PPO(mlp(env, hidden=(16,), shared=True), critic=PopArt(0.5))
    obs = jax.random.normal(jax.random.key(1), (64, 3))
    look = jax.jit(lambda learner: agent.policy(learner, (), obs, jnp.ones(64, bool), None))
    learner = agent.init(env.observation_space, jax.random.key(0))
    for targets, valid in rollouts(4, scale, 3.0 * scale):
        before = look(learner)
        state, rescale = agent.critic.update(learner.critic, targets, jnp.asarray(valid))
        moved = learner._replace(critic=state, params=agent.network.rescale_value(learner.params, *rescale))
        after = look(moved)
        np.testing.assert_allclose(after.value, before.value, rtol=1e-6, atol=1e-6 * max(1.0, 10 * scale))
        np.testing.assert_array_equal(after.distribution.mean, before.distribution.mean)
        assert np.abs(after.value_outputs - before.value_outputs).max() > 0.01
        # updating only the statistics or only the last layer would change V
        for half in (learner._replace(critic=moved.critic), learner._replace(params=moved.params)):
            assert np.abs(look(half).value - before.value).max() > 1e-2 * min(1.0, scale)
        # the flat parameter vector has the same change: kernel times scale, bias times scale plus shift
        assert all(moved.params[name] is learner.params[name] for name in learner.params if name != "value")
        learner = moved
    assert dataclasses.replace(agent, critic=PopArt()).critic.num_values == 1
