"""Gated recurrent unit: Cho et al. 2014, https://arxiv.org/abs/1406.1078

The reset gate is applied after the recurrent matrix product, as in cuDNN's variant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import dense
from ppax.networks.memories.gates import init_gates, previous_states, recurrent_matmul
from ppax.networks.products import factor, matmul
from ppax.types import Key, Memory, Params, PyTree, part, static


class Gates(NamedTuple):
    """Gate activations of one step, [width] each, and the state's contribution to the candidate."""

    r: Array  # reset gate
    z: Array  # update gate: 1 keeps the state, 0 replaces it
    n: Array  # candidate state
    h_n: Array  # contribution of the previous state to the candidate, before the reset gate


@part
class GRU:
    """Gated recurrent unit: one state vector with a reset gate and an update gate."""

    width: int = static("size of the GRU's hidden state", default=64, low=1)

    def init(self, key: Key, size: int) -> Params:
        """Return parameters: the gates r, z, n side by side, and a recurrent bias for n alone."""
        return init_gates(key, size, self.width, 3) | {"bias_n": jnp.zeros(self.width, jnp.float32)}

    def output_size(self, size: int) -> int:
        """Return `width`, the size of the state."""
        return self.width

    def initial_carry(self, size: int) -> Array:
        """Return the zero state [width]."""
        return jnp.zeros(self.width, jnp.float32)

    def project_in(self, params: Params, x: Array) -> Array:
        """Return the input's contribution to the gates, [3 width]."""
        return dense(params["input"], x)

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Scan one stream from gate inputs [L, 3 width] to states [L, width].

        The backward loop takes the gates as they were computed, and leaves the recurrent kernel's gradient to one
        product for all steps. `carry` receives no gradient: the state before the sequence is data.
        """
        kernel, bias = params["recurrent"], params["bias_n"]
        x = x.astype(jnp.float32)

        def step(h: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Gates]]:
            x, first = inputs
            h = jnp.where(first, 0.0, h)
            gates = compute_gates(x, matmul(h, kernel), bias)
            h = (1.0 - gates.z) * gates.n + gates.z * h
            return h, (h, gates)

        # a single step, as in acting, needs no loop
        computed = jax.lax.scan(step, carry, (x, first), unroll=first.shape[0] == 1)
        carry, (last, (h, gates)), weights = jax.lax.stop_gradient((carry, computed, factor(kernel)))
        previous = previous_states(carry, h, first)
        # zeros: only the gradients of these contributions, to `kernel` and `bias`, are used
        recurrent_out = recurrent_matmul(jnp.zeros_like(x), previous, kernel) + jnp.pad(bias, (2 * self.width, 0))[None]
        return Memory(last, _backprop_through_time(x, recurrent_out, h, gates, previous, first, weights))

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the state itself, [width]."""
        features: Array = y
        return features


def compute_gates(x: Array, recurrent_out: Array, bias: Array) -> Gates:
    """Return the gates of one step from the input's and the state's contributions, [3 width] each."""
    (x_r, x_z, x_n), (h_r, h_z, h_n) = jnp.split(x, 3), jnp.split(recurrent_out, 3)
    r, z, h_n = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z), h_n + bias
    return Gates(r, z, jnp.tanh(x_n + r * h_n), h_n)


@jax.custom_vjp
def _backprop_through_time(
    x: Array, recurrent_out: Array, h: Array, gates: Gates, previous: Array, first: Array, kernel: Array
) -> Array:
    """Return the states `h` [L, width]; their gradients become those of `x` and `recurrent_out` [L, 3 width].

    `gates` and `h` are what each step computed, `previous` [L, width] the state before it.
    """
    return h


def _backprop_forward(x: Array, recurrent_out: Array, h: Array, *computed: Any) -> tuple[Array, PyTree]:
    return h, computed


def _backprop_backward(residuals: PyTree, gradient: Array) -> tuple[Array | None, ...]:
    (r, z, n, h_n), previous, first, kernel = residuals
    transposed = kernel.T  # once, not in every step
    # derivatives of the next state with respect to the inputs of r, z and n, and to h_n
    d_n = (1.0 - z) * (1.0 - n * n)
    gate_grads = jnp.concatenate([d_n * h_n * r * (1.0 - r), (previous - n) * z * (1.0 - z), d_n * r], axis=-1)

    def step(from_later: Array, inputs: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        own, z, gate_grads, first = inputs
        total = own + from_later
        of_recurrent = jnp.concatenate([total] * 3) * gate_grads
        earlier = z * total + matmul(of_recurrent, transposed)
        return jnp.where(first, 0.0, earlier), (total, of_recurrent)

    inputs = gradient, z, gate_grads, first
    _, (total, of_recurrent) = jax.lax.scan(step, jnp.zeros_like(gradient[0]), inputs, reverse=True)
    of_x = jnp.concatenate([of_recurrent[:, : 2 * n.shape[1]], total * d_n], axis=-1)
    return of_x, of_recurrent, None, None, None, None, None


_backprop_through_time.defvjp(_backprop_forward, _backprop_backward)
