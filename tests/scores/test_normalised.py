"""Normalised scores of several rows, against NumPy written by hand and SciPy's trimmed mean."""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from ppax.reports.statistics import difference_of
from ppax.scores.normalised import aggregate, normalised, profile, together, weighted_iqm
from ppax.scores.results import Score, SeedResult
from ppax.scores.suite import SuiteRow
from support.aggregated import FIRST, SECOND


def score(values, reference, random=0.0, **row):
    members = tuple(SeedResult(seed, x, 0.0, 1.0, random, 10, 1.0, ()) for seed, x in enumerate(values))
    return Score(
        SuiteRow("a", "CartPole-v1", reference=reference, **row), "CartPole-v1", "compiled", 8, members, {}, ""
    )


def test_equal_weights_give_the_interquartile_mean():
    values = np.random.default_rng(0).normal(size=(3, 40))
    np.testing.assert_allclose(weighted_iqm(values, np.full(40, 1 / 40)), stats.trim_mean(values, 0.25, axis=-1))


def test_a_row_counts_the_same_with_any_number_of_seeds():
    """Two rows of four and eight seeds: as if each seed of the first stood there twice."""
    few, many = [0.1, 0.4, 0.8, 1.2], [0.0, 0.2, 0.3, 0.5, 0.6, 0.7, 0.9, 1.0]
    found = together([score(few, 1.0), score(many, 1.0)])
    assert found.iqm == pytest.approx(stats.trim_mean([*few, *few, *many], 0.25))
    assert found.low < found.iqm < found.high
    assert (found.rows, found.reached) == (2, 0)


def test_a_row_reaches_its_reference_by_the_iqm_of_the_table():
    """Of five seeds that is the mean of the middle three, 90; with a quarter of them cut exactly it would be 91."""
    values = [0.0, 70.0, 100.0, 100.0, 100.0]
    assert score(values, 90.5).statistics.iqm == pytest.approx(90.0)
    assert together([score(values, 90.5), score(values, 89.5)]).reached == 1


def test_aggregates_are_those_of_rliable():
    """The ends of an interval differ by the random numbers of the bootstrap."""
    for scores, iqm, low, high in ((FIRST, 0.7478, 0.6551, 0.8408), (SECOND, 0.6744, 0.5979, 0.7561)):
        found = aggregate(list(scores))
        assert found.iqm == pytest.approx(iqm)
        assert (found.low, found.high) == pytest.approx((low, high), abs=6e-3)
    better = [difference_of(one.tolist(), other.tolist()).better for one, other in zip(FIRST, SECOND, strict=True)]
    assert np.mean(better) == pytest.approx(0.49)
    share, low, high = profile(list(FIRST), np.array([0.25, 0.5, 0.75, 1.0, 1.25]))
    np.testing.assert_allclose(share, [1.0, 0.75, 0.5, 0.25, 0.0])
    np.testing.assert_allclose(low, [1.0, 0.75, 0.4, 0.15, 0.0], atol=1e-9)
    np.testing.assert_allclose(high, [1.0, 0.75, 0.6, 0.35, 0.0], atol=1e-9)


def test_zero_is_the_untrained_policy_and_one_the_reference():
    np.testing.assert_allclose(normalised(score([-200.0, -150.0, -100.0], -100.0, -200.0)), [0.0, 0.5, 1.0])
    assert together([score([5.0] * 4, 5.0, 1.0), score([9.0] * 5, 5.0, 1.0)]).reached == 2


def test_the_interval_draws_the_seeds_of_each_row_apart():
    """Rows whose seeds agree have no spread, however far apart the rows are."""
    found = together([score([0.2] * 5, 1.0), score([0.9] * 5, 1.0), score([0.5] * 3, 1.0)])
    assert found.low == pytest.approx(found.iqm) == pytest.approx(found.high)


def test_rows_without_a_reference_above_the_untrained_policy_are_left_out():
    rows = [score([1.0, 2.0], None), score([1.0, 2.0], 0.5, 1.0), score([1.0, 2.0], 2.0, at_most=1.0)]
    assert [normalised(row) for row in rows] == [None] * 3
    assert together([*rows, score([1.0, 2.0], 2.0)]) is None  # one row is no suite


def test_a_seed_without_a_score_counts_as_the_untrained_policy():
    rows = [score([np.nan, 1.0, 1.0, 1.0], 1.0), score([1.0] * 4, 1.0)]
    assert together(rows) == together(
        [dataclasses.replace(rows[0], members=score([0.0, 1.0, 1.0, 1.0], 1.0).members), rows[1]]
    )


def test_a_profile_is_the_share_of_runs_above_a_threshold():
    """Two rows with equal weight: counted by hand; NaN is an untrained policy."""
    rows = [np.array([0.2, 0.9]), np.array([0.5, 0.5, 1.0, np.nan])]
    share, low, high = profile(rows, np.array([0.0, 0.5, 0.95]))
    np.testing.assert_allclose(share, [(1 + 3 / 4) / 2, (1 / 2 + 1 / 4) / 2, (0 + 1 / 4) / 2])
    assert (low <= share).all()
    assert (share <= high).all()


def test_the_interval_of_a_profile_draws_the_seeds_of_each_row_apart():
    """Rows whose seeds agree have no spread; a row of one seed above and one below has all shares of itself."""
    agreed = profile([np.full(5, 0.2), np.full(5, 0.9)], np.array([0.5]))
    np.testing.assert_allclose(agreed, [[0.5]] * 3)
    np.testing.assert_allclose(profile([np.array([0.0, 1.0])], np.array([0.5])), [[0.5], [0.0], [1.0]])
