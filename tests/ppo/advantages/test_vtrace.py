"""VTrace: against the sum of its definition, GAE bit for bit, arithmetic by hand, and NaN after episode ends."""

import numpy as np
import pytest

from ppax.ppo.advantages import GAE, VTrace
from support.streams import STEPS, by_hand, draw, poisoned, targets


@pytest.mark.parametrize(("lam", "rho", "c"), [(0.95, 1.0, 1.0), (0.5, 0.7, 1.3), (1.0, 2.0, 0.4), (0.0, 1.0, 1.0)])
def test_agrees_with_the_sum_of_its_definition(lam, rho, c):
    # A_t = sum over u of delta_u times the product of gamma lambda c_i for i from t to u - 1
    streams = draw(0)
    got = targets(VTrace(lam, rho, c), streams)
    for i in range(200):
        s = streams.one(i)
        delta = [min(s.ratio[t], rho) * (s.reward[t] + 0.9 * s.beyond(t) - float(s.value[t])) for t in range(STEPS)]
        for t in range(STEPS):
            terms = (
                np.prod([0.9 * lam * min(s.ratio[j], c) for j in range(t, u)]) * delta[u]
                for u in range(t, s.last(t) + 1)
            )
            expected = sum(terms)
            assert abs(got.advantage[i, t] - expected) < 3e-5
            assert abs(got.value[i, t] - (expected + float(s.value[t]))) < 3e-5


@pytest.mark.parametrize("clip", [1.0, 1.5])
@pytest.mark.parametrize("ratio", [True, False])
def test_equals_gae_bit_for_bit_at_ratio_1(clip, ratio):
    streams = draw(1, cases=1000)
    streams = streams._replace(ratio=np.ones_like(streams.ratio))
    ours, gae = targets(VTrace(0.95, clip, clip), streams, 0.99, ratio), targets(GAE(0.95), streams, 0.99)
    np.testing.assert_array_equal(ours.advantage, gae.advantage)
    np.testing.assert_array_equal(ours.value, gae.value)


def test_two_steps_by_hand():
    # gamma .5, lambda 1, w = [3, .5], clips rho 2 and c 1. delta_1 = .5 (4 + .5*2 - 1) = 2, A_1 = 2.
    # delta_0 = min(3, 2) (1 + .5*1 - 2) = -1, A_0 = -1 + .5 * min(3, 1) * 2 = 0. Targets A + V: 2 and 3.
    got = targets(VTrace(1.0, 2.0, 1.0), by_hand([1, 4], [2, 1], [1, 2], ratio=[3, 0.5]), 0.5)
    np.testing.assert_allclose(got.advantage, [0.0, 2.0], atol=1e-6)
    np.testing.assert_allclose(got.value, [2.0, 3.0], atol=1e-6)


def test_clips_below_1_apply_without_ratios_too():
    # Without ratios w = 1, and rho_clip = .5 halves every delta: 1 + .5*4 - 1 = 2 becomes 1.
    got = targets(VTrace(0.0, 0.5, 1.0), by_hand([1], [1], [4]), 0.5, ratio=False)
    np.testing.assert_allclose(got.advantage, [1.0])


def test_termination_and_truncation():
    # gamma .5, lambda 1, w = 1, V' of the ended step 8; the next episode's reward 100 must not reach row 0.
    # truncated: 1 + .5*8 - 2 = 3; terminated, or both: 1 - 2 = -1.
    for flags, expected in (
        ({"truncated": [0]}, 3),
        ({"terminated": [0]}, -1),
        ({"terminated": [0], "truncated": [0]}, -1),
    ):
        got = targets(VTrace(1.0), by_hand([1, 101], [2, 3], [8, 4], **flags), 0.5)
        np.testing.assert_allclose(got.advantage, [expected, 100.0])


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_nan_after_an_episode_end_does_not_propagate(kind):
    got = targets(VTrace(1.0), poisoned(kind), 1.0)
    # A_1 = .5 (1 + (0 or 3) - 2); A_0 = min(1.5, 1) (1 + 2 - 2) + 1 * A_1
    last = -0.5 if kind == "terminated" else 1.0
    np.testing.assert_allclose(got.advantage[[0, 1, 3]], [1.0 + last, last, 1.0])
    assert np.isnan(got.advantage[2])
