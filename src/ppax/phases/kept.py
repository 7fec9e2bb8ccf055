"""Rollouts that a phase keeps, as sequences: a ring buffer, and minibatches of all of them."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import to_rows
from ppax.types import Batch, MinibatchIndices


def with_rollout(ring: Batch | tuple[()], batch: Batch, rollouts: int, number: Array) -> Batch:
    """Write `batch` [M, L] over the oldest of the last `rollouts` in `ring` [rollouts, M, L].

    `number` [] counts the rollouts before this one. In an empty ring all other places become rows that are not valid.
    """
    # every field that a minibatch sampler may read, but not inputs of auxiliary losses
    steps = dataclasses.replace(batch.steps, final_value=None, auxiliary=())
    own = Batch(steps, batch.targets)
    if not jax.tree.leaves(ring):
        ring = jax.tree.map(lambda x: jnp.zeros((rollouts, *x.shape), x.dtype), own)
    write = jax.lax.dynamic_update_index_in_dim
    written: Batch = jax.tree.map(lambda all_of_them, x: write(all_of_them, x, number % rollouts, 0), ring, own)
    return written


def joined(ring: Batch) -> Batch:
    """Sequences of all rollouts, [rollouts * M, L]."""
    return to_rows(ring)


def split(drawn: MinibatchIndices, size: int, padding: int) -> MinibatchIndices:
    """Split minibatches drawn from several rollouts into those of `size` sequences; index `padding` is padding."""
    pieces = -(-drawn.index.shape[1] // size)

    def one(x: Array, fill: float) -> Array:
        return jnp.pad(x, ((0, 0), (0, pieces * size - x.shape[1])), constant_values=fill).reshape(-1, size)

    weight = None if drawn.weight is None else one(drawn.weight, 0.0)
    return MinibatchIndices(one(drawn.index, padding), weight)
