"""Window of recent steps, concatenated: frame stacking, as in Mnih et al. 2015, https://doi.org/10.1038/nature14236

Windows extend across the boundaries of rollouts; before an episode's start they are padded with zeros. With
`network.hidden = []` the steps are raw observations, and policy and value are feedforward functions of them.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part, static
from ppax.networks.layers import ACTIVATIONS, init_layers, layers
from ppax.networks.memories.time import Recent, empty_window, prepend_recent


@part
class Window:
    """Concatenated features of the last `steps` steps, followed by dense layers."""

    steps: int = static("window length: steps concatenated, including the current one", default=4, low=1)
    hidden: tuple[int, ...] = static("widths of the dense layers over the window", default=(64,), low=1)
    activation: str = static("activation function of these layers", default="tanh", choices=tuple(ACTIVATIONS))

    def init(self, key: Key, size: int) -> Params:
        """Return parameters of the dense layers."""
        return init_layers(key, self.steps * size, self.hidden)

    def output_size(self, size: int) -> int:
        """Return the last layer's width; without layers, `steps * size`."""
        return self.hidden[-1] if self.hidden else self.steps * size

    def initial_carry(self, size: int) -> Recent:
        """Return an empty window."""
        return empty_window(self.steps - 1, size)

    def project_in(self, params: Params, x: Array) -> Array:
        """Return the features unchanged."""
        return x

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Gather one stream's features [L, size] into windows [L, steps * size], the oldest step first."""
        past = prepend_recent(carry, x, first)
        length = first.shape[0]
        current = past.episode[self.steps - 1 :]
        window = []
        for i in range(self.steps):
            same = past.episode[i : i + length] == current
            window.append(jnp.where(same[:, None], past.steps[i : i + length], 0.0))
        return Memory(past.recent(self.steps - 1), jnp.concatenate(window, axis=-1))

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the dense layers' output for one window."""
        return layers(params, y, self.hidden, self.activation)
