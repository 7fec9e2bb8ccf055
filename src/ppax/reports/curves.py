"""Curves of metrics over environment steps: log rows averaged to few points, and means of several runs with a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ppax.core.types import ConfigError
from ppax.reports.statistics import iqm_band
from ppax.run.records import Record

CONFIDENCE, RANGE = "confidence", "range"  # bands over runs: see `mean_curve`
BANDS = (CONFIDENCE, RANGE)


def checked_band(band: str) -> str:
    """Return `band` unchanged if it is "confidence" or "range"; else raise ConfigError."""
    if band not in BANDS:
        raise ConfigError(f"band = {band!r}: must be {' or '.join(map(repr, BANDS))}")
    return band


class Curve(NamedTuple):
    """Curve of a metric over environment steps, of one run or several: a line and a band, one entry per point."""

    iterations: np.ndarray  # [points]
    steps: np.ndarray  # [points]
    value: np.ndarray  # [points] the line
    low: np.ndarray  # [points] the band: of one run, the lowest and highest of the rows of a point
    high: np.ndarray  # [points]


def curve_of(record: Record, metric: str, points: int) -> Curve:
    """Return the curve of `metric` over environment steps, from the log rows that have it: at most `points` points.

    Consecutive rows are averaged to one point if there are more rows than that; their lowest and highest value are the
    band, so that a spike of one row stays visible. If no row has the metric, the curve has no points.
    """
    values = record.columns.get(metric, np.zeros(0))
    kept = np.isfinite(values)
    if not kept.any():
        return Curve(*np.zeros((5, 0)))
    iterations, steps, values = (x[kept] for x in (record.columns["iteration"], record.columns["env_steps"], values))
    if len(values) <= points:
        return Curve(iterations, steps, values, values, values)
    first = np.arange(points) * len(values) // points  # row with which each point begins
    counts = np.diff(np.append(first, len(values)))
    iterations, steps, mean = (np.add.reduceat(x, first) / counts for x in (iterations, steps, values))
    return Curve(iterations, steps, mean, np.minimum.reduceat(values, first), np.maximum.reduceat(values, first))


def mean_curve(curves: Sequence[Curve], band: str) -> Curve:
    """Return the mean of the curves of several runs, with a band, at the points of the longest curve.

    With the band "confidence" the line is the interquartile mean over the runs and the band its 95 % bootstrap
    interval; with "range" the line is the mean and the band goes from the lowest to the highest row of all runs. Runs
    are averaged at equal iterations rather than equal environment steps, which differ a little between seeds because
    autoreset steps are not counted. Each curve is interpolated linearly between its points, and left out beyond its
    last one. If no curve has points, neither has the result.
    """
    curves = [curve for curve in curves if len(curve.steps)]
    if len(curves) < 2:
        return curves[0] if curves else Curve(*np.zeros((5, 0)))
    grid = max(curves, key=lambda curve: (curve.iterations[-1], len(curve.iterations))).iterations
    steps, values, low, high = (
        np.array([np.interp(grid, curve.iterations, values, np.nan, np.nan) for curve, values in pairs])
        for pairs in zip(*([(curve, x) for x in curve[1:]] for curve in curves), strict=True)
    )
    # where a run with more steps than the others ends, the mean of the others is less
    along = np.maximum.accumulate(np.nanmean(steps, 0))
    if band == CONFIDENCE:
        return Curve(grid, along, *iqm_band(values))
    return Curve(grid, along, np.nanmean(values, 0), np.nanmin(low, 0), np.nanmax(high, 0))


def common(records: Sequence[Record], metric: str, points: int, band: str) -> Curve:
    """Return the curve of `metric` over the runs of one setting, with at most `points` points of each run.

    `band` is "confidence" or "range", as in `mean_curve`.
    """
    return mean_curve([curve_of(record, metric, points) for record in records], band)
