"""Windows of recent steps: a memory that concatenates the steps, and the carry that it shares with attention."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, Memory, Params, PyTree, part, static
from ppax.networks.layers import ACTIVATIONS, init_layers, layers


@part
class Window:
    """Memory by concatenation: the features of the last `steps` steps, followed by dense layers.

    Frame stacking, as in Mnih et al. 2015, https://doi.org/10.1038/nature14236. Windows extend across the boundaries of
    rollouts; before an episode's start they are padded with zeros. With `network.hidden = []` the steps are raw
    observations, and policy and value are feedforward functions of them. With `entries`, only these
    entries of a Dict observation have the last `steps` steps in the window; the others have the current step alone.
    """

    steps: int = static("window length: steps concatenated, including the current one", default=4, low=1)
    hidden: tuple[int, ...] = static("widths of the dense layers over the window", default=(64,), low=1)
    activation: str = static("activation function of these layers", default="tanh", choices=tuple(ACTIVATIONS))
    entries: tuple[str, ...] = static(
        "entries of a Dict observation of which the window is, with network.hidden = []; empty: all", default=()
    )

    # places of these entries among the features, from the observation; (): all. No option of a run file ("named")
    columns: tuple[int, ...] = static(default=(), named=True)

    steps_at_once: ClassVar[bool] = True
    own_products: ClassVar[bool] = True

    def init(self, key: Key, size: int) -> Params:
        """Return new parameters of the window memory's dense layers, for features [size]."""
        return init_layers(key, self._width(size), self.hidden)

    def output_size(self, size: int) -> int:
        """Return the window memory's output size: its last dense layer's width, or the window's without layers."""
        return self.hidden[-1] if self.hidden else self._width(size)

    def initial_carry(self, size: int) -> Recent:
        """Return a window memory's empty carry, of the `steps` - 1 steps before the current one."""
        return empty_window(self.steps - 1, len(self.columns) or size)

    def project_in(self, params: Params, x: Array) -> Array:
        """Return the features `x` unchanged: a window memory stores them as they are."""
        return x

    def scan(self, params: Params, carry: PyTree, x: PyTree, first: Array) -> Memory:
        """Return a window memory's last steps as carry, and one stream's features as windows [L, n].

        A stream is one agent in one environment; `x` [L, size] are its features, so that n is `steps * size`, and less
        with `entries`. In a window the oldest step is first. `first` [L] is True where an episode begins.
        """
        past = prepend_recent(carry, x[:, self.columns] if self.columns else x, first)
        length = first.shape[0]
        current = past.episode[self.steps - 1 :]
        window = []
        for i in range(self.steps - 1):
            same = past.episode[i : i + length] == current
            window.append(jnp.where(same[:, None], past.steps[i : i + length], 0.0))
        return Memory(past.recent(self.steps - 1), jnp.concatenate([*window, x], axis=-1))

    def _width(self, size: int) -> int:
        """Return the number of elements of a window, which has `steps` steps, for features [size] of each step.

        A window has all features of the current step. Of each earlier step it has all, or with `entries` only the
        features of these entries.
        """
        return (self.steps - 1) * (len(self.columns) or size) + size

    def project_out(self, params: Params, y: PyTree) -> Array:
        """Return the output of the window memory's dense layers for one step's window."""
        return layers(params, y, self.hidden, self.activation)


class Recent(NamedTuple):
    """Carry of a window memory: the K - 1 steps before the current one, for a window of K steps."""

    steps: PyTree  # [K - 1, ...]
    real: Array  # [K - 1] False: padding, before the episode's start


class Past(NamedTuple):
    """Sequence of L steps with the K - 1 steps before it, joined along the time axis, for windows of K steps."""

    steps: PyTree  # [K - 1 + L, ...]
    episode: Array  # [K - 1 + L] episode number, counted from the sequence's start; -1: padding

    def recent(self, length: int) -> Recent:
        """Return the last `length` steps of a sequence as the window memory's carry for the next sequence."""
        start = self.episode.shape[0] - length
        return Recent(jax.tree.map(lambda x: x[start:], self.steps), self.episode[start:] == self.episode[-1])


def empty_window(length: int, size: int) -> Recent:
    """Return a window memory's carry at an episode's start: `length` padding steps of `size` numbers."""
    return Recent(jnp.zeros((length, size), jnp.float32), jnp.zeros(length, bool))


def prepend_recent(recent: Recent, x: Array, first: Array) -> Past:
    """Return the steps that a window memory carries, `recent`, joined with the sequence `x` [L, size] after them.

    `first` [L] is True where an episode begins; if that is the first step of `x`, the steps in `recent` become padding.
    """
    real = recent.real & ~first[0]
    episode = jnp.concatenate([jnp.where(real, 0, -1), jnp.cumsum(first, dtype=jnp.int32)])
    # zeros in padding: NaN there would reach the result through 0 * NaN
    return Past(jnp.concatenate([jnp.where(real[:, None], recent.steps, 0.0), x]), episode)
