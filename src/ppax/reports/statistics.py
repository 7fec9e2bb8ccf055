"""Statistics of a score over seeds, after Agarwal et al. 2021, https://arxiv.org/abs/2108.13264, and a pass criterion.

The IQM (interquartile mean) is the mean without the lowest and the highest quarter of the seeds, each quarter rounded
down to a whole number of seeds: of five seeds it is the mean of the middle three, of three seeds that of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

TRIMMED = 0.25  # share of the seeds left out at each end
CONFIDENCE, RESAMPLES = 0.95, 9_999
BAND_RESAMPLES = 1_000  # of every point of a curve
NEAR = 0.9  # share of the way from random to threshold that single seeds must go


class Statistics(NamedTuple):
    """Statistics of scores over seeds, one score for each seed: mean, deviation, IQM with its interval, minimum."""

    mean: float
    std: float  # of the sample (n - 1); NaN for one seed
    iqm: float
    low: float  # bootstrap confidence interval of the IQM; NaN for one seed
    high: float
    minimum: float


class Verdict(NamedTuple):
    """Verdict on the scores of several seeds: whether their IQM reaches a threshold, and how many seeds come near it.

    `near` is the number of seeds whose scores are at least 90 % of the way from the score of a random policy to the
    threshold, `needed` the number that must be.
    """

    iqm_reached: bool
    near: int
    needed: int

    @property
    def passed(self) -> bool:
        """Whether the IQM reaches the threshold, and at least `needed` seeds come near it."""
        return self.iqm_reached and self.near >= self.needed


def iqm(scores: Sequence[float]) -> float:
    """Return the interquartile mean of scores: the mean without the lowest and the highest quarter of them.

    A quarter is rounded down to a whole number of scores. The result is NaN if a score is NaN.
    """
    from scipy import stats

    x = np.asarray(scores, float)
    return math.nan if np.isnan(x).any() else float(stats.trim_mean(x, TRIMMED))  # SciPy sorts NaN to the end


def statistics_of(scores: Sequence[float]) -> Statistics:
    """Return the statistics of scores over seeds.

    The interval is the 95 % percentile bootstrap of the IQM, with a fixed seed of its random numbers; it is NaN for one
    score, or where a score is not finite.
    """
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


class Difference(NamedTuple):
    """Difference between the scores of two settings: of their IQM, and the probability that the first is better.

    `low` and `high`, and `better_low` and `better_high`, are the ends of 95 % bootstrap intervals over seeds. These
    four are NaN where a setting has only one seed, or a score is not finite.
    """

    iqm: float  # IQM of the first less that of the second
    low: float
    high: float
    better: float  # probability of improvement: that a seed of the first scores higher than one of the second
    better_low: float
    better_high: float


def difference_of(scores: Sequence[float], others: Sequence[float], paired: bool = False) -> Difference:
    """Return the difference of `scores` from `others`, the scores of two settings with one score for each seed.

    Intervals are percentile bootstraps over seeds, with fixed random numbers. In each resample the seeds of each
    setting are drawn with replacement: independently (stratified), or if `paired` together, where scores at the same
    index have the same seed. In the probability of improvement a tie counts as one half (Agarwal et al. 2021, section
    4.3; the Mann-Whitney statistic divided by the number of pairs). A score that is NaN counts as the worst.
    """
    from scipy import stats

    x, y = (np.where(np.isnan(one), -np.inf, one) for one in (np.asarray(scores, float), np.asarray(others, float)))

    def gap(x: np.ndarray, y: np.ndarray, axis: int = -1) -> Any:
        return stats.trim_mean(x, TRIMMED, axis=axis) - stats.trim_mean(y, TRIMMED, axis=axis)

    def better(x: np.ndarray, y: np.ndarray, axis: int = -1) -> Any:
        first, second = np.moveaxis(x, axis, -1)[..., :, None], np.moveaxis(y, axis, -1)[..., None, :]
        return ((first > second) + 0.5 * (first == second)).mean((-2, -1))

    known = bool(np.isfinite(x).all() and np.isfinite(y).all())
    values = [float(gap(x, y)) if known else math.nan, math.nan, math.nan, float(better(x, y)), math.nan, math.nan]
    if known and len(x) > 1 and len(y) > 1:
        for place, statistic in ((1, gap), (4, better)):
            drawn = stats.bootstrap(
                (x, y),
                statistic,
                n_resamples=RESAMPLES,
                paired=paired,
                batch=max(1, 2**20 // (len(x) * len(y))),
                vectorized=True,
                confidence_level=CONFIDENCE,
                method="percentile",
                random_state=np.random.default_rng(0),
            )
            values[place : place + 2] = map(float, drawn.confidence_interval)
    return Difference(*values)


class Standing(NamedTuple):
    """Standing of a setting (runs that differ by their seed only): a tuple by which settings are ranked.

    Tuples are compared field by field; the larger one is better.
    """

    iqm: float  # seeds without a score count as the worst, -inf
    scored: int  # minus the number of seeds without a score
    low: float  # of the interval of the IQM; for one seed the IQM; -inf where a seed has no score
    mean: float  # over the seeds that have a score


def standing_of(scores: Sequence[float]) -> Standing:
    """Return the standing by which a setting is ranked, from the scores of its seeds, at least one (NaN: no score).

    The setting with the higher IQM is ranked better; if equal, the one with fewer seeds without a score; then that with
    the higher lower bound of the IQM's interval; then that with the higher mean.
    """
    known = [score for score in scores if math.isfinite(score)]
    mean = float(np.mean(known)) if known else -math.inf
    if len(known) < len(scores):
        worst = iqm([score if math.isfinite(score) else -math.inf for score in scores])
        return Standing(worst, len(known) - len(scores), -math.inf, mean)
    s = statistics_of(scores)
    return Standing(s.iqm, 0, s.low if math.isfinite(s.low) else s.iqm, mean)


def iqm_band(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the IQM over the runs of `values` [runs, points], and the bounds of its 95 % bootstrap interval.

    They are three arrays [points]. A run that has ended has NaN, and is left out at that point. At points with one run,
    all three are its value.
    """
    centre, low, high = np.full((3, values.shape[1]), np.nan)
    present = np.isfinite(values)
    for runs in np.unique(present, axis=1).T if values.size else ():  # points with the same runs are one computation
        points = (present == runs[:, None]).all(0)
        own = values[np.ix_(runs, points)]
        if not len(own):
            continue
        draws = np.random.default_rng(0).integers(len(own), size=(BAND_RESAMPLES, len(own)))
        centre[points] = _trimmed(own, 0)
        means = _trimmed(own[draws], 1)
        tail = 50.0 * (1.0 - CONFIDENCE)
        low[points], high[points] = np.percentile(means, (tail, 100.0 - tail), axis=0)
    return centre, low, high


def _trimmed(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the interquartile mean of `values` along `axis`, an array without that axis."""
    count = values.shape[axis]
    cut = int(TRIMMED * count)
    kept = np.sort(values, axis=axis).take(np.arange(cut, count - cut), axis=axis)
    return np.asarray(kept.mean(axis=axis))


def verdict_on(scores: Sequence[float], random: float, threshold: float, share: float) -> Verdict:
    """Return the verdict on `scores`, one per seed: whether their IQM reaches `threshold`, and enough come near it.

    Enough are a `share` of the seeds; near is at least 90 % of the way from `random` to `threshold`. NaN, the score of
    a seed none of whose episodes ended, reaches nothing.
    """
    bar = random + NEAR * (threshold - random)
    needed = math.ceil(share * len(scores) - 1e-9)
    return Verdict(iqm(scores) >= threshold, sum(score >= bar for score in scores), needed)
