"""Long short-term memory: Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735, with a forget
gate (Gers et al. 2000)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import dense
from ppax.networks.memories.gates import init_gates
from ppax.networks.memories.time import step_by_step
from ppax.types import Key, Memory, Params, PyTree, part, static


class Cell(NamedTuple):
    """What an LSTM remembers, and what it shows."""

    c: Array  # [width]
    h: Array  # [width]


@part
class LSTM:
    """A cell that gates write to and clear, and what a gate shows of it."""

    width: int = static("size of the cell", default=64, low=1)

    def init(self, key: Key, size: int) -> Params:
        """Gates i, f, g, o side by side."""
        return init_gates(key, size, self.width, 4)

    def output_size(self, size: int) -> int:
        """The cell's."""
        return self.width

    def initial_carry(self, size: int) -> Cell:
        """Zeros."""
        return Cell(jnp.zeros(self.width), jnp.zeros(self.width))

    def before(self, params: Params, x: Array) -> Array:
        """What the observation says to the gates, [4 width]."""
        return dense(params["input"], x)

    def through(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """One stream's gates [L, 4 width] to outputs [L, width]."""
        kernel = params["recurrent"]

        def cell(cell: Cell, x: Array) -> Cell:
            told = (cell.h.astype(kernel.dtype) @ kernel).astype(jnp.float32)
            i, f, g, o = jnp.split(x.astype(jnp.float32) + told, 4)
            c = jax.nn.sigmoid(f) * cell.c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return Cell(c, jax.nn.sigmoid(o) * jnp.tanh(c))

        carry, cells = step_by_step(cell, self.initial_carry(0), carry, x, first)
        return Memory(carry, cells.h)

    def after(self, params: Params, y: PyTree) -> Array:
        """The output itself."""
        features: Array = y
        return features
