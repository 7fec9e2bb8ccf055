"""Check of the magnitudes of observations: whether they grow within an episode, or are too large for float32."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from ppax.checks.report import CheckResult
from ppax.core.types import PyTree

EARLY = 10  # steps at the start of an episode whose largest entry is its usual magnitude
# Growth over the early steps that no bounded quantity shows: a counter of steps grows 100-fold in 1000 steps, a
# velocity from rest less
GROWTH = 1e4
HUGE = 1e12  # squares of larger numbers, summed over a run, come near the end of float32
ADVICE = (
    "Early and late observations differ too much for any scale: normalize_obs divides all by one standard deviation, "
    "and clips. Look for a quantity that adds up without end (a sum, an unstable simulation): leave it out, show its "
    "change or its logarithm, or end the episode before."
)
SCALE = (
    "float32 has seven digits, and normalize_obs squares these numbers: return observations near 1, in other units, "
    "or without the offset that they share."
)


def largest_entries(obs: PyTree, axes: int) -> np.ndarray:
    """Return the largest absolute finite entry of each observation, in an array with the leaves' first `axes` axes."""

    def of_leaf(leaf: Any) -> np.ndarray:
        x = np.abs(np.asarray(leaf).astype(np.float64))
        x = x.reshape(*x.shape[:axes], -1)
        largest: np.ndarray = np.where(np.isfinite(x), x, 0.0).max(axis=-1, initial=0.0)
        return largest

    return functools.reduce(np.maximum, map(of_leaf, jax.tree.leaves(obs)))


def magnitude(largest: np.ndarray, first: np.ndarray, used: np.ndarray) -> CheckResult:
    """Return the result of the check that observations are not huge, and do not grow within an episode.

    `largest` [T, B] has the largest absolute entry of each observation, for T steps of B streams (an agent in an
    environment). `first` [T, B] marks the first observation of an episode: those of its first EARLY steps are compared
    with later ones. `used` [T, B] marks the observations that are examined. In a stream in which no episode begins,
    one is taken to begin at the first step.
    """
    age = np.full(first.shape, len(first))  # steps since the start of the episode
    age[0] = np.where(first[0] | ~first.any(), 0, len(first))
    for t in range(1, len(first)):
        age[t] = np.where(first[t], 0, age[t - 1] + 1)
    top = float(largest.max(where=used, initial=0.0))
    early = float(largest.max(where=used & (age <= EARLY), initial=0.0))
    if top > GROWTH * max(early, 1.0):
        text = f"observations grow within an episode: {early:.2g} in its first {EARLY} steps, later {top:.2g}"
        return CheckResult(False, text, top, ADVICE)
    if top > HUGE:
        return CheckResult(False, f"the largest entry of an observation is {top:.2g}", top, SCALE)
    return CheckResult(True, f"the largest entry of an observation is {top:.2g}", top)
