"""Memories that contain another memory: stacked layers, and rematerialisation."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.parts import slot
from ppax.core.types import ConfigError, Key, Memory, Params, PyTree, part, static
from ppax.devices.layout import rounding
from ppax.networks.layers import init_norm, layer_norm
from ppax.networks.memories.gru import GRU
from ppax.networks.memories.memory import MemoryPart
from ppax.networks.memories.window import Window


@part
class Stack:
    """Memory of several layers of one kind of memory on top of each other; each has its own parameters and state.

    Residual connections (He et al. 2016, https://arxiv.org/abs/1512.03385) and a layer norm before each layer, as in
    transformers (Xiong et al. 2020, https://arxiv.org/abs/2002.04745), are options.
    """

    cell: MemoryPart = slot("memory", "memory of each layer", default=GRU(), first={"gru": GRU})
    num_layers: int = static("layers of the stack", default=2, low=1)
    residual: bool = static("add the input of each layer to its output, where both have the same size", default=False)
    norm: bool = static("layer norm before each layer", default=False)

    def init(self, key: Key, size: int) -> Params:
        """Return new parameters of each layer of the stack, by name "0", "1", ..., for features [size].

        Raises ConfigError if `cell` carries nothing from step to step, as the memory `none` does, or if it is a
        `Window` without hidden layers, of which a stack is one longer window.
        """
        sizes = self._sizes(size)
        if not jax.tree.leaves(self.cell.initial_carry(size)):
            raise ConfigError(
                f"network.memory.cell = {self.cell!r}: it carries nothing from step to step, so there is nothing to "
                "stack; nearest valid value: gru"
            )
        if isinstance(self.cell, Window) and not self.cell.hidden:
            raise ConfigError(
                "network.memory.cell.hidden = []: windows without layers, on top of each other, are one longer window; "
                f'write part = "window", steps = {self.num_layers * (self.cell.steps - 1) + 1}'
            )
        keys = jax.random.split(key, self.num_layers)
        norms = [{"norm": init_norm(one)} if self.norm else {} for one in sizes]
        return {str(i): {"cell": self.cell.init(keys[i], one)} | norms[i] for i, one in enumerate(sizes)}

    def output_size(self, size: int) -> int:
        """Return the length of the output of the stack's last layer, for features [size]."""
        return self.cell.output_size(self._sizes(size)[-1])

    def initial_carry(self, size: int) -> tuple[PyTree, ...]:
        """Return the recurrent state of each layer of the stack at an episode's start, first layer first."""
        return tuple(map(self.cell.initial_carry, self._sizes(size)))

    def project_in(self, params: Params, x: Array) -> dict[str, PyTree]:
        """Return the input of the scan of the stack's first layer, for one step's features [size]."""
        return self._enter(params["0"], x)

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return last recurrent states and outputs of a stack of memories over one stream's sequence [L, ...].

        A stream is one agent in one environment. Layers are scanned one after the other; `first` [L] resets every layer
        before a step where it is True.
        """
        carries = []
        for i in range(self.num_layers):
            if i > 0:
                features = jax.vmap(self._leave, (None, 0))(params[str(i - 1)], x)
                x = jax.vmap(self._enter, (None, 0))(params[str(i)], features)
            memory = self.cell.scan(params[str(i)]["cell"], carry[i], x["cell"], first)
            carries.append(memory.carry)
            x = x | {"cell": memory.features}
        return Memory(tuple(carries), x)

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the output of the stack's last layer for one step."""
        return self._leave(params[str(self.num_layers - 1)], y)

    def _sizes(self, size: int) -> list[int]:
        """Return the length of the input of each layer of the stack, first layer first."""
        sizes = [size]
        for _ in range(self.num_layers - 1):
            sizes.append(self.cell.output_size(sizes[-1]))
        return sizes

    def _enter(self, params: Params, x: Array) -> dict[str, PyTree]:
        """Return the input of the scan of one layer of the stack, from one step's output of the layer below.

        With `residual`, this input also has the output of the layer below, which `_leave` adds.
        """
        inner = layer_norm(params["norm"], x) if self.norm else x
        return {"cell": self.cell.project_in(params["cell"], inner)} | ({"x": x} if self.residual else {})

    def _leave(self, params: Params, y: dict[str, PyTree]) -> Array:
        """Return the output of one layer of the stack for one step, from the output of the layer's scan."""
        out = self.cell.project_out(params["cell"], y["cell"])
        return out + y["x"] if self.residual and y["x"].shape == out.shape else out


@part
class Remat:
    """Memory that saves space: the inside of another memory's scan is computed again in the backward pass, not stored.

    Chen et al. 2016, https://arxiv.org/abs/1604.06174. Results are those of `memory`. `jax.checkpoint` has no effect on
    a CPU: XLA drops its barriers there and merges the second computation with the first (measured with JAX 0.10). It
    does not merge what is inside a conditional; the second computation is therefore in one, whose condition (a weight
    is not NaN) holds wherever gradients are finite.
    """

    memory: MemoryPart

    def init(self, key: Key, size: int) -> Params:
        """Return new parameters of the inner memory, whose scan is rematerialised."""
        return self.memory.init(key, size)

    def output_size(self, size: int) -> int:
        """Return the output size of the inner memory, whose scan is rematerialised."""
        return self.memory.output_size(size)

    def initial_carry(self, size: int) -> PyTree:
        """Return the recurrent state, at an episode's start, of the inner memory, whose scan is rematerialised."""
        return self.memory.initial_carry(size)

    def project_in(self, params: Params, x: Array) -> PyTree:
        """Return what the scan of the inner memory (which is rematerialised) reads of one step's features."""
        return self.memory.project_in(params, x)

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return what the inner memory's scan returns for a sequence [L, ...], recomputed in the backward pass.

        The sequence is of one stream (one agent in one environment). `carry`, the state before it, is data and receives
        no gradient.
        """
        # acting, or a window of the features alone: nothing to recompute
        if first.shape[0] == 1 or not jax.tree.leaves(params):
            return self.memory.scan(params, carry, x, first)
        scan = _recomputed(self.memory.scan, rounding.value)
        out: Memory = scan(params, carry, x, first)
        return out

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the output vector of the inner memory, whose scan is rematerialised, for one step."""
        return self.memory.project_out(params, y)


def _recomputed(scan: Any, rounded: bool) -> Any:
    """Return a memory's `scan` with a backward pass that calls `scan` again instead of storing its inside.

    `rounded` says whether matrix products round their factors to bfloat16, in the backward pass as in the forward pass.
    """

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
    """Return `memory` with a scan that the backward pass computes again; a Stack with such scans of its layers."""
    if isinstance(memory, Stack):
        return dataclasses.replace(memory, cell=Remat(memory.cell))
    return Remat(memory)
