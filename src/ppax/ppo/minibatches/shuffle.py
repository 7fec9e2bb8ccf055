"""Shuffled minibatches: a new permutation of all sequences each epoch.

Large permutations are a keyed bijection on the bits of the index, a Feistel network (Luby and Rackoff 1988,
https://doi.org/10.1137/0217022). A sort would cost up to a third of a whole iteration on a CPU.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.arrays.sequences import nearest_divisors
from ppax.core.types import Batch, ConfigError, Key, MinibatchIndices, part, static

SORT_BELOW = 256  # below this size a sort costs little, and all permutations are possible
ROUNDS = 8  # of the Feistel network


@part
class Shuffle:
    """Shuffled minibatches: every sequence once per epoch, in a new random order, or in that of the streams."""

    num_minibatches: int = static("minibatches per epoch: one gradient step each", default=4, low=1)
    remainder: str = static(
        "if num_minibatches does not divide the number of sequences: error, or pad the smaller minibatches",
        default="error",
        choices=("error", "pad"),
    )

    shuffle: bool = static(
        "draw a new order in each epoch; otherwise minibatches are the sequences stream by stream", default=True
    )

    def size(self, sequences: int) -> int:
        """Sequences in each minibatch, padding included; ConfigError if `sequences` cannot be divided."""
        parts = self.num_minibatches
        if sequences % parts and (self.remainder == "error" or sequences < parts):
            raise ConfigError(
                f"num_minibatches = {parts} does not divide the {sequences} sequences of a rollout; "
                + nearest_divisors(sequences, parts)
                + ("" if sequences < parts else '; or set remainder = "pad"')
            )
        return -(-sequences // parts)

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Draw indices [num_minibatches, size] of the sequences in `batch` [M, L]; index M is padding."""
        sequences, parts = batch.steps.valid.shape[0], self.num_minibatches
        size = self.size(sequences)
        order = permutation(key, sequences) if self.shuffle else jnp.arange(sequences, dtype=jnp.int32)
        if size * parts == sequences:
            return MinibatchIndices(order.reshape(parts, size), None)
        # One padding index in each of the last minibatches: spread evenly, so that no minibatch is empty
        places = np.full((parts, size), sequences, np.int32)
        full = np.arange(parts) < parts - (size * parts - sequences)
        places[np.arange(size) < size - 1 + full[:, None]] = np.arange(sequences)
        return MinibatchIndices(jnp.append(order, sequences)[places], None)


def permutation(key: Key, size: int) -> Array:
    """Random permutation of 0 .. size-1, [size] int32."""
    if size < SORT_BELOW:
        return jax.random.permutation(key, jnp.arange(size, dtype=jnp.int32))
    bits = (size - 1).bit_length()
    data = jax.random.key_data(key)  # hash its bits: jax.random would compile a dozen kernels more
    keys = _hash(_hash(data[0] + jnp.arange(ROUNDS, dtype=jnp.uint32)) + data[-1])

    def scramble(x: Array) -> Array:
        """Feistel network, a bijection of the numbers below 2^bits: a round xors one half with a hash of the other."""
        high, low = bits // 2, bits - bits // 2
        left, right = x >> low, x & jnp.uint32(2**low - 1)
        for i in range(ROUNDS):
            left, right = right, left ^ (_hash(right ^ keys[i]) & jnp.uint32(2**high - 1))
            high, low = low, high
        return (left << low) | right

    # Cycle walking: scramble results >= size again until all are below it; a bijection of 0 .. size-1
    return jax.lax.while_loop(
        lambda x: (x >= size).any(),
        lambda x: jnp.where(x >= size, scramble(x), x),
        scramble(jnp.arange(size, dtype=jnp.uint32)),
    ).astype(jnp.int32)


def _hash(x: Array) -> Array:
    """Integer hash of 32 bits: every bit of the result depends on every bit of `x`."""
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
