"""Gradient of a mean over rows, split over devices and accumulated over chunks of rows; rules that change it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.arrays.metrics import Summary, Table, merge, nothing, pack, unpack
from ppax.core.protocols import GradientRule, LossGradient
from ppax.core.types import ConfigError, LossOutput, Params, PyTree, part
from ppax.devices import sharding

__all__ = ["Plain"]


class Gradient(NamedTuple):
    """Gradient of a loss as one vector, in the order of `ravel_pytree`; and the loss's metrics, packed as a `Summary`.

    A Summary has two arrays, of means, and of maxima and negated minima. Maxima and minima are of this device's rows
    only: `update_metrics` combines them over devices, for all gradient steps of an update at once.
    """

    vector: Array  # [P]
    metrics: Summary


def mean_gradient(
    loss: Callable[[Params, Any, Array], LossOutput], params: Params, data: PyTree, valid: Array, chunk_rows: int
) -> LossGradient:
    """Return the gradient of `loss(params, data, valid)`, accumulated over chunks of about `chunk_rows` rows.

    Leaves of `data` are [m, ...], `valid` is [m, L]. Gradient accumulation: memory holds the activations of one chunk
    only, and on a CPU the activations of some hundred rows are still in the cache in the backward pass, which is much
    faster (benchmarks/NOTES.md). The result equals the gradient without chunks up to rounding: the loss and its metrics
    are means over the valid rows, so each chunk is weighted by its number of valid rows; metrics may also be declared
    as maxima or minima. A chunk holds one or more whole sequences; the last chunk is padded with invalid rows.
    """
    all_rows = jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)
    data, valid = sharding.own((data, valid))
    sequences, length = valid.shape
    chunks, size = chunk_sizes(sequences, length, chunk_rows)

    def chunk_gradient(data: PyTree, valid: Array) -> Gradient:
        gradient, metrics = jax.grad(loss, has_aux=True)(params, data, valid)
        return Gradient(ravel_pytree(gradient)[0], pack(metrics))

    def weighted_gradient(data: PyTree, valid: Array) -> Gradient:
        share = valid.sum(dtype=jnp.float32) / all_rows
        gradient, metrics = chunk_gradient(data, valid)
        return Gradient(share * gradient, dataclasses.replace(metrics, means=share * metrics.means))

    if chunks == 1:
        if sharding.num_parts() == 1:
            return _by_name(chunk_gradient(data, valid))
        return _by_name(_sum_over_devices(weighted_gradient(data, valid)))

    def add(sums: Gradient, chunk: tuple[PyTree, Array]) -> tuple[Gradient, None]:
        gradient, metrics = weighted_gradient(*chunk)
        return Gradient(sums.vector + gradient, merge(sums.metrics, metrics)), None

    padding = chunks * size - sequences
    if padding:  # repeat the last sequence, so that maxima and minima do not change
        copies = lambda x: jnp.concatenate([x, jnp.broadcast_to(x[-1:], (padding, *x.shape[1:]))])  # noqa: E731
        data, valid = jax.tree.map(copies, data), jnp.pad(valid, ((0, padding), (0, 0)))
    stacked = jax.tree.map(lambda x: x.reshape(chunks, size, *x.shape[1:]), (data, valid))
    shape = jax.eval_shape(weighted_gradient, *jax.tree.map(lambda x: x[0], stacked))
    zeros = Gradient(jnp.zeros(shape.vector.shape, shape.vector.dtype), nothing(shape.metrics))
    return _by_name(_sum_over_devices(jax.lax.scan(add, zeros, stacked)[0]))


def _by_name(gradient: Gradient) -> LossGradient:
    return LossGradient(gradient.vector, unpack(gradient.metrics))


def by_rule(rule: GradientRule, gradient_at: Callable[[Params], LossGradient], params: Params) -> LossGradient:
    """Return the gradient that `rule` makes of the loss's gradient at `params`, with the metrics of loss and rule.

    A gradient rule, such as sharpness-aware minimisation, may evaluate the loss's gradient at other parameters, too:
    `gradient_at` computes it. Raises ConfigError if the rule returns something that is no gradient of `params`, or a
    metric whose name the loss has already.
    """
    own = gradient_at(params)
    found = rule(own, gradient_at, params)
    remedy = f"agent.gradient: {type(rule).__name__} must return ppax.protocols.LossGradient(vector, metrics)"
    if not isinstance(found, LossGradient):
        raise ConfigError(f"{remedy}; it returned a {type(found).__name__}")
    shapes = {"vector": jnp.shape(found.vector)} | {name: jnp.shape(x) for name, x in found.metrics.items()}
    for name, shape in shapes.items():
        wanted = own.vector.shape if name == "vector" else ()
        if shape != wanted:
            raise ConfigError(f"{remedy}; {name!r} has shape {list(shape)} and must have {list(wanted)}")
    taken = [name for name, x in found.metrics.items() if name in own.metrics and x is not own.metrics[name]]
    if taken:
        raise ConfigError(f"{remedy}; the metric {taken[0]!r} of the loss exists already, choose another name")
    return LossGradient(found.vector, Table({}) | own.metrics | found.metrics)


class Chunks(NamedTuple):
    """Number and size of the equal chunks of a minibatch; the last chunk may need padding."""

    number: int
    size: int  # in sequences


def chunk_sizes(sequences: int, seq_len: int, chunk_rows: int) -> Chunks:
    """Return the number and size of equal chunks of `sequences`, of `seq_len` rows each.

    A chunk has at most `chunk_rows` rows, but at least one sequence.
    """
    wanted = -(-sequences // max(1, chunk_rows // seq_len))
    # the next number of chunks that divides; if none is near, chunks would be too small: pad the last one instead
    number = next((k for k in range(wanted, min(4 * wanted, sequences) + 1) if sequences % k == 0), wanted)
    size = -(-sequences // number)
    return Chunks(-(-sequences // size), size)


def _sum_over_devices(share: Gradient) -> Gradient:
    """Return the gradient and the metrics' means over the valid rows of all devices: the sum of the devices' `share`s.

    `share` has this device's gradient and means, multiplied by its fraction of the valid rows of all devices. A single
    all-reduce of one array adds up both.
    """
    vector, metrics = share
    sums = sharding.total(jnp.concatenate([vector, metrics.means]))
    return Gradient(sums[: vector.shape[0]], dataclasses.replace(metrics, means=sums[vector.shape[0] :]))


@part
class Plain:
    """Gradient rule that changes nothing: the gradient of the minibatch's loss at the current parameters."""

    def __call__(
        self, gradient: LossGradient, gradient_at: Callable[[Params], LossGradient], params: Params
    ) -> LossGradient:
        """Return `gradient` unchanged, so that this default rule adds nothing to the program."""
        return gradient
