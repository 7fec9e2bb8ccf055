"""Several independent actions of one kind as one: MultiDiscrete and MultiBinary are categoricals side by side."""

from __future__ import annotations

import numpy as np
from jax import Array

from ppax.types import Distribution, Key, part, static


@part
class Factorised:
    """`component` with a last batch axis [..., k]; the environment receives start + action, in the space's shape."""

    component: Distribution
    start: tuple[int, ...] = static()  # k first actions
    shape: tuple[int, ...] = static()  # of the space; its k elements are stored flat

    def sample(self, key: Key) -> Array:
        """Actions [..., k]."""
        return self.component.sample(key)

    def log_prob(self, action: Array) -> Array:
        """Log-probability of all components of `action` [..., k] together, [...]."""
        return self.component.log_prob(action).sum(axis=-1)

    def entropy(self) -> Array:
        """The sum of the components' entropies [...]."""
        return self.component.entropy().sum(axis=-1)

    def mode(self) -> Array:
        """The most likely action of each component [..., k]."""
        return self.component.mode()

    def kl(self, other: Factorised) -> Array:
        """KL(self || other) [...]."""
        return self.component.kl(other.component).sum(axis=-1)

    def env_action(self, action: Array) -> Array:
        """The space's own numbers of `action`."""
        start = np.asarray(self.start, action.dtype).reshape((1,) * (action.ndim - 1) + (-1,))
        return (action + start).reshape(*action.shape[:-1], *self.shape)
