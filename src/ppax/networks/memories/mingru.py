"""Minimal GRU: Feng et al. 2024, "Were RNNs all we needed?", https://arxiv.org/abs/2410.01201

Its gates depend only on the current input, so a sequence is one linear recurrence, which a parallel scan can compute.
The paper does so in logarithms; `recurrence.parallel_scan` explains why that is not needed here. A highway gate adds a
skip connection around the memory, so the current input always reaches the output. Initial gate biases spread the time
scales (chrono initialisation, Tallec and Ollivier 2018, https://arxiv.org/abs/1804.11188): with zero biases every state
would halve at each step, and inputs twenty steps back would have no gradient.
"""

from __future__ import annotations

from typing import ClassVar

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part, static
from ppax.networks.layers import dense, init_dense
from ppax.networks.memories.recurrence import linear_recurrence


@part
class MinGRU:
    """Memory by a minimal GRU: running means of candidate states, weighted by an update gate of the current input."""

    width: int = static("size of the hidden state", default=64, low=1)
    longest: int = static("initial time scales of the states: uniform from 1 to this many steps", default=32, low=1)

    steps_at_once: ClassVar[bool] = True
    own_products: ClassVar[bool] = True

    def init(self, key: Key, size: int) -> Params:
        """Return new parameters of a minimal GRU for features [size]: a dense layer for its three gate inputs.

        These are update gate, candidate and highway gate. Where `size` is not `width`, there is a dense layer for the
        skip input, too.
        """
        *keys, steps_key = jax.random.split(key, 5)
        parts = [init_dense(key, size, self.width, 1.0) for key in keys[: 3 + (size != self.width)]]
        # an update gate of 1 / (1 + s) has a time scale of about s steps
        steps = jax.random.uniform(steps_key, (self.width,), jnp.float32, 1.0, max(1.0, float(self.longest)))
        parts[0] = parts[0] | {"bias": parts[0]["bias"] - jnp.log(steps)}
        return {"input": jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), *parts)}

    def output_size(self, size: int) -> int:
        """Return the length of the minimal GRU's output, which is `width`.

        The output is a mean of state and skip input, weighted by the highway gate.
        """
        return self.width

    def initial_carry(self, size: int) -> Array:
        """Return the zero state [width] of a minimal GRU at an episode's start."""
        return jnp.zeros(self.width, jnp.float32)

    def project_in(self, params: Params, x: Array) -> dict[str, Array]:
        """Return one step's inputs of a minimal GRU: for its three gates [3 width], and the skip input [width].

        The gates are update gate, candidate and highway gate. The skip input is the features themselves where their
        size is `width`.
        """
        gates, skip = jnp.split(dense(params["input"], x), [3 * self.width])
        return {"gates": gates, "skip": skip if skip.size else x}

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return last state [width] and outputs [L, width] of a minimal GRU over one stream's inputs from `project_in`.

        A stream is one agent in one environment; `first` [L] resets the state before a step where it is True.
        """
        gate, candidate, highway = jnp.split(x["gates"].astype(jnp.float32), 3, axis=-1)
        z = jax.nn.sigmoid(gate)
        # the paper's g, appendix B: positive, and for large inputs not saturated as a sigmoid would be
        candidate = jnp.where(candidate >= 0, candidate + 0.5, jax.nn.sigmoid(candidate))
        carry, h = linear_recurrence(1.0 - z, z * candidate, carry, first)
        share = jax.nn.sigmoid(highway)
        return Memory(carry, share * h + (1.0 - share) * x["skip"].astype(jnp.float32))

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the minimal GRU's output for one step, [width], as `scan` returned it."""
        features: Array = y
        return features
