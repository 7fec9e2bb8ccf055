"""Statistics of a score over seeds, and the verdict of the protocol: Agarwal et al. 2021, https://arxiv.org/abs/2108.13264

IQM is the mean without the lowest and highest quarter, rounded down to whole seeds: of five seeds the middle three, of
three seeds all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

TRIMMED = 0.25  # share of the seeds left out at each end
CONFIDENCE, RESAMPLES = 0.95, 9_999
NEAR = 0.9  # share of the way from random to threshold that single seeds must go


class Statistics(NamedTuple):
    """Statistics of one score per seed."""

    mean: float
    std: float  # of the sample (n - 1); NaN for one seed
    iqm: float
    low: float  # bootstrap confidence interval of the IQM; NaN for one seed
    high: float
    minimum: float


class Verdict(NamedTuple):
    """Verdict on a row: its IQM against the threshold, and seeds near the threshold against those needed."""

    iqm_reached: bool
    near: int
    needed: int

    @property
    def passed(self) -> bool:
        """Both conditions hold."""
        return self.iqm_reached and self.near >= self.needed


def iqm(scores: Sequence[float]) -> float:
    """Interquartile mean."""
    from scipy import stats

    return float(stats.trim_mean(np.asarray(scores, float), TRIMMED))


def statistics_of(scores: Sequence[float]) -> Statistics:
    """Statistics over seeds; the interval is the 95 % percentile bootstrap of the IQM, with a fixed seed."""
    from scipy import stats

    x = np.asarray(scores, float)
    std = low = high = math.nan
    if len(x) > 1:
        std = float(x.std(ddof=1))
    if len(x) > 1 and np.isfinite(x).all():  # without a number there is no interval, and scipy would warn
        drawn = stats.bootstrap(
            (x,),
            lambda x, axis=-1: stats.trim_mean(x, TRIMMED, axis=axis),
            n_resamples=RESAMPLES,
            confidence_level=CONFIDENCE,
            method="percentile",
            random_state=np.random.default_rng(0),
        )
        low, high = (float(bound) for bound in drawn.confidence_interval)
    return Statistics(float(x.mean()), std, iqm(x.tolist()), low, high, float(x.min()))


def verdict_on(scores: Sequence[float], random: float, threshold: float, share: float) -> Verdict:
    """Verdict on `scores`, one per seed; a `share` of them must go 90 % of the way from `random` to `threshold`.

    NaN, the score of a seed none of whose episodes ended, reaches nothing.
    """
    bar = random + NEAR * (threshold - random)
    needed = math.ceil(share * len(scores) - 1e-9)
    return Verdict(iqm(scores) >= threshold, sum(score >= bar for score in scores), needed)
