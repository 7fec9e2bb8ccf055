"""Canonical V-trace: against eq. 1 as a sum, rlax, GAE on-policy, arithmetic by hand, and NaN after episode ends."""

import jax
import numpy as np
import pytest

from ppax.ppo.advantages import GAE, CanonicalVTrace
from support.streams import STEPS, by_hand, draw, poisoned, targets


def eq_1(s, t, lam, rho, c, gamma=0.9):
    """v_t = V_t + sum over u of gamma^(u-t) (prod of c_i for i from t to u-1) delta_u."""
    total = float(s.value[t])
    for u in range(t, s.last(t) + 1):
        delta = min(s.ratio[u], rho) * (s.reward[u] + gamma * s.beyond(u) - float(s.value[u]))
        total += gamma ** (u - t) * np.prod([lam * min(s.ratio[j], c) for j in range(t, u)]) * delta
    return total


@pytest.mark.parametrize(("lam", "rho", "c"), [(1.0, 1.0, 1.0), (0.5, 2.0, 0.7), (0.9, 0.6, 1.4), (0.0, 1.0, 1.0)])
def test_agrees_with_the_sum_of_the_paper(lam, rho, c):
    streams = draw(0)
    got = targets(CanonicalVTrace(lam, rho, c), streams)
    for i in range(200):
        s = streams.one(i)
        for t in range(STEPS):
            assert abs(got.value[i, t] - eq_1(s, t, lam, rho, c)) < 3e-5
            following = s.beyond(t) if s.last(t) == t else eq_1(s, t + 1, lam, rho, c)
            expected = min(s.ratio[t], rho) * (s.reward[t] + 0.9 * following - float(s.value[t]))
            assert abs(got.advantage[i, t] - expected) < 3e-5


def test_agrees_with_rlax_where_nothing_is_truncated():
    rlax = pytest.importorskip("rlax")
    streams = draw(1, cases=100, chained=True)
    streams = streams._replace(truncated=np.zeros_like(streams.truncated))
    discount = np.where(streams.terminated, 0.0, 0.9).astype(np.float32)
    for lam, rho in ((1.0, 1.0), (1.0, 0.5), (0.7, 2.0)):
        theirs = jax.jit(jax.vmap(lambda *x, lam=lam, rho=rho: rlax.vtrace_td_error_and_advantage(*x, lam, rho, rho)))(
            streams.value, streams.next_value, streams.reward, discount, streams.ratio
        )
        ours = targets(CanonicalVTrace(lam, rho, 1.0), streams)
        np.testing.assert_allclose(ours.value, theirs.errors + streams.value, atol=3e-5)
        if lam == 1.0:  # for lambda < 1 rlax mixes v with V in the advantage, unlike the paper
            np.testing.assert_allclose(ours.advantage, theirs.pg_advantage, atol=3e-5)


def test_on_policy_targets_equal_gae_and_with_lambda_1_advantages_too():
    streams = draw(2, chained=True)
    for lam in (0.0, 0.8, 1.0):
        ours = targets(CanonicalVTrace(lam), streams, ratio=False)
        gae = targets(GAE(lam), streams)
        np.testing.assert_allclose(ours.value, gae.value, atol=2e-5)
        assert np.allclose(ours.advantage, gae.advantage, atol=2e-5) == (lam == 1.0)


def test_two_steps_by_hand():
    # gamma .5, w = [3, .5], clips 2 and 1. delta_1 = .5 (4 + .5*2 - 1) = 2, v_1 = 1 + 2 = 3.
    # delta_0 = 2 (1 + .5*1 - 2) = -1, v_0 = 2 - 1 + .5 * 1 * 2 = 2.
    # advantages: 2 (1 + .5 * 3 - 2) = 1, and at the rollout's end, with V' = 2: .5 (4 + .5*2 - 1) = 2.
    got = targets(CanonicalVTrace(1.0, 2.0, 1.0), by_hand([1, 4], [2, 1], [1, 2], ratio=[3, 0.5]), 0.5)
    np.testing.assert_allclose(got.value, [2.0, 3.0], atol=1e-6)
    np.testing.assert_allclose(got.advantage, [1.0, 2.0], atol=1e-6)


def test_termination_and_truncation():
    # gamma .5: truncated: v_0 = 1 + .5*8 = 5; terminated, or both: v_0 = 1. Advantage v_0 - 2. Row 1 never reaches it.
    for flags, expected in (
        ({"truncated": [0]}, 5),
        ({"terminated": [0]}, 1),
        ({"terminated": [0], "truncated": [0]}, 1),
    ):
        got = targets(CanonicalVTrace(), by_hand([1, 101], [2, 3], [8, 4], **flags), 0.5)
        np.testing.assert_allclose(got.value, [expected, 103.0])
        np.testing.assert_allclose(got.advantage, [expected - 2.0, 100.0])


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_nan_after_an_episode_end_does_not_propagate(kind):
    got = targets(CanonicalVTrace(), poisoned(kind), 1.0)
    # delta_1 = .5 (1 + (0 or 3) - 2); v_1 = 2 + that; v_0 = 2 + 1 (1 + 2 - 2) + 1 * delta_1
    delta = -0.5 if kind == "terminated" else 1.0
    np.testing.assert_allclose(got.value[[0, 1, 3]], [3.0 + delta, 2.0 + delta, 3.0])
    # 1 (1 + v_1 - 2) and delta_1
    np.testing.assert_allclose(got.advantage[[0, 1, 3]], [1.0 + delta, delta, 1.0])
    assert np.isnan(got.value[2])
