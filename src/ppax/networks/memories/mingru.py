"""Minimal GRU: Feng et al. 2024, "Were RNNs all we needed?", https://arxiv.org/abs/2410.01201

Its gates see only the present input, so a sequence is one linear recurrence, which can be computed for all steps at
once. The paper does so in logarithms; `time.at_once` says why that is not needed here. A highway gate lets the input
pass beside the memory: what is remembered never hides what is seen. Gates begin with biases by which memories last
unlike long (Tallec and Ollivier 2018, https://arxiv.org/abs/1804.11188): begun at 0 all would halve at each step, and
nothing that lies twenty steps back would have a gradient.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import dense, init_dense
from ppax.networks.memories.time import linear_recurrence
from ppax.types import Key, Memory, Params, PyTree, part, static


@part
class MinGRU:
    """Memories that are running means, each step weighed by a gate of its own."""

    width: int = static("size of the memory", default=64, low=1)
    longest: int = static("before anything is learned, memories last from 1 to so many steps", default=32, low=1)

    def init(self, key: Key, size: int) -> Params:
        """One layer for gate, candidate and highway gate; where sizes differ, for what passes there too."""
        *keys, steps_key = jax.random.split(key, 5)
        parts = [init_dense(key, size, self.width, 1.0) for key in keys[: 3 + (size != self.width)]]
        # a gate of 1 / (1 + s) keeps a memory for some s steps
        steps = jax.random.uniform(steps_key, (self.width,), jnp.float32, 1.0, max(1.0, float(self.longest)))
        parts[0] = parts[0] | {"bias": parts[0]["bias"] - jnp.log(steps)}
        return {"input": jax.tree.map(lambda *x: jnp.concatenate(x, axis=-1), *parts)}

    def output_size(self, size: int) -> int:
        """The memory's."""
        return self.width

    def initial_carry(self, size: int) -> Array:
        """Zeros."""
        return jnp.zeros(self.width, jnp.float32)

    def before(self, params: Params, x: Array) -> Array:
        """Gate, candidate, highway gate and what passes there, the features themselves if they can: [4 width]."""
        gates = dense(params["input"], x)
        return gates if gates.shape[0] == 4 * self.width else jnp.concatenate([gates, x])

    def through(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """One stream's [L, 4 width] to outputs [L, width]."""
        gate, candidate, open_gate, passing = jnp.split(x.astype(jnp.float32), 4, axis=-1)
        z = jax.nn.sigmoid(gate)
        # the paper's g, appendix B: positive, and with a slope where the sigmoid would have none
        candidate = jnp.where(candidate >= 0, candidate + 0.5, jax.nn.sigmoid(candidate))
        carry, h = linear_recurrence(1.0 - z, z * candidate, carry, first)
        share = jax.nn.sigmoid(open_gate)
        return Memory(carry, share * h + (1.0 - share) * passing)

    def after(self, params: Params, y: PyTree) -> Array:
        """The output itself."""
        features: Array = y
        return features
