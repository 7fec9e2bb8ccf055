"""Gated recurrent unit: Cho et al. 2014, https://arxiv.org/abs/1406.1078, with the reset gate behind the product."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import dense
from ppax.networks.memories.gates import before, init_gates, known_product
from ppax.networks.products import matmul
from ppax.types import Key, Memory, Params, PyTree, part, static


class Gates(NamedTuple):
    """What one step decides, [width] each."""

    r: Array  # share of the memory's word that is heard
    z: Array  # share of the memory that is kept
    n: Array  # what is new


@part
class GRU:
    """One vector of memory, which gates keep, mix and renew."""

    width: int = static("size of the memory", default=64, low=1)

    def init(self, key: Key, size: int) -> Params:
        """Gates r, z, n side by side; only n has a bias of its own on the memory's side."""
        return init_gates(key, size, self.width, 3) | {"bias_n": jnp.zeros(self.width, jnp.float32)}

    def output_size(self, size: int) -> int:
        """The memory's."""
        return self.width

    def initial_carry(self, size: int) -> Array:
        """Zeros."""
        return jnp.zeros(self.width, jnp.float32)

    def before(self, params: Params, x: Array) -> Array:
        """What the observation says to the gates, [3 width]."""
        return dense(params["input"], x)

    def through(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """One stream's gates [L, 3 width] to memories [L, width].

        Only what one step needs of the one before is in the loops, forwards and backwards: every gradient but that of
        the memory itself is of all steps at once, and the recurrent matrix's is one product instead of a sum of L.
        There is no gradient for `carry`: what was remembered before the sequence is data.
        """
        kernel, bias, reset = params["recurrent"], params["bias_n"], first[:, None]
        x = x.astype(jnp.float32)

        def step(h: Array, now: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            x, first = now
            h = jnp.where(first, 0.0, h)
            told = matmul(h, kernel)
            h = renewed(h, gates(x, told, bias))
            return h, (h, told)

        # a single step, as in acting, needs no loop
        after, (h, told) = jax.lax.scan(step, carry, (x, first), unroll=first.shape[0] == 1)
        past = before(carry, h, first)
        after, past, told = jax.lax.stop_gradient((after, past, told))
        told = known_product(told, past, kernel)
        found = jax.vmap(gates, (0, 0, None))(x, told, bias)
        slopes = jax.vmap(_slopes, (0, 0, 0, None))(past, found, told, bias)
        along = jax.lax.stop_gradient((jnp.where(reset, 0.0, found.z), jnp.where(reset, 0.0, slopes), kernel))
        return Memory(after, _through_time(renewed(past, found), *along))

    def after(self, params: Params, y: PyTree) -> Array:
        """The memory itself."""
        features: Array = y
        return features


def gates(x: Array, told: Array, bias: Array) -> Gates:
    """From what the observation and the memory say, [3 width] each."""
    (x_r, x_z, x_n), (told_r, told_z, told_n) = jnp.split(x, 3), jnp.split(told, 3)
    r, z = jax.nn.sigmoid(x_r + told_r), jax.nn.sigmoid(x_z + told_z)
    return Gates(r, z, jnp.tanh(x_n + r * (told_n + bias)))


def renewed(past: Array, found: Gates) -> Array:
    """The memory after a step."""
    return (1.0 - found.z) * found.n + found.z * past


def _slopes(past: Array, found: Gates, told: Array, bias: Array) -> Array:
    """Derivatives of the memory after a step by what the memory before says to the gates, [3 width]."""
    r, z, n = found
    new = (1.0 - z) * (1.0 - n * n)
    heard = told[2 * bias.shape[0] :] + bias
    return jnp.concatenate([new * heard * r * (1.0 - r), (past - n) * z * (1.0 - z), new * r])


@jax.custom_vjp
def _through_time(h: Array, kept: Array, slopes: Array, kernel: Array) -> Array:
    """`h` [L, width], each as a function of its own step; its gradient is that through all later steps too."""
    return h


def _through_time_forward(h: Array, kept: Array, slopes: Array, kernel: Array) -> tuple[Array, PyTree]:
    return h, (kept, slopes, kernel)


def _through_time_backward(saved: PyTree, gradient: Array) -> tuple[Array | None, ...]:
    kept, slopes, kernel = saved
    back = kernel.T  # once, not in every step

    def step(later: Array, now: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        own, kept, slopes = now
        total = own + later
        return kept * total + matmul(jnp.concatenate([total] * 3) * slopes, back), total

    _, total = jax.lax.scan(step, jnp.zeros_like(gradient[0]), (gradient, kept, slopes), reverse=True)
    return total, None, None, None


_through_time.defvjp(_through_time_forward, _through_time_backward)
