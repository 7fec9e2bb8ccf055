"""Curves: rows as they are, few points with extremes, mean and range over runs."""

import numpy as np
import pytest

from ppax.core.types import ConfigError
from ppax.reports.curves import checked_band, common, curve_of, mean_curve
from ppax.reports.statistics import statistics_of
from ppax.run.records import Record, of_history, record_columns


def record(values, steps=None, iterations=None, name="run") -> Record:
    count = len(values)
    steps = range(10, 10 * count + 1, 10) if steps is None else steps
    iterations = range(1, count + 1) if iterations is None else iterations
    triples = zip(iterations, steps, values, strict=True)
    return of_history(name, [{"iteration": i, "env_steps": s, "x": v} for i, s, v in triples], {})


def test_a_short_run_is_drawn_as_it_was_logged():
    curve = curve_of(record([3.0, None, 1.0, float("nan"), 7.5]), "x", points=5)
    assert curve.steps.tolist() == [10, 30, 50]
    assert curve.value.tolist() == curve.low.tolist() == curve.high.tolist() == [3.0, 1.0, 7.5]
    assert curve.iterations.tolist() == [1, 3, 5]


def test_a_metric_without_numbers_is_an_empty_curve():
    assert curve_of(record([None, None]), "x", 5).steps.tolist() == []
    assert curve_of(record([1.0]), "unknown", 5).steps.tolist() == []
    assert mean_curve([], "range").steps.tolist() == []


def test_points_of_many_rows_have_their_mean_and_extremes():
    # seven rows in three points: rows 0 and 1, 2 and 3, 4 to 6
    curve = curve_of(record([1.0, 3.0, 10.0, 20.0, 0.0, 6.0, -3.0]), "x", points=3)
    assert curve.value.tolist() == [2.0, 15.0, 1.0]
    assert curve.low.tolist() == [1.0, 10.0, -3.0]
    assert curve.high.tolist() == [3.0, 20.0, 6.0]
    assert curve.steps.tolist() == [15.0, 35.0, 60.0]


@pytest.mark.parametrize("place", [0, 1, 49_999, 77_777, 99_999])
def test_one_spike_in_many_rows_stays(place):
    values = np.zeros(100_000)
    values[place], values[(place + 7) % 100_000] = 5.0, -7.0
    curve = curve_of(record(values.tolist()), "x", points=400)
    assert len(curve.steps) == 400
    assert curve.high.max() == 5.0
    assert curve.low.min() == -7.0
    assert curve.value.sum() * 250 == pytest.approx(-2.0)  # points of 250 rows each


def test_mean_and_range_over_seeds_at_equal_iterations():
    # autoreset steps differ between seeds, and so do environment steps
    one, two = record([1.0, 2.0, 6.0], steps=[10, 20, 30]), record([3.0, 6.0, 0.0], steps=[12, 22, 36])
    curve = common([one, two], "x", 10, "range")
    assert curve.steps.tolist() == [11.0, 21.0, 33.0]
    assert curve.value.tolist() == [2.0, 4.0, 3.0]
    assert curve.low.tolist() == [1.0, 2.0, 0.0]
    assert curve.high.tolist() == [3.0, 6.0, 6.0]


def test_a_run_that_ended_early_has_no_part_in_the_mean_after_its_end():
    curve = common([record([1.0, 1.0]), record([3.0, 5.0, 8.0, 9.0])], "x", 10, "range")
    assert curve.value.tolist() == [2.0, 3.0, 8.0, 9.0]
    assert curve.low.tolist() == [1.0, 1.0, 8.0, 9.0]


def test_runs_logged_at_other_iterations_are_interpolated():
    curve = common(
        [record([0.0, 4.0], iterations=[1, 5]), record([2.0, 2.0, 2.0], iterations=[1, 2, 5])], "x", 10, "range"
    )
    assert curve.iterations.tolist() == [1, 2, 5]
    assert curve.value.tolist() == [1.0, 1.5, 3.0]  # the first run: 0, 1 and 4


def test_columns_keep_what_is_a_number():
    rows = [
        {"iteration": 1, "env_steps": 5, "a": 1.0},
        {"iteration": 2, "env_steps": 9, "a": None, "b": float("inf")},
        {"iteration": 3, "env_steps": None, "a": 7.0},  # no place on the axis
        {"iteration": 4, "a": 7.0},
        {"iteration": 5, "env_steps": 20, "a": -1e300, "b": 1e-320},
    ]
    columns = record_columns(rows)
    assert columns["env_steps"].tolist() == [5.0, 9.0, 20.0]
    np.testing.assert_array_equal(columns["a"], [1.0, np.nan, -1e100])
    np.testing.assert_array_equal(columns["b"], [np.nan, np.nan, 0.0])


def test_the_confidence_band_is_the_interval_of_the_interquartile_mean():
    """At each point line and band are those of `statistics_of` on the values of the seeds there."""
    values = np.array([[0.0, 3.0], [1.0, 8.0], [2.0, 9.0], [9.0, 1.0], [4.0, 2.0]])
    curve = common([record(row.tolist()) for row in values], "x", 10, "confidence")
    for point in range(2):
        s = statistics_of(values[:, point])
        assert curve.value[point] == pytest.approx(s.iqm)
        assert (curve.low[point], curve.high[point]) == pytest.approx((s.low, s.high), abs=0.35)
    assert curve.low[0] > 0.0 or curve.high[0] < 9.0  # not the range


def test_a_run_that_is_over_has_no_part_in_the_confidence_band():
    curve = common([record([1.0, 1.0]), record([3.0, 5.0, 8.0, 9.0])], "x", 10, "confidence")
    assert curve.value.tolist() == [2.0, 3.0, 8.0, 9.0]
    assert curve.low[2:].tolist() == curve.high[2:].tolist() == [8.0, 9.0]
    assert (curve.low[0], curve.high[0]) == (1.0, 3.0)


def test_an_unknown_band_is_refused():
    with pytest.raises(ConfigError, match="band = 'std': must be 'confidence' or 'range'"):
        checked_band("std")


def test_steps_never_fall_where_the_run_with_more_of_them_ends_first():
    long, short = record([1.0] * 4, steps=[10, 20, 30, 40]), record([1.0] * 2, steps=[14, 28])
    curve = mean_curve([curve_of(one, "x", 9) for one in (long, short)], "range")
    assert curve.steps.tolist() == [12.0, 24.0, 30.0, 40.0]
    longer = record([1.0] * 2, steps=[14, 48])
    assert mean_curve([curve_of(one, "x", 9) for one in (long, longer)], "range").steps.tolist() == [
        12.0,
        34.0,
        34.0,
        40.0,
    ]
