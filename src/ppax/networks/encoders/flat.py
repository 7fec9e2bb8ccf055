"""Numbers in a row: no parameters."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.types import Key, Params, PyTree, part


@part
class Flat:
    """All numbers of an array in one vector."""

    def init(self, key: Key, example: PyTree) -> Params:
        """No parameters."""
        return {}

    def __call__(self, params: Params, x: Array) -> Array:
        """[...] to [size]."""
        return jnp.ravel(x)
