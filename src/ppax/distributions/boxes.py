"""Bounds of a Box in float32, rounded so that actions lie inside the space for every dtype."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array


class Bounds(NamedTuple):
    """Flattened bounds of a Box; hashable, so that they can be static fields or arguments in JAX."""

    low: tuple[float, ...]  # d bounds
    high: tuple[float, ...]
    shape: tuple[int, ...]  # shape of the space; its d elements are stored flat
    dtype: str = "float32"  # dtype of the environment's action


def bounds_of(space: spaces.Box) -> Bounds:
    """Return the bounds of a Box of floats, rounded inwards to numbers that compiled float32 programs represent.

    Rounding changes float64 bounds, and subnormal numbers, which compiled programs treat as 0.
    """
    low, high = (np.ravel(bound).astype(np.float64) for bound in (space.low, space.high))
    with np.errstate(over="ignore"):  # numbers beyond the float32 range become infinite
        low32, high32 = low.astype(np.float32), high.astype(np.float32)
        low32 = np.where(low32 < low, np.nextafter(low32, np.float32(np.inf)), low32)
        high32 = np.where(high32 > high, np.nextafter(high32, np.float32(-np.inf)), high32)
    tiny = np.finfo(np.float32).tiny  # compiled programs flush smaller numbers to 0
    low32 = np.where(np.abs(low32) < tiny, np.where(low > 0, tiny, np.float32(0)), low32)
    high32 = np.where(np.abs(high32) < tiny, np.where(high < 0, -tiny, np.float32(0)), high32)
    dtype = "float32" if space.dtype == np.float64 else str(space.dtype)
    return Bounds(tuple(map(float, low32)), tuple(map(float, high32)), tuple(space.shape), dtype)


def centre_and_half(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return centre and half width of each dimension of a Box, [d] float64 each.

    A dimension without bounds has centre 0 and half width infinity; in a dimension with one bound, both are infinite.
    """
    free = np.isinf(low) & np.isinf(high)
    a, b = (np.where(free, 0.0, x) for x in (low, high))
    return a / 2 + b / 2, np.where(free, np.inf, b / 2 - a / 2)


def into_box(
    action: Array, low: tuple[float, ...], high: tuple[float, ...], shape: tuple[int, ...], dtype: str
) -> Array:
    """Return `action` [..., d] clipped to the box, in the box's shape and dtype."""
    inside = jnp.clip(action, along(low, action.ndim), along(high, action.ndim))
    return inside.reshape(*action.shape[:-1], *shape).astype(dtype)


def along(x: tuple[float, ...] | np.ndarray, ndim: int) -> np.ndarray:
    """Return `x` [d] with `ndim` axes: leading axes of length 1, so that it broadcasts with actions [..., d]."""
    return np.asarray(x, np.float32).reshape((1,) * (ndim - 1) + (-1,))
