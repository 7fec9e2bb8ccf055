"""Memory protocol, and the memory of a feedforward network: none."""

from __future__ import annotations

from typing import Protocol

from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part
from ppax.devices.platforms import rules


class MemoryPart(Protocol):
    """Memory of one stream, in three stages.

    Only `scan` runs over time. `project_in` and `project_out` see single steps, so their matrix products are flat
    products over all rows of a minibatch.
    """

    def init(self, key: Key, size: int) -> Params:
        """Return parameters for features [size]."""

    def output_size(self, size: int) -> int:
        """Return the length of the output of `project_out` for features [size]."""

    def initial_carry(self, size: int) -> PyTree:
        """Return the carry at an episode's start; () without memory."""

    def project_in(self, params: Params, x: Array) -> PyTree:
        """Return the input of `scan` for one step's features [size]."""

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return last carry and outputs of a sequence [L, ...]; `first` [L] resets the carry before that step."""

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return features of one step from the output of `scan`."""


@part
class NoMemory:
    """No memory: a feedforward network, in which actions depend on the current observation only."""

    def init(self, key: Key, size: int) -> Params:
        """Return no parameters."""
        return {}

    def output_size(self, size: int) -> int:
        """Return the size of the features."""
        return size

    def initial_carry(self, size: int) -> PyTree:
        """Return the empty carry ()."""
        return ()

    def project_in(self, params: Params, x: Array) -> PyTree:
        """Return the features unchanged."""
        return x

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return the features unchanged."""
        return Memory(carry, x)

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the features unchanged."""
        features: Array = y
        return features


def unrolled(length: int) -> int | bool:
    """Return `unroll` of a scan over `length` steps; a single step, as in acting, needs no loop."""
    return length == 1 or rules().unroll
