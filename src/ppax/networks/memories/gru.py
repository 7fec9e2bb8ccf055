"""Gated recurrent unit: Cho et al. 2014, https://arxiv.org/abs/1406.1078, with the reset gate behind the product."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import dense
from ppax.networks.memories.gates import init_gates
from ppax.networks.memories.time import step_by_step
from ppax.types import Key, Memory, Params, PyTree, part, static


@part
class GRU:
    """One vector of memory, which gates keep, mix and renew."""

    width: int = static("size of the memory", default=64, low=1)

    def init(self, key: Key, size: int) -> Params:
        """Gates r, z, n side by side; only n has a bias of its own on the memory's side."""
        return init_gates(key, size, self.width, 3) | {"bias_n": jnp.zeros(self.width)}

    def output_size(self, size: int) -> int:
        """The memory's."""
        return self.width

    def initial_carry(self, size: int) -> Array:
        """Zeros."""
        return jnp.zeros(self.width)

    def before(self, params: Params, x: Array) -> Array:
        """What the observation says to the gates, [3 width]."""
        return dense(params["input"], x)

    def through(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """One stream's gates [L, 3 width] to memories [L, width]."""
        kernel = params["recurrent"]

        def cell(h: Array, x: Array) -> Array:
            told = (h.astype(kernel.dtype) @ kernel).astype(jnp.float32)
            x = x.astype(jnp.float32)
            r, z = jnp.split(jax.nn.sigmoid(x[: 2 * self.width] + told[: 2 * self.width]), 2)
            n = jnp.tanh(x[2 * self.width :] + r * (told[2 * self.width :] + params["bias_n"]))
            return (1.0 - z) * n + z * h

        return step_by_step(cell, self.initial_carry(0), carry, x, first)

    def after(self, params: Params, y: PyTree) -> Array:
        """The memory itself."""
        features: Array = y
        return features
