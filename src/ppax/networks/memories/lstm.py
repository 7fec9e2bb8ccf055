"""Long short-term memory: Hochreiter and Schmidhuber 1997, https://doi.org/10.1162/neco.1997.9.8.1735, with a forget
gate (Gers et al. 2000)."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import dense
from ppax.networks.memories.gates import before, init_gates, known_product
from ppax.networks.products import matmul
from ppax.types import Key, Memory, Params, PyTree, part, static


class Cell(NamedTuple):
    """What an LSTM remembers, and what it shows."""

    c: Array  # [width]
    h: Array  # [width]


class Gates(NamedTuple):
    """What one step decides, [width] each."""

    i: Array  # share of what is new that is written
    f: Array  # share of the cell that is kept
    g: Array  # what is new
    o: Array  # share of the cell that is shown


@part
class LSTM:
    """A cell that gates write to and clear, and what a gate shows of it."""

    width: int = static("size of the cell", default=64, low=1)

    def init(self, key: Key, size: int) -> Params:
        """Gates i, f, g, o side by side.

        The forget gate begins open: with biases of 0 a cell would lose half of what it holds at each step, and half of
        the seeds learned nothing that lies twenty steps back. Jozefowicz et al. 2015.
        """
        params = init_gates(key, size, self.width, 4)
        nothing = jnp.zeros(self.width, jnp.float32)
        bias = jnp.concatenate([nothing, nothing + 1.0, nothing, nothing])
        return params | {"input": params["input"] | {"bias": bias}}

    def output_size(self, size: int) -> int:
        """The cell's."""
        return self.width

    def initial_carry(self, size: int) -> Cell:
        """Zeros."""
        return Cell(jnp.zeros(self.width, jnp.float32), jnp.zeros(self.width, jnp.float32))

    def before(self, params: Params, x: Array) -> Array:
        """What the observation says to the gates, [4 width]."""
        return dense(params["input"], x)

    def through(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """One stream's gates [L, 4 width] to outputs [L, width].

        Only what one step needs of the one before is in the loops, as in the GRU's. There is no gradient for `carry`:
        what was remembered before the sequence is data.
        """
        kernel, reset = params["recurrent"], first[:, None]
        x = x.astype(jnp.float32)

        def step(cell: Cell, now: tuple[Array, Array]) -> tuple[Cell, tuple[Cell, Array]]:
            x, first = now
            cell = jax.tree.map(lambda s: jnp.where(first, 0.0, s), cell)
            told = matmul(cell.h, kernel)
            found = gates(x + told)
            c = found.f * cell.c + found.i * found.g
            cell = Cell(c, found.o * jnp.tanh(c))
            return cell, (cell, told)

        # a single step, as in acting, needs no loop
        after, (cells, told) = jax.lax.scan(step, carry, (x, first), unroll=first.shape[0] == 1)
        past = Cell(before(carry.c, cells.c, first), before(carry.h, cells.h, first))
        after, past, told = jax.lax.stop_gradient((after, past, told))
        found = jax.vmap(gates)(x + known_product(told, past.h, kernel))
        c = found.f * past.c + found.i * found.g
        slopes = jnp.where(reset, 0.0, _slopes(past.c, c, found))
        along = jax.lax.stop_gradient((jnp.where(reset, 0.0, found.f), slopes, kernel))
        return Memory(after, _through_time(c, found.o, *along))

    def after(self, params: Params, y: PyTree) -> Array:
        """The output itself."""
        features: Array = y
        return features


def gates(x: Array) -> Gates:
    """From what the observation and the memory say together, [4 width]."""
    i, f, g, o = jnp.split(x, 4)
    return Gates(jax.nn.sigmoid(i), jax.nn.sigmoid(f), jnp.tanh(g), jax.nn.sigmoid(o))


def _slopes(past: Array, c: Array, found: Gates) -> Array:
    """Derivatives by what the memory says to the gates, [L, 4 width]: of the cell by i, f, g, of the output by o."""
    i, f, g, o = found
    of_cell = [g * i * (1.0 - i), past * f * (1.0 - f), i * (1.0 - g * g)]
    return jnp.concatenate([*of_cell, jnp.tanh(c) * o * (1.0 - o)], axis=-1)


@jax.custom_vjp
def _through_time(c: Array, o: Array, kept: Array, slopes: Array, kernel: Array) -> Array:
    """Outputs [L, width], each of its own step's cell and gate; the gradients are those through all later steps too."""
    return o * jnp.tanh(c)


def _through_time_forward(c: Array, o: Array, kept: Array, slopes: Array, kernel: Array) -> tuple[Array, PyTree]:
    seen = jnp.tanh(c)
    return o * seen, (seen, o * (1.0 - seen * seen), kept, slopes, kernel)


def _through_time_backward(saved: PyTree, gradient: Array) -> tuple[Array | None, ...]:
    seen, shown, kept, slopes, kernel = saved
    back = kernel.T  # once, not in every step

    def step(later: Cell, now: tuple[Array, ...]) -> tuple[Cell, Cell]:
        own, shown, kept, slopes = now
        h = own + later.h
        c = later.c + h * shown
        return Cell(kept * c, matmul(jnp.concatenate([c, c, c, h]) * slopes, back)), Cell(c, h)

    start = Cell(jnp.zeros_like(gradient[0]), jnp.zeros_like(gradient[0]))
    _, total = jax.lax.scan(step, start, (gradient, shown, kept, slopes), reverse=True)
    return total.c, total.h * seen, None, None, None


_through_time.defvjp(_through_time_forward, _through_time_backward)
