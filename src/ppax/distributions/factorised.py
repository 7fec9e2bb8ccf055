"""Product of k independent distributions of one kind, such as the categoricals of MultiDiscrete and MultiBinary."""

from __future__ import annotations

import numpy as np
from jax import Array

from ppax.core.protocols import Distribution
from ppax.core.types import Key, part, static


@part
class Factorised:
    """Product of k independent distributions of one kind, along the last batch axis of `component` [..., k].

    The environment's action is `start + action`, in the space's shape.
    """

    component: Distribution
    start: tuple[int, ...] = static()  # first action of each of the k components
    shape: tuple[int, ...] = static()  # shape of the space; its k elements are stored flat

    def sample(self, key: Key) -> Array:
        """Return sampled actions of the k components, [..., k]."""
        return self.component.sample(key)

    def log_prob(self, action: Array) -> Array:
        """Return the joint log-probability [...] of `action` [..., k], the sum over components."""
        return self.component.log_prob(action).sum(axis=-1)

    def entropy(self) -> Array:
        """Return the joint entropy [...], the sum over components."""
        return self.component.entropy().sum(axis=-1)

    def mode(self) -> Array:
        """Return the most likely action of each component [..., k]."""
        return self.component.mode()

    def kl(self, other: Factorised) -> Array:
        """Return KL(self || other) [...], the sum over components."""
        return self.component.kl(other.component).sum(axis=-1)

    def env_action(self, action: Array) -> Array:
        """Return `action` [..., k] in the numbering (from `start`) and the shape of the action space."""
        start = np.asarray(self.start, action.dtype).reshape((1,) * (action.ndim - 1) + (-1,))
        return (action + start).reshape(*action.shape[:-1], *self.shape)

    def metrics(self) -> dict[str, Array]:
        """Return the components' diagnostics by name, [...], each as its mean over the components."""
        return {name: x.mean(axis=-1) for name, x in self.component.metrics().items()}
