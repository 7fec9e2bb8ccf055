"""Recurrences of memories: linear recurrences, in sequence or in parallel, and what gated cells (GRU, LSTM) share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Memory, Params
from ppax.devices.platforms import rules
from ppax.networks.layers import orthogonal
from ppax.networks.memories.memory import unrolled
from ppax.networks.products import matmul


def linear_recurrence(a: Array, b: Array, carry: Array, first: Array) -> Memory:
    """Return the last state and all states of the recurrence h_t = a_t h_{t-1} + b_t, for a and b [L, width].

    At the start, h_{t-1} is `carry` [width]. Wherever `first` [L] is True, h_{t-1} is 0 instead, also at the start. The
    states are computed one after the other on a CPU, in parallel on accelerators (devices/platforms.py).
    """
    a = jnp.where(first[:, None], 0.0, a)  # a reset is a step with a = 0: it costs no more than any other
    carry = jnp.where(first[0], 0.0, carry)
    return (parallel_scan if rules().parallel_scans else sequential_scan)(a, b, carry)


def sequential_scan(a: Array, b: Array, carry: Array) -> Memory:
    """Return last state and all states of h_t = a_t h_{t-1} + b_t on [L, width], from `carry`, in L steps."""

    def step(h: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        h = inputs[0] * h + inputs[1]
        return h, h

    return Memory(*jax.lax.scan(step, carry, (a, b), unroll=unrolled(a.shape[0])))


def parallel_scan(a: Array, b: Array, carry: Array) -> Memory:
    """Return last state and all states of h_t = a_t h_{t-1} + b_t on [L, width], from `carry`, by an associative scan.

    The scan takes log L rounds over all steps. It works on the numbers themselves; other scans (Heinsen 2023) work on
    logarithms, because they divide by products over whole prefixes, which may underflow. Here nothing is divided: with
    |a| <= 1 nothing overflows, and a product that underflows belongs to content that has faded to zero. Measured, the
    same scan in logarithms takes three times as long.
    """

    def join(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
        return one[0] * other[0], other[0] * one[1] + other[1]

    h = jax.lax.associative_scan(join, (a, b.at[0].add(a[0] * carry)))[1]
    return Memory(h[-1], h)


# Shared code of gated cells (GRU, LSTM): initial weights, previous states, and the recurrent matrix product.


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
    """Return `recurrent_out` [L, n] unchanged, but give `kernel` the gradient that it has in `h @ kernel`.

    `h` is [L, width] and `kernel` [width, n]. Neither `recurrent_out` nor `h` receives a gradient. It is for a caller
    that has computed the product already, or that needs only this gradient and passes zeros as `recurrent_out`: the
    product is not computed again.
    """
    return recurrent_out


@recurrent_matmul.defjvp
def _recurrent_matmul_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    recurrent_out, h, _ = primals
    return recurrent_out, matmul(h, tangents[2])
