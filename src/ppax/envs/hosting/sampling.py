"""Random actions that a mask allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from ppax.envs.hosting.arrays import MaskForm, choices_of


def sampled(space: spaces.Space, mask: Any, rng: np.random.Generator) -> Any:
    """Return an element that the mask allows, with the types of `space.sample()`; without a mask, any.

    Raises ValueError for something that is no mask of this space.
    """
    if mask is None or not choices_of(space):
        return space.sample()
    form = MaskForm(space)
    edges = np.cumsum(form.choices)[:-1]
    chosen = np.array([_choice(part, rng) for part in np.split(form(mask), edges)], space.dtype)
    if isinstance(space, spaces.Discrete):
        return chosen.dtype.type(chosen[0] + space.start)
    return chosen.reshape(space.shape) + getattr(space, "start", np.zeros((), space.dtype))


def joined(rows: Sequence[Any]) -> Any:
    """Return a batch of the elements `rows`."""
    first = rows[0]
    if isinstance(first, dict):
        return {key: joined([row[key] for row in rows]) for key in first}
    return tuple(map(joined, zip(*rows, strict=True))) if isinstance(first, tuple) else np.stack(rows)


def _choice(allowed: np.ndarray, rng: np.random.Generator) -> int:
    there = np.flatnonzero(allowed)
    return int(rng.choice(there)) if len(there) else 0
