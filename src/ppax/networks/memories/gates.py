"""Of gated cells: their weights, and their product of a memory and a matrix, whose gradient is of all steps at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import orthogonal
from ppax.networks.products import matmul
from ppax.types import Key, Params


def init_gates(key: Key, size: int, width: int, gates: int) -> Params:
    """Weights of `gates` gates side by side: normal over sqrt(fan in) for the input, each orthogonal for the memory."""
    input_key, recurrent_key = jax.random.split(key)
    square = jax.vmap(lambda key: orthogonal(key, width, width, 1.0))(jax.random.split(recurrent_key, gates))
    kernel = jax.random.normal(input_key, (size, gates * width), jnp.float32) * size**-0.5
    return {
        "input": {"kernel": kernel, "bias": jnp.zeros(gates * width, jnp.float32)},
        "recurrent": jnp.moveaxis(square, 0, 1).reshape(width, gates * width),
    }


# A rule for derivatives forwards, so that JAX itself turns it around: under vmap that gives one product for all streams
@jax.custom_jvp
def known_product(told: Array, h: Array, kernel: Array) -> Array:
    """`told`, which is `h @ kernel`; differentiable in the kernel alone."""
    return told


@known_product.defjvp
def _known_product_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    told, h, _ = primals
    return told, matmul(h, tangents[2])


def before(carry: Array, after: Array, first: Array) -> Array:
    """What was remembered before each step, [L, width], from what was after it: nothing where `first`."""
    return jnp.where(first[:, None], 0.0, jnp.concatenate([carry[None], after[:-1]]))
