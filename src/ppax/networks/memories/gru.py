"""Gated recurrent unit: Cho et al. 2014, https://arxiv.org/abs/1406.1078

The reset gate is applied after the recurrent matrix product, as in cuDNN's variant.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part, static
from ppax.networks.memories.memory import unrolled
from ppax.networks.memories.recurrence import init_gates, recurrent_matmul
from ppax.networks.products import factor, matmul


class GRUGates(NamedTuple):
    """Gate activations of one step of a GRU, [width] each, and the state's contribution to the candidate state."""

    r: Array  # reset gate
    z: Array  # update gate: 1 keeps the state, 0 replaces it
    n: Array  # candidate state
    h_n: Array  # contribution of the previous state to the candidate, before the reset gate


class GRUStep(NamedTuple):
    """Values of one step of a GRU that are kept for the backward pass."""

    previous: Array  # [width] state before the step: zeros where an episode begins
    gates: GRUGates
    h: Array  # [width] state after it


@part
class GRU:
    """Memory by a gated recurrent unit: one state vector with a reset gate and an update gate."""

    width: int = static("size of the GRU's hidden state", default=64, low=1)

    own_products: ClassVar[bool] = True

    def init(self, key: Key, size: int) -> Params:
        """Return new parameters of a GRU for features [size]; matrices have the gates side by side, [..., 3 width].

        The gates are reset, update and candidate; the candidate also has a bias on the state's contribution.
        """
        return init_gates(key, size, self.width, 3) | {"bias_n": jnp.zeros(self.width, jnp.float32)}

    def output_size(self, size: int) -> int:
        """Return the length of the GRU's output, its state, which is `width`."""
        return self.width

    def initial_carry(self, size: int) -> Array:
        """Return the zero state [width] of a GRU at an episode's start."""
        return jnp.zeros(self.width, jnp.float32)

    def project_in(self, params: Params, x: Array) -> Array:
        """Return the contribution of one step's features to the GRU's gates, [3 width], without their bias."""
        return matmul(x, params["input"]["kernel"])

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return last state [width] and states [L, width] of a GRU over one stream's gate inputs [L, 3 width].

        A stream is one agent in one environment; `first` [L] resets the state before a step where it is True. For
        speed, the backward pass reuses the gates of the forward pass, and computes the recurrent kernel's gradient by
        one product for all steps. `carry`, the state before the sequence, is data and receives no gradient.
        """
        kernel, bias, bias_n = params["recurrent"], params["input"]["bias"], params["bias_n"]
        x = x.astype(jnp.float32)

        def step(h: Array, inputs: tuple[Array, Array]) -> tuple[Array, GRUStep]:
            x, first = inputs
            previous = jnp.where(first, 0.0, h)
            gates = gru_gates(x + bias, matmul(previous, kernel), bias_n)
            h = (1.0 - gates.z) * gates.n + gates.z * previous
            return h, GRUStep(previous, gates, h)

        computed = jax.lax.scan(step, carry, (x, first), unroll=unrolled(first.shape[0]))
        (last, steps), weights = jax.lax.stop_gradient((computed, factor(kernel)))
        # zeros: only the gradients of these contributions, to `kernel` and `bias_n`, are used
        recurrent_out = recurrent_matmul(jnp.zeros_like(x), steps.previous, kernel)
        recurrent_out = recurrent_out + jnp.pad(bias_n, (2 * self.width, 0))[None]
        return Memory(last, _backprop_through_time(x + bias[None], recurrent_out, steps, first, weights))

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the GRU's output for one step: its state [width], as it is."""
        features: Array = y
        return features


def gru_gates(x: Array, recurrent_out: Array, bias: Array) -> GRUGates:
    """Return the gates of one step of a GRU from the input's and the state's contributions, [3 width] each.

    `bias` [width] is added to the state's contribution to the candidate.
    """
    (x_r, x_z, x_n), (h_r, h_z, h_n) = jnp.split(x, 3), jnp.split(recurrent_out, 3)
    r, z, h_n = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z), h_n + bias
    return GRUGates(r, z, jnp.tanh(x_n + r * h_n), h_n)


@jax.custom_vjp
def _backprop_through_time(x: Array, recurrent_out: Array, steps: GRUStep, first: Array, kernel: Array) -> Array:
    """Return the GRU's states [L, width], which are in `steps`; its gradient has a backward pass written here.

    `x` and `recurrent_out` [L, 3 width] are the contributions of input and state to the gates. They are arguments only
    to receive gradients; their values are not read.
    """
    return steps.h


def _backprop_forward(
    x: Array, recurrent_out: Array, steps: GRUStep, first: Array, kernel: Array
) -> tuple[Array, PyTree]:
    return steps.h, (steps, first, kernel)


def _backprop_backward(residuals: PyTree, gradient: Array) -> tuple[Array | None, ...]:
    steps, first, kernel = residuals
    transposed = kernel.T  # once, not in every step

    def step(from_later: Array, inputs: tuple[Array, GRUStep, Array]) -> tuple[Array, tuple[Array, Array]]:
        own, (previous, (r, z, n, h_n), _), first = inputs
        h = own + from_later
        of_n = h * (1.0 - z) * (1.0 - n * n)
        of_r, of_z = of_n * h_n * r * (1.0 - r), h * (previous - n) * z * (1.0 - z)
        of_recurrent = jnp.concatenate([of_r, of_z, of_n * r])
        return jnp.where(first, 0.0, z * h + matmul(of_recurrent, transposed)), (of_n, of_recurrent)

    start = jnp.zeros_like(gradient[0])
    _, (of_n, of_recurrent) = jax.lax.scan(
        step, start, (gradient, steps, first), reverse=True, unroll=unrolled(len(first))
    )
    # r and z: same gradient for both contributions; padding, as a concatenation would change the layout under vmap
    width = of_n.shape[1]
    of_x = jnp.pad(of_recurrent[:, : 2 * width], ((0, 0), (0, width))) + jnp.pad(of_n, ((0, 0), (2 * width, 0)))
    return of_x, of_recurrent, None, None, None


_backprop_through_time.defvjp(_backprop_forward, _backprop_backward)
