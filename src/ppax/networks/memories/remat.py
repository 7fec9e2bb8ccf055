"""Rematerialisation: the backward pass computes the inside of a scan again instead of keeping it in memory.

Chen et al. 2016, https://arxiv.org/abs/1604.06174. `jax.checkpoint` has no effect on a CPU: XLA drops its barriers
there and merges the second computation with the first (measured with JAX 0.10). Inside a conditional it does not, so
the second computation is in one. Its condition, that a weight is not NaN, holds wherever gradients are finite.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part
from ppax.devices.layout import rounding
from ppax.networks.memories.stack import Stack
from ppax.networks.memories.time import MemoryPart


@part
class Remat:
    """Memory whose scan keeps its inputs only, for the backward pass; its results are those of `memory`."""

    memory: MemoryPart

    def init(self, key: Key, size: int) -> Params:
        """Return the memory's parameters."""
        return self.memory.init(key, size)

    def output_size(self, size: int) -> int:
        """Return the memory's output size."""
        return self.memory.output_size(size)

    def initial_carry(self, size: int) -> PyTree:
        """Return the memory's initial carry."""
        return self.memory.initial_carry(size)

    def project_in(self, params: Params, x: Array) -> PyTree:
        """Return the memory's input of `scan`."""
        return self.memory.project_in(params, x)

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Scan a sequence as the memory does. `carry` receives no gradient: the state before the sequence is data."""
        # acting, or a window of the features alone: nothing to recompute
        if first.shape[0] == 1 or not jax.tree.leaves(params):
            return self.memory.scan(params, carry, x, first)
        scan = _recomputed(self.memory.scan, rounding.value)
        out: Memory = scan(params, carry, x, first)
        return out

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the memory's features of one step."""
        return self.memory.project_out(params, y)


def _recomputed(scan: Any, rounded: bool) -> Any:
    """Return `scan` with a backward pass that calls it again, with products `rounded` as in the forward pass."""

    def forward(*inputs: Any) -> tuple[Memory, Any]:
        return scan(*inputs), inputs

    def backward(inputs: Any, gradient: Memory) -> tuple[Any, ...]:
        params, carry, x, first = inputs

        def again(params: Params, x: PyTree) -> Any:
            with rounding(rounded):  # the backward pass is traced outside of the forward pass's context
                _, pull_back = jax.vjp(lambda params, x: scan(params, carry, x, first).features, params, x)
                return pull_back(gradient.features)

        def not_a_number(*like: PyTree) -> Any:
            return jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), like)

        weight = jax.tree.leaves(params)[0].ravel()[0]
        of_params, of_x = jax.lax.cond(weight == weight, again, not_a_number, params, x)
        return of_params, None, of_x, None

    recomputed = jax.custom_vjp(lambda *inputs: scan(*inputs))
    recomputed.defvjp(forward, backward)
    return recomputed


def rematerialised(memory: MemoryPart) -> MemoryPart:
    """Return `memory` with a scan that is recomputed; of a stack, layer by layer."""
    if isinstance(memory, Stack):
        return dataclasses.replace(memory, cell=Remat(memory.cell))
    return Remat(memory)
