"""The gradient of a mean over many rows, summed over chunks whose activations fit a processor's cache.

On a CPU, backpropagation through 8192 rows of a small network is nearly twice as fast as through a million: what the
forward pass wrote is still in the cache when the backward pass reads it (benchmarks/NOTES.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.metrics import merge_metric, neutral_metric, reduction
from ppax.types import LossOutput, Metrics, Params, PyTree

CHUNK_ROWS = 8192


class Gradient(NamedTuple):
    """A loss's gradient, and its metrics."""

    params: Params
    metrics: Metrics


def mean_gradient(
    loss: Callable[[Params, Any], LossOutput], params: Params, data: PyTree, valid: Array, chunks: int
) -> Gradient:
    """Gradient of `loss(params, data)`, leaves of `data` [M, ...], in `chunks` equal pieces of M.

    It is the same as in one piece, but for rounding, because a loss and its metrics are means over the rows where
    `valid` [M, L] (or extremes, `metrics.reduction`): each piece weighs as much as it has valid rows.
    """
    value_and_gradient = jax.grad(loss, has_aux=True)
    if chunks == 1:
        return Gradient(*value_and_gradient(params, data))
    pieces, counts = jax.tree.map(lambda x: x.reshape(chunks, -1, *x.shape[1:]), (data, valid))
    counts = counts.sum(axis=(1, 2), dtype=jnp.float32)
    shares = counts / jnp.maximum(counts.sum(), 1.0)

    def add(total: Gradient, piece: tuple[PyTree, Array]) -> tuple[Gradient, None]:
        data, share = piece
        gradient, metrics = value_and_gradient(params, data)
        summed = jax.tree.map(lambda t, g: t + share * g, total.params, gradient)
        weighted = {name: share * x if reduction(name) == "mean" else x for name, x in metrics.items()}
        merged = {name: merge_metric(name, total.metrics[name], x) for name, x in weighted.items()}
        return Gradient(summed, merged), None

    shapes = jax.eval_shape(value_and_gradient, params, jax.tree.map(lambda x: x[0], pieces))[1]
    none = {name: jnp.full(x.shape, neutral_metric(name), x.dtype) for name, x in shapes.items()}
    zeros = jax.tree.map(jnp.zeros_like, params)
    return jax.lax.scan(add, Gradient(zeros, none), (pieces, shares))[0]


def chunk_count(sequences: int, seq_len: int) -> int:
    """In how many pieces to take a minibatch: one on an accelerator, on a CPU as many as keep it in the cache."""
    wanted = -(-sequences * seq_len // CHUNK_ROWS)
    if jax.default_backend() != "cpu" or wanted == 1:
        return 1
    # the next number that divides; where none is near, pieces would be too small to be worth it
    return next((k for k in range(wanted, min(4 * wanted, sequences) + 1) if sequences % k == 0), 1)
