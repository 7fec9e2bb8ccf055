"""Exact 64-bit counters as pairs of uint32 words, for devices without 64-bit integers.

JAX's default integers wrap at 2 147 483 648, about 36 minutes of training at a million steps a second.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array


def zero() -> Array:
    """Return a counter at 0, [2] uint32: low word, high word."""
    return jnp.zeros(2, jnp.uint32)


def add(count: Array, amount: Array) -> Array:
    """Return the 64-bit counter `count` [2] after adding a non-negative `amount` below 2^32."""
    low = count[0] + amount.astype(jnp.uint32)
    carry = (low < count[0]).astype(jnp.uint32)  # unsigned overflow wraps: the sum is smaller
    return jnp.stack([low, count[1] + carry])


def to_float(count: Array) -> Array:
    """Return a 64-bit counter [2] as float32, with relative error 1e-7: do not compare it for equality."""
    return count[1].astype(jnp.float32) * jnp.float32(2**32) + count[0].astype(jnp.float32)


def to_int(count: Array) -> int:
    """Return a 64-bit counter [2] as an exact Python integer, on the host."""
    low, high = np.asarray(count, np.uint64)
    return int(low) + (int(high) << 32)
