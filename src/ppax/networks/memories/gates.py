"""Shared code of gated cells (GRU, LSTM): initial weights, previous states, and the recurrent matrix product."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Params
from ppax.networks.layers import orthogonal
from ppax.networks.products import matmul


def init_gates(key: Key, size: int, width: int, gates: int) -> Params:
    """Return new weights of `gates` gates side by side, for inputs [size] and states [width].

    Input kernels are normal with standard deviation 1 / sqrt(fan-in), biases zero; each gate's recurrent kernel is
    orthogonal.
    """
    input_key, recurrent_key = jax.random.split(key)
    square = jax.vmap(lambda key: orthogonal(key, width, width, 1.0))(jax.random.split(recurrent_key, gates))
    kernel = jax.random.normal(input_key, (size, gates * width), jnp.float32) * size**-0.5
    return {
        "input": {"kernel": kernel, "bias": jnp.zeros(gates * width, jnp.float32)},
        "recurrent": jnp.moveaxis(square, 0, 1).reshape(width, gates * width),
    }


# Forward-mode rule, which JAX transposes by itself: under vmap the kernel's gradient is one product for all streams
@jax.custom_jvp
def recurrent_matmul(recurrent_out: Array, h: Array, kernel: Array) -> Array:
    """Return `recurrent_out`, the precomputed `h @ kernel`, differentiable with respect to the kernel only."""
    return recurrent_out


@recurrent_matmul.defjvp
def _recurrent_matmul_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    recurrent_out, h, _ = primals
    return recurrent_out, matmul(h, tangents[2])
