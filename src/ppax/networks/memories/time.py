"""Memory protocol, no memory, and two ways to combine steps: linear recurrences and windows of recent steps."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part
from ppax.devices.platforms import rules


class MemoryPart(Protocol):
    """Memory of one stream, in three stages.

    Only `scan` runs over time. `project_in` and `project_out` see single steps, so their matrix products are flat
    products over all rows of a minibatch.
    """

    def init(self, key: Key, size: int) -> Params:
        """Return parameters for features [size]."""

    def output_size(self, size: int) -> int:
        """Return the length of the output of `project_out` for features [size]."""

    def initial_carry(self, size: int) -> PyTree:
        """Return the carry at an episode's start; () without memory."""

    def project_in(self, params: Params, x: Array) -> PyTree:
        """Return the input of `scan` for one step's features [size]."""

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return last carry and outputs of a sequence [L, ...]; `first` [L] resets the carry before that step."""

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return features of one step from the output of `scan`."""


def unrolled(length: int) -> int | bool:
    """Return `unroll` of a scan over `length` steps; a single step, as in acting, needs no loop."""
    return length == 1 or rules().unroll


def linear_recurrence(a: Array, b: Array, carry: Array, first: Array) -> Memory:
    """Return h_t = a_t h_{t-1} + b_t, elementwise on [L, width], with h_{t-1} = 0 where `first`.

    Sequential on a CPU, parallel on accelerators (devices/platforms.py).
    """
    a = jnp.where(first[:, None], 0.0, a)  # a reset is a step with a = 0: it costs no more than any other
    carry = jnp.where(first[0], 0.0, carry)
    return (parallel_scan if rules().parallel_scans else sequential_scan)(a, b, carry)


def sequential_scan(a: Array, b: Array, carry: Array) -> Memory:
    """Compute `linear_recurrence` without resets in L steps."""

    def step(h: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        h = inputs[0] * h + inputs[1]
        return h, h

    return Memory(*jax.lax.scan(step, carry, (a, b), unroll=unrolled(a.shape[0])))


def parallel_scan(a: Array, b: Array, carry: Array) -> Memory:
    """Compute `linear_recurrence` without resets as an associative scan, in log L rounds over all steps.

    It works on the numbers themselves, not on logarithms. With |a| <= 1 nothing overflows, and a product that
    underflows belongs to content that has faded to zero. Logarithms are for sums over whole prefixes (Heinsen 2023),
    which divide by such products. Measured, the same scan in logarithms takes three times as long.
    """

    def join(one: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[Array, Array]:
        return one[0] * other[0], other[0] * one[1] + other[1]

    h = jax.lax.associative_scan(join, (a, b.at[0].add(a[0] * carry)))[1]
    return Memory(h[-1], h)


class Recent(NamedTuple):
    """Carry of a window memory: the K - 1 steps before the current one."""

    steps: PyTree  # [K - 1, ...]
    real: Array  # [K - 1] False: padding, before the episode's start


class Past(NamedTuple):
    """Sequence with the K - 1 steps before it, joined along the time axis."""

    steps: PyTree  # [K - 1 + L, ...]
    episode: Array  # [K - 1 + L] episode number, counted from the sequence's start; -1: padding

    def recent(self, length: int) -> Recent:
        """Return the last `length` steps as the carry for the next sequence."""
        start = self.episode.shape[0] - length
        return Recent(jax.tree.map(lambda x: x[start:], self.steps), self.episode[start:] == self.episode[-1])


def empty_window(length: int, size: int) -> Recent:
    """Return the carry at an episode's start: `length` padding steps of `size` numbers."""
    return Recent(jnp.zeros((length, size), jnp.float32), jnp.zeros(length, bool))


def prepend_recent(recent: Recent, x: Array, first: Array) -> Past:
    """Join the steps of the carry and the sequence `x` [L, size]; steps of a finished episode become padding."""
    real = recent.real & ~first[0]
    episode = jnp.concatenate([jnp.where(real, 0, -1), jnp.cumsum(first, dtype=jnp.int32)])
    # zeros in padding: NaN there would reach the result through 0 * NaN
    return Past(jnp.concatenate([jnp.where(real[:, None], recent.steps, 0.0), x]), episode)


# No memory: features pass through unchanged.


@part
class NoMemory:
    """No memory: a feedforward network, in which actions depend on the current observation only."""

    def init(self, key: Key, size: int) -> Params:
        """Return no parameters."""
        return {}

    def output_size(self, size: int) -> int:
        """Return the size of the features."""
        return size

    def initial_carry(self, size: int) -> PyTree:
        """Return the empty carry ()."""
        return ()

    def project_in(self, params: Params, x: Array) -> PyTree:
        """Return the features unchanged."""
        return x

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return the features unchanged."""
        return Memory(carry, x)

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the features unchanged."""
        features: Array = y
        return features
