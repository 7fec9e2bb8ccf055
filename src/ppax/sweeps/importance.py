"""Importance of swept options: the share of the scores' variance that each explains alone.

The score's rank is fitted by each option: by a mean for each value where values repeat or are no numbers, else by a
parabola in the value's rank. The share is the adjusted R^2 of the fit, so that an option without influence is near 0.
Interactions of options are not seen, so shares need not add to 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ppax.sweeps.plan import shown


def importance(values: Sequence[Mapping[str, Any]], scores: Sequence[float]) -> dict[str, float]:
    """Return the share in [0, 1] for each option by path, of members with these values and scores.

    Members without a score are left out; NaN where fewer than four are left, or all scores are equal.
    """
    known = [(own, score) for own, score in zip(values, scores, strict=True) if math.isfinite(score)]
    ranks = ranks_of([score for _, score in known])
    paths = list(values[0]) if values else []
    if len(known) < 4 or np.ptp(ranks) == 0.0:
        return dict.fromkeys(paths, math.nan)
    return {path: _share(_design([own[path] for own, _ in known]), ranks) for path in paths}


def ranks_of(values: Sequence[float]) -> np.ndarray:
    """Return ranks from 0; equal values have their mean rank."""
    array = np.asarray(values, float)
    below = (array[None, :] < array[:, None]).sum(axis=1)
    same = (array[None, :] == array[:, None]).sum(axis=1)
    return np.asarray(below + (same - 1) / 2.0)


def _design(values: Sequence[Any]) -> np.ndarray:
    """Return the columns of the fit, [members, terms], with a constant."""
    texts = [shown(value) for value in values]
    groups = sorted(set(texts))
    numbers = all(type(value) in (int, float) for value in values)
    if not numbers or len(groups) <= len(values) // 2:
        return np.array([[text == group for group in groups] for text in texts], float)
    ranks = ranks_of(values) / len(values)
    return np.stack([np.ones_like(ranks), ranks, ranks**2], axis=1)


def _share(design: np.ndarray, scores: np.ndarray) -> float:
    """Return the adjusted R^2 of a least-squares fit, at least 0."""
    members, terms = design.shape
    if members <= terms:
        return 0.0
    fit = design @ np.linalg.lstsq(design, scores, rcond=None)[0]
    unexplained = ((scores - fit) ** 2).sum() / ((scores - scores.mean()) ** 2).sum()
    return float(max(0.0, 1.0 - unexplained * (members - 1) / (members - terms)))
