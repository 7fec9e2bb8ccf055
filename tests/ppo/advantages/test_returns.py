"""TD(lambda), Monte Carlo returns and reward spreading: against forward views and arithmetic by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppax.ppo.advantages import GAE, MonteCarlo, TDLambda, spread_rewards
from support.streams import STEPS, by_hand, draw, poisoned, targets

BOTH = (TDLambda(1.0), MonteCarlo())


def n_step(s, t, n, gamma=0.9):
    """Return the n-step return r_t + gamma r_{t+1} + ... + gamma^n V'."""
    rewards = sum(gamma**k * float(s.reward[t + k]) for k in range(n))
    return rewards + gamma**n * s.beyond(t + n - 1)


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_td_lambda_is_the_mean_of_n_step_returns(lam):
    # forward view: weights (1 - lambda) lambda^(n-1), and lambda^(N-1) for the longest return
    streams = draw(0)
    got = targets(TDLambda(lam), streams)
    for i in range(200):
        s = streams.one(i)
        for t in range(STEPS):
            longest = s.last(t) - t + 1
            weights = [(1 - lam) * lam ** (n - 1) for n in range(1, longest)] + [lam ** (longest - 1)]
            assert abs(sum(weights) - 1.0) < 1e-9
            expected = sum(w * n_step(s, t, n) for n, w in enumerate(weights, 1))
            assert abs(got.value[i, t] - expected) < 3e-5
            assert abs(got.advantage[i, t] - (expected - float(s.value[t]))) < 3e-5


def test_monte_carlo_is_the_longest_return():
    streams = draw(1)
    got = targets(MonteCarlo(), streams)
    for i in range(200):
        s = streams.one(i)
        for t in range(STEPS):
            expected = n_step(s, t, s.last(t) - t + 1)
            assert abs(got.value[i, t] - expected) < 3e-5
            assert abs(got.advantage[i, t] - (expected - float(s.value[t]))) < 3e-5


def test_td_lambda_equals_gae_only_if_next_values_are_those_of_the_next_rows():
    chained, loose = draw(2, chained=True), draw(2)
    ours, gae = (targets(part, chained) for part in (TDLambda(0.8), GAE(0.8)))
    np.testing.assert_allclose(ours.advantage, gae.advantage, atol=2e-5)
    assert not np.allclose(targets(TDLambda(0.8), loose).advantage, targets(GAE(0.8), loose).advantage, atol=0.1)


@pytest.mark.parametrize("part", BOTH, ids=lambda x: type(x).__name__)
def test_returns_by_hand(part):
    # gamma .5, rewards 1, 2, 4. Without an end the bootstrap value is V' = 8: 4 + 4 = 8, 2 + 4 = 6, 1 + 3 = 4.
    stream = by_hand([1, 2, 4], [1, 1, 1], [0, 16, 8])
    np.testing.assert_allclose(targets(part, stream, 0.5).value, [4.0, 6.0, 8.0])
    np.testing.assert_allclose(targets(part, stream, 0.5).advantage, [3.0, 5.0, 7.0])
    # truncated after the second, V' = 16: 2 + 8 = 10, 1 + 5 = 6; terminated: 2 and 1 + 1 = 2
    cut = by_hand([1, 2, 4], [1, 1, 1], [0, 16, 8], truncated=[1])
    np.testing.assert_allclose(targets(part, cut, 0.5).value, [6.0, 10.0, 8.0])
    for flags in ({"terminated": [1]}, {"terminated": [1], "truncated": [1]}):
        ended = by_hand([1, 2, 4], [1, 1, 1], [0, 16, 8], **flags)
        np.testing.assert_allclose(targets(part, ended, 0.5).value, [2.0, 2.0, 8.0])
    # terminated at the very last step: 4, 2 + 2, 1 + 2
    done = by_hand([1, 2, 4], [1, 1, 1], [0, 16, 8], terminated=[2])
    np.testing.assert_allclose(targets(part, done, 0.5).value, [3.0, 4.0, 4.0])


@pytest.mark.parametrize("part", BOTH, ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_nan_after_an_episode_end_does_not_propagate(part, kind):
    # v_1 = 1 + (0 or 3), v_0 = 1 + v_1, and after the NaN row 1 + 2
    last = 1.0 if kind == "terminated" else 4.0
    got = targets(part, poisoned(kind), 1.0)
    np.testing.assert_allclose(got.value[[0, 1, 3]], [1.0 + last, last, 3.0])
    assert np.isnan(got.value[2])


def test_every_estimator_gives_the_exact_value_of_constant_rewards():
    # reward 1 for ever, gamma .9, V = V' = 10 = 1 / (1 - .9): V is exact, wherever a time limit truncates
    stream = by_hand(np.ones(6), np.full(6, 10), np.full(6, 10), truncated=[1, 4])
    for part in (*BOTH, TDLambda(0.3), GAE(0.7)):
        np.testing.assert_allclose(targets(part, stream, 0.9).advantage, 0.0, atol=1e-5)


def test_spread_rewards():
    reward, never = jnp.array([0.0, 0.0, 8.0, 1.0]), jnp.zeros(4, bool)
    # backwards: 1, 8 + .5, 4.25, 2.125; with an episode end after the third step: 1, 8, 4, 2
    np.testing.assert_allclose(spread_rewards(reward, 0.5, never), [2.125, 4.25, 8.5, 1.0])
    ended = jnp.array([False, False, True, False])
    np.testing.assert_allclose(spread_rewards(reward, 0.5, ended), [2.0, 4.0, 8.0, 1.0])
    np.testing.assert_array_equal(spread_rewards(reward, 0.0, never), reward)
    np.testing.assert_allclose(spread_rewards(reward.at[3].set(jnp.nan), 0.5, ended)[:3], [2.0, 4.0, 8.0])
    # the decay is a number and can be swept
    swept = jax.vmap(spread_rewards, (None, 0, None))(reward, jnp.array([0.0, 0.5]), never)
    np.testing.assert_allclose(swept, [[0.0, 0.0, 8.0, 1.0], [2.125, 4.25, 8.5, 1.0]])
