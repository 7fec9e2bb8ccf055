"""Weights of gated cells."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ppax.networks.layers import orthogonal
from ppax.types import Key, Params


def init_gates(key: Key, size: int, width: int, gates: int) -> Params:
    """Weights of `gates` gates side by side: normal over sqrt(fan in) for the input, each orthogonal for the memory."""
    input_key, recurrent_key = jax.random.split(key)
    square = jax.vmap(lambda key: orthogonal(key, width, width, 1.0))(jax.random.split(recurrent_key, gates))
    kernel = jax.random.normal(input_key, (size, gates * width)) * size**-0.5
    return {
        "input": {"kernel": kernel, "bias": jnp.zeros(gates * width)},
        "recurrent": jnp.moveaxis(square, 0, 1).reshape(width, gates * width),
    }
