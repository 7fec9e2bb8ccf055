"""The last few steps side by side: frame stacking, as in Mnih et al. 2015, https://doi.org/10.1038/nature14236

The past is the stream's own, over the ends of rollouts too; only before an episode's start there are zeros. With
`network.hidden = []` the steps are raw observations and what is decided is a feedforward function of them.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.networks.layers import ACTIVATIONS, init_layers, layers
from ppax.networks.memories.time import Recent, nothing_yet, with_past
from ppax.types import Key, Memory, Params, PyTree, part, static


@part
class Window:
    """The features of the last `steps` steps, and dense layers over them."""

    steps: int = static("steps that are seen together, the present one too", default=4, low=1)
    hidden: tuple[int, ...] = static("widths of the dense layers over them", default=(64,), low=1)
    activation: str = static("after each of these layers", default="tanh", choices=tuple(ACTIVATIONS))

    def init(self, key: Key, size: int) -> Params:
        """Dense layers."""
        return init_layers(key, self.steps * size, self.hidden)

    def output_size(self, size: int) -> int:
        """The last layer's; without layers that of all steps."""
        return self.hidden[-1] if self.hidden else self.steps * size

    def initial_carry(self, size: int) -> Recent:
        """No step yet."""
        return nothing_yet(self.steps - 1, size)

    def before(self, params: Params, x: Array) -> Array:
        """The features."""
        return x

    def through(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """One stream's features [L, size] to windows [L, steps * size], the oldest step first."""
        past = with_past(carry, x, first)
        length = first.shape[0]
        now = past.episode[self.steps - 1 :]
        seen = []
        for i in range(self.steps):
            same = past.episode[i : i + length] == now
            seen.append(jnp.where(same[:, None], past.steps[i : i + length], 0.0))
        return Memory(past.recent(self.steps - 1), jnp.concatenate(seen, axis=-1))

    def after(self, params: Params, y: PyTree) -> Array:
        """The dense layers."""
        return layers(params, y, self.hidden, self.activation)
