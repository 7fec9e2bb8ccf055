"""GAE: against a float64 loop, rlax and arithmetic by hand; termination and truncation."""

import jax
import numpy as np
import pytest

from ppax.core.types import Targets, Transition
from ppax.ppo.advantages import GAE


@jax.jit
@jax.vmap
def compiled(reward, value, next_value, terminated, truncated, gamma, gae_lambda):
    steps = Transition(None, None, None, value, reward, terminated, truncated, None, None, ())
    return GAE(gae_lambda)(steps, next_value, gamma)


def targets(reward, value, next_value, terminated=False, truncated=False, gamma=1.0, gae_lambda=1.0):
    """Return targets as NumPy arrays, of one stream [T] or of many [N, T] with gamma and lambda [N] each."""
    shape = np.atleast_2d(reward).shape
    rows = [np.broadcast_to(np.asarray(x, np.float32), shape) for x in (reward, value, next_value)]
    flags = [np.broadcast_to(x, shape) for x in (terminated, truncated)]
    numbers = [np.broadcast_to(np.asarray(x, np.float32), shape[:1]) for x in (gamma, gae_lambda)]
    got = compiled(*rows, *flags, *numbers)
    return Targets(*(np.asarray(x).reshape(np.shape(reward)) for x in got))


def loop(reward, value, next_value, terminated, truncated, gamma, gae_lambda):
    """Return GAE in float64, by definition: delta_t = r_t + gamma V'_t - V_t; A_t = delta_t + gamma lambda A_{t+1}."""
    advantage, later = np.zeros(len(reward)), 0.0
    for t in range(len(reward) - 1, -1, -1):
        bootstrap = 0.0 if terminated[t] else gamma * float(next_value[t])
        trace = 0.0 if terminated[t] or truncated[t] else gamma * gae_lambda * later
        advantage[t] = later = float(reward[t]) + bootstrap - float(value[t]) + trace
    return advantage


def draw(seed, cases=1000, steps=17):
    """Return random streams whose frequency of episode ends is between never and every step."""
    rng = np.random.default_rng(seed)
    reward, value, next_value = rng.normal(0.0, 1.0, (3, cases, steps)).astype(np.float32)
    often = rng.choice([0.0, 0.1, 0.5, 1.0], (2, cases, 1))
    terminated, truncated = rng.random((2, cases, steps)) < often
    gamma, gae_lambda = (rng.choice([0.0, 0.5, 0.9, 0.99, 1.0], cases).astype(np.float32) for _ in range(2))
    return reward, value, next_value, terminated, truncated, gamma, gae_lambda


def test_agrees_with_a_float64_loop_on_1000_random_streams():
    case = draw(0)
    got = targets(*case)
    expected = np.stack([loop(*(x[i] for x in case)) for i in range(1000)])
    both = (case[3] & case[4]).all(axis=1)
    assert both.any()
    assert (~case[3] & ~case[4]).all(axis=1).any()
    # a sum of at most 17 terms of size about 1, each rounded at 6e-8
    np.testing.assert_allclose(got.advantage, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got.value, expected + case[1], rtol=1e-5, atol=1e-5)


