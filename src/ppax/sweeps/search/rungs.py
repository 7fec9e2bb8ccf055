"""Rungs: iterations at which members are compared, each `eta` times as far as the one before."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ppax.core.types import ConfigError


def rungs_of(total: int, eta: int, rungs: int) -> list[int]:
    """Return the iterations of the rungs, the last one a 1/eta of `total`, rounded up."""
    return [-(-total // eta**power) for power in range(rungs, 0, -1)]


def check_rungs(total: int, eta: int, rungs: int) -> None:
    """Raise ConfigError where two rungs would be at one iteration."""
    if len(set(rungs_of(total, eta, rungs))) < rungs or total <= 1:
        fit = max((n for n in range(1, rungs) if len(set(rungs_of(total, eta, n))) == n), default=0)
        raise ConfigError(
            f"search.rungs = {rungs}: {total} iterations have no {rungs} rungs with search.eta = {eta}; nearest valid "
            f"value: {fit}"
            if fit and total > 1
            else f"search.rungs = {rungs}: {total} iterations are too few for a rung; raise total_steps"
        )


def ranked(scores: Mapping[int, float]) -> list[int]:
    """Return the numbers of members, best score first; NaN is the worst, of equal scores the first number is best."""
    return sorted(scores, key=lambda number: (-_known(scores[number]), number))


def score_text(score: float) -> str:
    """Return a score in words."""
    return "no score" if math.isnan(score) else f"score {score:.6g}"


def _known(score: float) -> float:
    return -math.inf if math.isnan(score) else score
