"""An exact count beyond 2^31 on devices without 64-bit integers: a pair of uint32 words.

JAX's default integers wrap at 2 147 483 648, about 36 minutes of training at a million steps a second.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array


def zero() -> Array:
    """A count of nothing. Shape [2], uint32: low word, high word."""
    return jnp.zeros(2, jnp.uint32)


def add(count: Array, amount: Array) -> Array:
    """`count` plus a non-negative `amount` below 2^32."""
    low = count[0] + amount.astype(jnp.uint32)
    carry = (low < count[0]).astype(jnp.uint32)  # unsigned overflow wraps, so the sum came out smaller
    return jnp.stack([low, count[1] + carry])


def to_float(count: Array) -> Array:
    """The count as float32: relative error 1e-7, never for equality."""
    return count[1].astype(jnp.float32) * jnp.float32(2**32) + count[0].astype(jnp.float32)


def to_int(count: Array) -> int:
    """The exact count, on the host."""
    low, high = np.asarray(count, np.uint64)
    return int(low) + (int(high) << 32)