def test_agrees_with_rlax_where_nothing_is_truncated():
    rlax = pytest.importorskip("rlax")
    reward, value, _, terminated, _, gamma, gae_lambda = draw(1, cases=100)
    last = value[:, ::-1][:, :1]
    values = np.concatenate([value, last], axis=1)  # rlax has one V per step: V'_t = V_{t+1}
    got = targets(reward, value, values[:, 1:], terminated, gamma=gamma, gae_lambda=gae_lambda)
    discount = gamma[:, None] * (1.0 - terminated)
    theirs = jax.jit(jax.vmap(rlax.truncated_generalized_advantage_estimation))(
        reward, discount.astype(np.float32), gae_lambda, values
    )
    np.testing.assert_allclose(got.advantage, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_lambda_0_is_the_one_step_advantage(gamma):
    reward, value, next_value, terminated, truncated, *_ = draw(2, cases=50)
    got = targets(reward, value, next_value, terminated, truncated, gamma, 0.0)
    delta = reward + gamma * np.where(terminated, 0.0, next_value) - value
    np.testing.assert_allclose(got.advantage, delta, atol=1e-6)


@pytest.mark.parametrize("gamma", [0.0, 0.9, 1.0])
def test_lambda_1_is_the_discounted_return_less_the_value(gamma):
    # Intermediate values cancel only if V'_t = V_{t+1}, so the inputs satisfy that.
    reward, value, next_value, terminated, truncated, *_ = draw(3, cases=50)
    ended = terminated | truncated
    next_value = np.where(ended, next_value, np.concatenate([value[:, 1:], next_value[:, -1:]], axis=1))
    got = targets(reward, value, next_value, terminated, truncated, gamma, 1.0)
    for i in range(50):
        for t in range(17):
            total, factor, u = 0.0, 1.0, t
            while True:
                total, factor = total + factor * reward[i, u], factor * gamma
                if ended[i, u] or u == 16:
                    break
                u += 1
            total += 0.0 if terminated[i, u] else factor * next_value[i, u]
            assert abs(got.advantage[i, t] - (total - value[i, t])) < 1e-5
            assert abs(got.value[i, t] - total) < 1e-5


def test_termination_applies_to_the_step_that_ended():
    # r = 0, V = 1, terminated at t = 2, gamma = .99, lambda = .95, so gamma lambda = .9405.
    # t=2: 0 - 1 = -1. Elsewhere delta = .99 - 1 = -.01.
    # t=1: -.01 + .9405 * -1 = -.9505          t=0: -.01 + .9405 * -.9505 = -.9039
    # t=5: -.01   t=4: -.01 * 1.9405 = -.0194   t=3: -.01 + .9405 * -.0194 = -.0283
    # If the flag were applied one step late, A_0 would be -.860.
    got = targets(np.zeros(6), np.ones(6), np.ones(6), np.arange(6) == 2, gamma=0.99, gae_lambda=0.95)
    np.testing.assert_allclose(got.advantage, [-0.9039, -0.9505, -1.0, -0.0283, -0.0194, -0.01], atol=5e-5)


def test_two_steps_by_hand():
    # r = [1, 2], V = .5, terminated at the last step, gamma = lambda = 1:
    # A_1 = 2 - .5 = 1.5;  A_0 = 1 + .5 - .5 + 1.5 = 2.5.  Targets A + V: the returns 3 and 2.
    got = targets([1.0, 2.0], [0.5, 0.5], [0.5, 9.0], [False, True])
    np.testing.assert_allclose(got.advantage, [2.5, 1.5], rtol=1e-6)
    np.testing.assert_allclose(got.value, [3.0, 2.0], rtol=1e-6)


def test_truncation_bootstraps_and_termination_does_not():
    # gamma = .5, lambda = 1. V' of the ended step is 8; V of the next row is 3, as after an autoreset.
    # truncated:  A_0 = 1 + .5 * 8 - 2 = 3;  terminated: A_0 = 1 - 2 = -1;  both: termination wins.
    # Row 1 belongs to the next episode: A_1 = 1 + .5 * 4 - 3 = 0 in every case and must not change A_0.
    arguments = [1.0, 1.0], [2.0, 3.0], [8.0, 4.0]
    at_0, never = np.array([True, False]), np.zeros(2, bool)
    for terminated, truncated, expected in ((never, at_0, 3.0), (at_0, never, -1.0), (at_0, at_0, -1.0)):
        got = targets(*arguments, terminated, truncated, gamma=0.5)
        np.testing.assert_allclose(got.advantage, [expected, 0.0], atol=1e-6)


def test_a_truncation_cuts_the_trace():
    # The same with a large reward in the second episode: A_1 = 101 + 2 - 3 = 100 must not reach row 0.
    got = targets([1.0, 101.0], [2.0, 3.0], [8.0, 4.0], False, [True, False], gamma=0.5)
    np.testing.assert_allclose(got.advantage, [3.0, 100.0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_nan_after_an_episode_end_does_not_propagate(kind):
    # Row 2 is the autoreset row after the end at row 1: its contents are arbitrary, but V'_1 is V of its observation.
    nan = np.nan
    flags = {kind: np.array([False, True, False, False])}
    beyond = nan if kind == "terminated" else 3.0
    got = targets([1.0, 1.0, nan, 1.0], [2.0, 2.0, nan, 2.0], [2.0, beyond, 2.0, 2.0], **flags)
    # A_1 = 1 + (0 or 3) - 2;  A_0 = 1 + 2 - 2 + A_1
    last = -1.0 if kind == "terminated" else 2.0
    np.testing.assert_allclose(got.advantage[:2], [1.0 + last, last], rtol=1e-6)
    assert np.isnan(got.advantage[2])
    np.testing.assert_allclose(got.advantage[3], 1.0, rtol=1e-6)
