"""Plain minibatches: a fresh permutation of all sequences each epoch, each used exactly once.

Large permutations come from a keyed bijection instead of a sort, which costs as much as a third of a whole iteration
on a CPU: a Feistel network (Luby and Rackoff 1988, https://doi.org/10.1137/0217022) on the index's bits.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.types import Batch, Key, part, static

SORT_BELOW = 2048  # there sorting is as fast, and draws from all permutations
ROUNDS = 6


@part
class Shuffle:
    """Every sequence once an epoch, in a fresh random order."""

    num_minibatches: int = static("gradient steps in one epoch", default=4, low=1)

    def __call__(self, batch: Batch, key: Key) -> Array:
        """Indices [num_minibatches, M / num_minibatches] of the sequences in `batch` [M, L]."""
        return permutation(key, batch.steps.valid.shape[0]).reshape(self.num_minibatches, -1)


def permutation(key: Key, size: int) -> Array:
    """0 .. size-1 in a random order, [size] int32."""
    if size < SORT_BELOW:
        return jax.random.permutation(key, size)
    bits = (size - 1).bit_length()
    keys = jax.random.bits(key, (ROUNDS,), jnp.uint32)

    def scramble(x: Array) -> Array:
        """A bijection of the numbers below 2^bits: each round xors one half with a hash of the other."""
        high, low = bits // 2, bits - bits // 2
        left, right = x >> low, x & jnp.uint32(2**low - 1)
        for i in range(ROUNDS):
            left, right = right, left ^ (_hash(right ^ keys[i]) & jnp.uint32(2**high - 1))
            high, low = low, high
        return (left << low) | right

    # A result beyond the end is scrambled again until it is inside: still a bijection, of 0 .. size-1
    return jax.lax.while_loop(
        lambda x: (x >= size).any(),
        lambda x: jnp.where(x >= size, scramble(x), x),
        scramble(jnp.arange(size, dtype=jnp.uint32)),
    ).astype(jnp.int32)


def _hash(x: Array) -> Array:
    """Every bit of the result depends on every bit of `x`."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
