"""Protocol of memories, and the memory of a feedforward network: none."""

from __future__ import annotations

from typing import ClassVar, Protocol

from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part
from ppax.devices.platforms import rules


class MemoryPart(Protocol):
    """Protocol of a network's memory, such as a GRU: three stages, `project_in`, `scan` and `project_out`.

    Methods see one stream (one agent in one environment), without a batch axis. Only `scan` runs over time; the other
    two see single steps, so that their matrix products are flat products over all rows of a minibatch.

    Two class attributes say how a memory is computed; a memory without them counts as False: `steps_at_once`, no matrix
    product inside a loop over steps (smaller chunks of rows are then faster, `Program.rows`); and `own_products`, all
    matrix products by networks/products.py, so that they can be rounded to bfloat16.
    """

    def init(self, key: Key, size: int) -> Params:
        """Return new parameters of the memory for features [size]."""

    def output_size(self, size: int) -> int:
        """Return the length of the memory's output (that of `project_out`) for features [size]."""

    def initial_carry(self, size: int) -> PyTree:
        """Return the memory's recurrent state (carry) at an episode's start, for features [size]; () if it has none."""

    def project_in(self, params: Params, x: Array) -> PyTree:
        """Return what the memory's `scan` reads of one step, from the step's features [size]."""

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return the memory's recurrent state after a sequence [L, ...] of one stream, and its outputs for each step.

        A stream is one agent in one environment; `x` is what `project_in` returns for each step. `carry` is the
        recurrent state before the sequence; `first` [L] resets it before a step where it is True.
        """

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the memory's output vector for one step, from what `scan` returns for this step."""


@part
class NoMemory:
    """Memory of a feedforward network: none, so that actions depend on the current observation only."""

    own_products: ClassVar[bool] = True

    def init(self, key: Key, size: int) -> Params:
        """Return {}, as a feedforward network has no parameters of a memory."""
        return {}

    def output_size(self, size: int) -> int:
        """Return `size`: without memory, the output is the features."""
        return size

    def initial_carry(self, size: int) -> PyTree:
        """Return (), as a feedforward network carries no state from step to step."""
        return ()

    def project_in(self, params: Params, x: Array) -> PyTree:
        """Return the features `x` unchanged: there is no memory."""
        return x

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return an empty recurrent state () and the features unchanged: there is no memory."""
        return Memory(carry, x)

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the features `y` unchanged: there is no memory."""
        features: Array = y
        return features


def unrolled(length: int) -> int | bool:
    """Return the argument `unroll` for a `jax.lax.scan` over `length` steps of a memory.

    A single step, as in acting, is always unrolled; for longer sequences devices/platforms.py has the number that is
    fastest on the device.
    """
    return length == 1 or rules().unroll
