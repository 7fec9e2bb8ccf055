"""No memory: features pass through unchanged."""

from __future__ import annotations

from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part


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
