"""Plain minibatches: a fresh permutation of all sequences each epoch, each used exactly once.

Large permutations come from a keyed bijection instead of a sort, which costs as much as a third of a whole iteration
on a CPU: a Feistel network (Luby and Rackoff 1988, https://doi.org/10.1137/0217022) on the index's bits.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.arrays.sequences import nearest_divisors
from ppax.types import Batch, ConfigError, Key, MinibatchIndices, part, static

SORT_BELOW = 2048  # there sorting is as fast, and draws from all permutations
ROUNDS = 6


@part
class Shuffle:
    """Every sequence once an epoch, in a fresh random order."""

    num_minibatches: int = static("gradient steps in one epoch", default=4, low=1)
    remainder: str = static(
        "where num_minibatches does not divide the sequences: refuse, or let some minibatches have one fewer",
        default="error",
        choices=("error", "pad"),
    )

    def size(self, sequences: int) -> int:
        """Places for sequences in each minibatch; ConfigError where this many sequences cannot be dealt out."""
        parts = self.num_minibatches
        if sequences % parts and (self.remainder == "error" or sequences < parts):
            raise ConfigError(
                f"num_minibatches = {parts} does not divide the {sequences} sequences of a rollout; "
                + nearest_divisors(sequences, parts)
                + ("" if sequences < parts else '; or set remainder = "pad"')
            )
        return -(-sequences // parts)

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Indices [num_minibatches, size] of the sequences in `batch` [M, L]; M, one beyond, is an empty place."""
        sequences, parts = batch.steps.valid.shape[0], self.num_minibatches
        size, order = self.size(sequences), permutation(key, sequences)
        if size * parts == sequences:
            return MinibatchIndices(order.reshape(parts, size), None)
        # Each of the last minibatches has one empty place: dealt evenly, none is left with nothing to learn from
        places = np.full((parts, size), sequences, np.int32)
        full = np.arange(parts) < parts - (size * parts - sequences)
        places[np.arange(size) < size - 1 + full[:, None]] = np.arange(sequences)
        return MinibatchIndices(jnp.append(order, sequences)[places], None)


def permutation(key: Key, size: int) -> Array:
    """0 .. size-1 in a random order, [size] int32."""
    if size < SORT_BELOW:
        return jax.random.permutation(key, jnp.arange(size, dtype=jnp.int32))
    bits = (size - 1).bit_length()
    data = jax.random.key_data(key)  # its bits, spread: another draw from it would be a dozen kernels to compile
    keys = _hash(_hash(data[0] + jnp.arange(ROUNDS, dtype=jnp.uint32)) + data[-1])

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
