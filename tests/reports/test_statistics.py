"""Statistics over seeds and the verdict: numbers worked out by hand."""

import itertools
import math

import numpy as np
import pytest

from ppax.reports.statistics import difference_of, iqm, standing_of, statistics_of, verdict_on

FIVE, THREE = 4 / 5, 2 / 3


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([100, 3, 2, 4, 1], 3.0),  # a quarter of five, rounded down: one at each end
        ([0, 10, 11], 7.0),  # of three none
        ([8, 7, 6, 5, 4, 3, 2, 1], 4.5),  # of eight two
        ([5], 5.0),
    ],
)
def test_iqm(scores, expected):
    assert iqm(scores) == pytest.approx(expected)


def test_statistics_by_hand():
    s = statistics_of([1, 2, 3, 4, 5])
    assert (s.mean, s.iqm, s.minimum) == (3.0, 3.0, 1.0)
    assert s.std == pytest.approx(math.sqrt(2.5))  # (4 + 1 + 0 + 1 + 4) / 4


def test_interval_of_one_success_in_five():
    """The IQM of k ones among five draws is min(max(k - 1, 0), 3) / 3, with k of Binomial(5, 1/5).

    P(k >= 4) = 0.0067 is below 2.5 %, P(k >= 3) = 0.058 is above: the upper bound is that of k = 3.
    """
    s = statistics_of([0, 0, 0, 0, 1])
    assert s.low == 0.0
    assert s.high == pytest.approx(2 / 3)


def test_interval_of_equal_scores_and_of_one_seed():
    same = statistics_of([7.0] * 5)
    assert (same.low, same.high, same.std) == (7.0, 7.0, 0.0)
    one = statistics_of([7.0])
    assert (one.mean, one.iqm, one.minimum) == (7.0, 7.0, 7.0)
    assert all(map(math.isnan, (one.std, one.low, one.high)))


@pytest.mark.parametrize(
    ("scores", "share", "passed"),
    [
        ([475] * 5, FIVE, True),
        ([474.99] * 5, FIVE, False),  # IQM just below
        ([500, 500, 500, 430, 100], FIVE, True),  # 430 = 25 + 0.9 * (475 - 25); the IQM is 476.7
        ([500, 500, 500, 429.9, 100], FIVE, False),  # the IQM is 476.6, but only three of five are near
        ([500, 500, 500, 430, 430], FIVE, True),
        ([600, 600, 225], THREE, True),  # mean 475, two of three near
        ([975, 225, 225], THREE, False),  # mean 475, one of three near
        ([math.nan, 500, 500, 500, 500], FIVE, False),
        ([500] * 4, FIVE, True),
        ([500, 500, 500, 429], FIVE, False),  # 80 % of four seeds are four
    ],
)
def test_verdict_at_its_boundaries(scores, share, passed):
    assert verdict_on(scores, 25.0, 475.0, share).passed is passed


def test_verdict_on_negative_scores():
    """From -200 to -140: a seed must reach -146."""
    verdict = verdict_on([-130, -130, -130, -146, -146.1], -200.0, -140.0, FIVE)
    assert (verdict.iqm_reached, verdict.near, verdict.needed) == (True, 4, 4)


def test_settings_are_ranked_by_iqm_then_failures_then_lower_bound_then_mean():
    nan = math.nan
    best_first = [
        [9.0, 9.0, 9.0],
        [7.0, 8.0, 9.0],  # equal IQM as the next, whose interval reaches further down
        [1.0, 8.0, 15.0],
        [8.0, 8.0, 8.0, 8.0, nan],  # IQM 8 as well: the failed seed counts as the worst and is trimmed
        [10.0, 10.0, nan],  # without an IQM: fewer failed seeds first
        [2.0, 2.0, nan],
        [50.0, nan, nan],
        [nan, nan, nan],
    ]
    ranked = sorted(reversed(best_first), key=standing_of, reverse=True)
    assert list(map(str, ranked)) == list(map(str, best_first))
    assert standing_of([5.0]) > standing_of([nan])


def test_the_interval_of_a_difference_against_all_resamples():
    """Three seeds of each setting have 27 x 27 equally likely resamples; the IQM of three is their mean."""
    first, second = np.array([4.0, 6.0, 11.0]), np.array([1.0, 5.0, 6.0])
    draws = [np.array(places) for places in itertools.product(range(3), repeat=3)]
    pairs = list(itertools.product(draws, draws))
    gaps = [first[a].mean() - second[b].mean() for a, b in pairs]
    ordered = (first[:, None] > second) + 0.5 * (first[:, None] == second)
    better = [ordered[np.ix_(a, b)].mean() for a, b in pairs]
    found = difference_of(first, second)
    assert found.iqm == pytest.approx(3.0)
    assert found.better == pytest.approx((1 + 2.5 + 3) / 9)  # 6 against 6 is a tie
    np.testing.assert_allclose([found.low, found.high], np.percentile(gaps, [2.5, 97.5]), atol=0.35)
    np.testing.assert_allclose([found.better_low, found.better_high], np.percentile(better, [2.5, 97.5]), atol=0.06)
    assert difference_of(second, first).iqm == -found.iqm
    assert difference_of(second, first).better == pytest.approx(1.0 - found.better)


def test_the_probability_of_improvement_is_the_mann_whitney_statistic():
    from scipy import stats

    draws = np.random.default_rng(0)
    first, second = draws.integers(0, 9, 7), draws.integers(0, 9, 12)
    assert difference_of(first, second).better == pytest.approx(stats.mannwhitneyu(first, second).statistic / (7 * 12))


def test_differences_without_an_interval():
    one = difference_of([3.0], [1.0, 2.0])
    assert (one.iqm, one.better) == (1.5, 1.0)
    assert all(map(math.isnan, (one.low, one.high, one.better_low, one.better_high)))
    failed = difference_of([3.0, math.nan], [1.0, 2.0])
    assert failed.better == 0.5  # a seed without a score is worse than any
    assert all(map(math.isnan, (failed.iqm, failed.low, failed.high)))
