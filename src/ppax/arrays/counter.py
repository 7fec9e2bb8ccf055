"""Exact 64-bit counter as a pair of uint32 words, for devices without 64-bit integers.

JAX's default integers wrap at 2 147 483 648, about 36 minutes of training at a million steps a second.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array


def zero() -> Array:
    """Zero counter, [2] uint32: low word, high word."""
    return jnp.zeros(2, jnp.uint32)


def add(count: Array, amount: Array) -> Array:
    """Add a non-negative `amount` below 2^32 to `count`."""
    low = count[0] + amount.astype(jnp.uint32)
    carry = (low < count[0]).astype(jnp.uint32)  # unsigned overflow wraps: the sum is smaller
    return jnp.stack([low, count[1] + carry])


def to_float(count: Array) -> Array:
    """Count as float32, with relative error 1e-7: do not compare for equality."""
    return count[1].astype(jnp.float32) * jnp.float32(2**32) + count[0].astype(jnp.float32)


def to_int(count: Array) -> int:
    """Exact count as a Python integer, on the host."""
    low, high = np.asarray(count, np.uint64)
    return int(low) + (int(high) << 32)
