"""No memory: features pass as they are."""

from __future__ import annotations

from jax import Array

from ppax.types import Key, Memory, Params, PyTree, part


@part
class NoMemory:
    """Feedforward: what is decided depends on the present observation alone."""

    def init(self, key: Key, size: int) -> Params:
        """No parameters."""
        return {}

    def output_size(self, size: int) -> int:
        """That of the features."""
        return size

    def initial_carry(self, size: int) -> PyTree:
        """Nothing."""
        return ()

    def before(self, params: Params, x: Array) -> PyTree:
        """The features."""
        return x

    def through(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """The features."""
        return Memory(carry, x)

    def after(self, params: Params, y: PyTree) -> Array:
        """The features."""
        features: Array = y
        return features
