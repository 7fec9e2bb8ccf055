"""Flattening, without parameters."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Params, PyTree, part


@part
class Flat:
    """Flatten an array to a vector."""

    def init(self, key: Key, example: PyTree) -> Params:
        """Return no parameters."""
        return {}

    def __call__(self, params: Params, x: Array) -> Array:
        """Return `x` [...] as a vector [size]."""
        return jnp.ravel(x)
