"""Gated recurrent unit: Cho et al. 2014, https://arxiv.org/abs/1406.1078

The reset gate is applied after the recurrent matrix product, as in cuDNN's variant.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import dense
from ppax.networks.memories.gates import init_gates, previous_states, recurrent_matmul
from ppax.networks.products import factor, matmul
from ppax.types import Key, Memory, Params, PyTree, part, static


class Gates(NamedTuple):
    """Gate activations of one step, [width] each."""

    r: Array  # reset gate
    z: Array  # update gate: 1 keeps the state, 0 replaces it
    n: Array  # candidate state


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

        The loops, forwards and backwards, compute only what one step needs from its neighbour. Every gradient except
        that of the state itself is computed for all steps at once; the recurrent kernel's is one product instead of a
        sum over L steps. `carry` receives no gradient: the state before the sequence is data.
        """
        kernel, bias, reset = params["recurrent"], params["bias_n"], first[:, None]
        x = x.astype(jnp.float32)

        def step(h: Array, inputs: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            x, first = inputs
            h = jnp.where(first, 0.0, h)
            recurrent_out = matmul(h, kernel)
            h = next_state(h, compute_gates(x, recurrent_out, bias))
            return h, (h, recurrent_out)

        # a single step, as in acting, needs no loop
        last, (h, recurrent_out) = jax.lax.scan(step, carry, (x, first), unroll=first.shape[0] == 1)
        previous = previous_states(carry, h, first)
        last, previous, recurrent_out = jax.lax.stop_gradient((last, previous, recurrent_out))
        recurrent_out = recurrent_matmul(recurrent_out, previous, kernel)
        gates = jax.vmap(compute_gates, (0, 0, None))(x, recurrent_out, bias)
        gate_grads = jax.vmap(_gate_grads, (0, 0, 0, None))(previous, gates, recurrent_out, bias)
        constants = jnp.where(reset, 0.0, gates.z), jnp.where(reset, 0.0, gate_grads), factor(kernel)
        return Memory(last, _backprop_through_time(next_state(previous, gates), *jax.lax.stop_gradient(constants)))

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the state itself, [width]."""
        features: Array = y
        return features


def compute_gates(x: Array, recurrent_out: Array, bias: Array) -> Gates:
    """Return the gates of one step from the input's and the state's contributions, [3 width] each."""
    (x_r, x_z, x_n), (h_r, h_z, h_n) = jnp.split(x, 3), jnp.split(recurrent_out, 3)
    r, z = jax.nn.sigmoid(x_r + h_r), jax.nn.sigmoid(x_z + h_z)
    return Gates(r, z, jnp.tanh(x_n + r * (h_n + bias)))


def next_state(previous: Array, gates: Gates) -> Array:
    """Return the state after a step: the update gate mixes previous state and candidate."""
    return (1.0 - gates.z) * gates.n + gates.z * previous


def _gate_grads(previous: Array, gates: Gates, recurrent_out: Array, bias: Array) -> Array:
    """Return the derivatives of the next state with respect to `recurrent_out`, [3 width]."""
    r, z, n = gates
    d_n = (1.0 - z) * (1.0 - n * n)
    h_n = recurrent_out[2 * bias.shape[0] :] + bias
    return jnp.concatenate([d_n * h_n * r * (1.0 - r), (previous - n) * z * (1.0 - z), d_n * r])


@jax.custom_vjp
def _backprop_through_time(h: Array, keep: Array, gate_grads: Array, kernel: Array) -> Array:
    """Return the states `h` [L, width]; the backward pass adds to each state's gradient that of all later steps.

    `keep` [L, width] is the update gate, the direct derivative by the previous state.
    """
    return h


def _backprop_forward(h: Array, keep: Array, gate_grads: Array, kernel: Array) -> tuple[Array, PyTree]:
    return h, (keep, gate_grads, kernel)


def _backprop_backward(residuals: PyTree, gradient: Array) -> tuple[Array | None, ...]:
    keep, gate_grads, kernel = residuals
    transposed = kernel.T  # once, not in every step

    def step(from_later: Array, inputs: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        own, keep, gate_grads = inputs
        total = own + from_later
        return keep * total + matmul(jnp.concatenate([total] * 3) * gate_grads, transposed), total

    _, total = jax.lax.scan(step, jnp.zeros_like(gradient[0]), (gradient, keep, gate_grads), reverse=True)
    return total, None, None, None


_backprop_through_time.defvjp(_backprop_forward, _backprop_backward)
