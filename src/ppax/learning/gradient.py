"""The gradient of a mean over many rows: split over devices, and accumulated over chunks of a minibatch.

Gradient accumulation: the gradients of the chunks, weighted by their valid rows, are summed before the one optimiser
step, so that a minibatch may be larger than memory has room for its activations. On a CPU, backpropagation through some
hundred rows of a small network is also much faster than through a million: what the forward pass wrote is still in the
cache when the backward pass reads it (benchmarks/NOTES.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.arrays.metrics import Summary, merge, nothing, pack
from ppax.program import sharding
from ppax.types import LossOutput, Params, PyTree


class Gradient(NamedTuple):
    """A loss's gradient as one vector, parameters in the order of `ravel_pytree`; and the loss's metrics."""

    vector: Array  # [P]
    metrics: Summary


def mean_gradient(
    loss: Callable[[Params, Any, Array], LossOutput], params: Params, data: PyTree, valid: Array, chunk_rows: int
) -> Gradient:
    """Gradient of `loss(params, data, valid)`, leaves of `data` [M, ...], accumulated over chunks of `chunk_rows` rows.

    It is the same as in one piece, but for rounding, because a loss and its metrics are means over the rows where
    `valid` [M, L] (or declared extremes): each chunk weighs as much as it has valid rows. Chunks hold whole
    sequences, at least one; the last one is padded with rows that are not valid.
    """
    all_rows = jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)
    data, valid = sharding.own((data, valid))
    sequences, length = valid.shape
    chunks, size = chunk_sizes(sequences, length, chunk_rows)

    def piece(data: PyTree, valid: Array) -> Gradient:
        gradient, metrics = jax.grad(loss, has_aux=True)(params, data, valid)
        return Gradient(ravel_pytree(gradient)[0], pack(metrics))

    def weighed(data: PyTree, valid: Array) -> Gradient:
        share = valid.sum(dtype=jnp.float32) / all_rows
        gradient, metrics = piece(data, valid)
        return Gradient(share * gradient, dataclasses.replace(metrics, means=share * metrics.means))

    if chunks == 1:
        return _over_devices(weighed(data, valid)) if sharding.num_parts() > 1 else piece(data, valid)

    def add(sums: Gradient, chunk: tuple[PyTree, Array]) -> tuple[Gradient, None]:
        gradient, metrics = weighed(*chunk)
        return Gradient(sums.vector + gradient, merge(sums.metrics, metrics)), None

    padding = chunks * size - sequences
    if padding:  # copies of the last sequence, so that extremes stay what they are
        copies = lambda x: jnp.concatenate([x, jnp.broadcast_to(x[-1:], (padding, *x.shape[1:]))])  # noqa: E731
        data, valid = jax.tree.map(copies, data), jnp.pad(valid, ((0, padding), (0, 0)))
    pieces = jax.tree.map(lambda x: x.reshape(chunks, size, *x.shape[1:]), (data, valid))
    shape = jax.eval_shape(weighed, *jax.tree.map(lambda x: x[0], pieces))
    zeros = Gradient(jnp.zeros(shape.vector.shape, shape.vector.dtype), nothing(shape.metrics))
    return _over_devices(jax.lax.scan(add, zeros, pieces)[0])


class Chunks(NamedTuple):
    """Equal pieces of a minibatch; together they may have more places than it has sequences."""

    number: int
    size: int  # in sequences


def chunk_sizes(sequences: int, seq_len: int, chunk_rows: int) -> Chunks:
    """Chunks of `sequences`, of at most `chunk_rows` rows each, and at least one sequence."""
    wanted = -(-sequences // max(1, chunk_rows // seq_len))
    # the next number that divides; where none is near, chunks would be too small to be worth it, and one is padded
    number = next((k for k in range(wanted, min(4 * wanted, sequences) + 1) if sequences % k == 0), wanted)
    size = -(-sequences // number)
    return Chunks(-(-sequences // size), size)


def _over_devices(share: Gradient) -> Gradient:
    """The sum of all devices' shares, exchanged as one array."""
    vector, metrics = share
    sums = sharding.total(jnp.concatenate([vector, metrics.means]))
    means, tops = sums[vector.shape[0] :], sharding.largest(metrics.tops)
    return Gradient(sums[: vector.shape[0]], dataclasses.replace(metrics, means=means, tops=tops))
