"""The gradient of a mean over many rows: split over devices, and summed over chunks that fit a processor's cache.

On a CPU, backpropagation through some hundred rows of a small network is much faster than through a million: what the
forward pass wrote is still in the cache when the backward pass reads it (benchmarks/NOTES.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax import parallel
from ppax.metrics import Summary, merge, nothing, pack
from ppax.types import LossOutput, Params, PyTree


class Gradient(NamedTuple):
    """A loss's gradient as one vector, parameters in the order of `ravel_pytree`; and the loss's metrics."""

    vector: Array  # [P]
    metrics: Summary


def mean_gradient(
    loss: Callable[[Params, Any], LossOutput], params: Params, data: PyTree, valid: Array, chunk_rows: int
) -> Gradient:
    """Gradient of `loss(params, data)`, leaves of `data` [M, ...], in pieces of about `chunk_rows` rows.

    It is the same as in one piece, but for rounding, because a loss and its metrics are means over the rows where
    `valid` [M, L] (or declared extremes): each piece weighs as much as it has valid rows.
    """
    all_rows = jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)
    data, valid = parallel.own((data, valid))
    sequences, length = valid.shape
    chunks = chunk_count(sequences, length, chunk_rows)

    def piece(data: PyTree) -> Gradient:
        gradient, metrics = jax.grad(loss, has_aux=True)(params, data)
        return Gradient(ravel_pytree(gradient)[0], pack(metrics))

    def weighed(data: PyTree, valid: Array) -> Gradient:
        share = valid.sum(dtype=jnp.float32) / all_rows
        gradient, metrics = piece(data)
        return Gradient(share * gradient, dataclasses.replace(metrics, means=share * metrics.means))

    if chunks == 1:
        return _over_devices(weighed(data, valid)) if parallel.num_parts() > 1 else piece(data)

    def add(sums: Gradient, chunk: tuple[PyTree, Array]) -> tuple[Gradient, None]:
        gradient, metrics = weighed(*chunk)
        return Gradient(sums.vector + gradient, merge(sums.metrics, metrics)), None

    pieces = jax.tree.map(lambda x: x.reshape(chunks, -1, *x.shape[1:]), (data, valid))
    shape = jax.eval_shape(weighed, *jax.tree.map(lambda x: x[0], pieces))
    zeros = Gradient(jnp.zeros(shape.vector.shape, shape.vector.dtype), nothing(shape.metrics))
    return _over_devices(jax.lax.scan(add, zeros, pieces)[0])


def chunk_count(sequences: int, seq_len: int, chunk_rows: int) -> int:
    """In how many equal pieces to take `sequences`, for pieces of at most about `chunk_rows` rows."""
    wanted = -(-sequences * seq_len // chunk_rows)
    # the next number that divides; where none is near, pieces would be too small to be worth it
    return next((k for k in range(wanted, min(4 * wanted, sequences) + 1) if sequences % k == 0), 1)


def _over_devices(share: Gradient) -> Gradient:
    """The sum of all devices' shares, exchanged as one array."""
    vector, metrics = share
    sums = parallel.total(jnp.concatenate([vector, metrics.means]))
    means, tops = sums[vector.shape[0] :], parallel.largest(metrics.tops)
    return Gradient(sums[: vector.shape[0]], dataclasses.replace(metrics, means=means, tops=tops))
