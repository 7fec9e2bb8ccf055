"""Joint distributions of independent components: of one kind (MultiDiscrete), or the entries of a Dict or Tuple."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.protocols import Distribution
from ppax.core.types import Key, PyTree, part, static

# Product of k independent distributions of one kind, such as the categoricals of MultiDiscrete and MultiBinary.


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
        """Return the joint log-probability [...] of `action` [..., k], the sum over the k components."""
        return self.component.log_prob(action).sum(axis=-1)

    def entropy(self) -> Array:
        """Return the joint entropy [...] of k independent components of one kind, the sum over components."""
        return self.component.entropy().sum(axis=-1)

    def mode(self) -> Array:
        """Return the most likely action of each of the k components, [..., k]."""
        return self.component.mode()

    def kl(self, other: Factorised) -> Array:
        """Return KL(self || other) [...] of two products of k components, the sum over components."""
        return self.component.kl(other.component).sum(axis=-1)

    def env_action(self, action: Array) -> Array:
        """Return `action` [..., k] in the numbering (from `start`) and the shape of the action space."""
        start = np.asarray(self.start, action.dtype).reshape((1,) * (action.ndim - 1) + (-1,))
        return (action + start).reshape(*action.shape[:-1], *self.shape)

    def metrics(self) -> dict[str, Array]:
        """Return diagnostics by name, arrays of the batch's shape [...]: means over the k components."""
        return {name: x.mean(axis=-1) for name, x in self.component.metrics().items()}


@part
class Joint:
    """Product of independent distributions, the `components`; an action is a dict or tuple of the same structure."""

    components: dict[str, Distribution] | tuple[Distribution, ...]

    def sample(self, key: Key) -> PyTree:
        """Return a sample of each component, a dict or tuple like the components."""
        keys = iter(jax.random.split(key, len(self.components)))
        return self._each(lambda component: component.sample(next(keys)))

    def log_prob(self, action: PyTree) -> Array:
        """Return the joint log-density or log-probability [...] of `action`, the sum over its components."""
        return self._sum(lambda component, own: component.log_prob(own), action)

    def entropy(self) -> Array:
        """Return the joint entropy [...] of a dict or tuple of independent components, the sum over them."""
        return self._sum(lambda component: component.entropy())

    def mode(self) -> PyTree:
        """Return the most likely action of each component, a dict or tuple like the components."""
        return self._each(lambda component: component.mode())

    def kl(self, other: Joint) -> Array:
        """Return KL(self || other) [...] of two joint distributions with the same components, the sum over these."""
        return self._sum(lambda component, own: component.kl(own), other.components)

    def env_action(self, action: PyTree) -> PyTree:
        """Return the environment's action: that of each component, a dict or tuple like the components."""
        return self._each(lambda component, own: component.env_action(own), action)

    def metrics(self) -> dict[str, Array]:
        """Return diagnostics by name, arrays of the batch's shape [...]: means over the components that have them."""
        parts = self._each(lambda component: component.metrics())
        tables = list(parts.values()) if isinstance(parts, dict) else list(parts)
        names = dict.fromkeys(name for table in tables for name in table)
        return {name: jnp.stack([table[name] for table in tables if name in table]).mean(axis=0) for name in names}

    def _each(self, function: Callable[..., Any], *others: Any) -> Any:
        """Return the results of `function(component, *entries)` for all components, in a dict or tuple.

        `entries` are the component's entries in `others`, which have the structure of the components.
        """
        if isinstance(self.components, dict):
            return {name: function(c, *(o[name] for o in others)) for name, c in self.components.items()}
        return tuple(function(c, *(o[i] for o in others)) for i, c in enumerate(self.components))

    def _sum(self, function: Callable[..., Any], *others: Any) -> Array:
        terms = self._each(function, *others)
        return jnp.stack(list(terms.values() if isinstance(terms, dict) else terms)).sum(axis=0)
