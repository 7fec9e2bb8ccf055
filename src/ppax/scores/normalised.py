"""Scores of several rows together, normalised: 0 is the untrained policy of a row, 1 its published reference.

As in Agarwal et al. 2021, https://arxiv.org/abs/2108.13264: interquartile mean over the seeds of all rows, and a
stratified bootstrap, which draws seeds of each row apart. Here every row has the same weight, however many seeds it
has.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ppax.reports.statistics import CONFIDENCE, TRIMMED, iqm
from ppax.scores.results import Score

RESAMPLES = 2_000


class Normalised(NamedTuple):
    """Normalised scores of several rows: their IQM with its 95 % interval, and how many rows reach the reference."""

    iqm: float
    low: float
    high: float
    rows: int
    reached: int  # rows whose own IQM, as in the table of scores, is at least the reference

    def __str__(self) -> str:
        return (
            f"normalised scores of {self.rows} rows (0: untrained, 1: the published reference): IQM {self.iqm:.3f} "
            f"[{self.low:.3f}, {self.high:.3f}]; {self.reached} rows reach their reference"
        )


def normalised(score: Score) -> np.ndarray | None:
    """Return the normalised scores [seeds] of a row; None without a reference that is above the untrained policy."""
    reference, random = score.row.reference, score.random
    if reference is None or score.row.at_most is not None or not reference > random:
        return None
    return (np.asarray(score.scores) - random) / (reference - random)


def together(scores: Sequence[Score]) -> Normalised | None:
    """Return the normalised scores of all rows together; None where fewer than two have a reference.

    A seed whose score is NaN, because none of its episodes ended, counts as 0, the untrained policy.
    """
    found = [values for score in scores if (values := normalised(score)) is not None]
    return None if len(found) < 2 else aggregate(found)


def aggregate(rows: Sequence[np.ndarray]) -> Normalised:
    """Return the IQM of `rows`, the normalised scores [seeds] of each row, with its interval; NaN counts as 0."""
    rows = [np.nan_to_num(row) for row in rows]
    reached = sum(iqm(row.tolist()) >= 1.0 for row in rows)
    weights = equal_weights(rows)
    low, high = percentile_interval(weighted_iqm(_resampled(rows), weights))
    return Normalised(float(weighted_iqm(np.concatenate(rows), weights)), low, high, len(rows), reached)


def profile(rows: Sequence[np.ndarray], thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the performance profile of `rows` at `thresholds` [T], and the bounds of its 95 % interval, each [T].

    `rows` are the normalised scores [seeds] of each row. The profile is the share of runs that score above a threshold,
    each row with the same weight; NaN counts as 0.
    """
    rows = [np.nan_to_num(row) for row in rows]
    weights, drawn = equal_weights(rows), _resampled(rows)
    values = np.concatenate(rows)
    share = np.array([weights @ (values > one) for one in thresholds])
    low, high = zip(*(percentile_interval((drawn > one) @ weights) for one in thresholds), strict=True)
    return share, np.array(low), np.array(high)


def equal_weights(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return weights [seeds of all rows] that give each row the same total weight, however many seeds it has.

    `rows` has the scores [seeds] of each row. The weights are in the order of the concatenated `rows`, and add up to 1.
    """
    return np.concatenate([np.full(len(row), 1 / (len(row) * len(rows))) for row in rows])


def percentile_interval(drawn: np.ndarray) -> tuple[float, float]:
    """Return the bounds of the 95 % percentile interval of a statistic, from its values `drawn` [resamples]."""
    tail = (1.0 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1.0 - tail))
    return float(low), float(high)


def _resampled(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Return stratified resamples [RESAMPLES, seeds of all rows] of `rows`: the seeds of each row are drawn apart."""
    rng = np.random.default_rng(0)
    return np.concatenate([rng.choice(row, (RESAMPLES, len(row))) for row in rows], axis=1)


def weighted_iqm(values: np.ndarray, weights: np.ndarray) -> Any:
    """Return the mean of the middle half, by weight, of `values` [..., N]; `weights` [N] add up to 1.

    With equal weights and N a multiple of 4 that is the interquartile mean.
    """
    order = np.argsort(values, axis=-1)
    own = weights[order]
    end = np.cumsum(own, axis=-1)
    inside = np.clip(end, TRIMMED, 1.0 - TRIMMED) - np.clip(end - own, TRIMMED, 1.0 - TRIMMED)
    return (np.take_along_axis(values, order, axis=-1) * inside).sum(-1) / inside.sum(-1)
