"""Independent actions of different kinds as one: a Dict or a Tuple of spaces, for hybrid actions; it may be nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.types import Distribution, Key, PyTree, part


@part
class Joint:
    """The product of `components`; an action is a dict or tuple like them."""

    components: dict[str, Distribution] | tuple[Distribution, ...]

    def sample(self, key: Key) -> PyTree:
        """An action of each component, by a key of its own."""
        keys = iter(jax.random.split(key, len(self.components)))
        return self._each(lambda component: component.sample(next(keys)))

    def log_prob(self, action: PyTree) -> Array:
        """Log-density or log-probability of all components together [...]."""
        return self._sum(lambda component, own: component.log_prob(own), action)

    def entropy(self) -> Array:
        """The sum of the components' entropies [...]."""
        return self._sum(lambda component: component.entropy())

    def mode(self) -> PyTree:
        """The most likely action of each component."""
        return self._each(lambda component: component.mode())

    def kl(self, other: Joint) -> Array:
        """KL(self || other) [...]."""
        return self._sum(lambda component, own: component.kl(own), other.components)

    def env_action(self, action: PyTree) -> PyTree:
        """What the environment receives, component by component."""
        return self._each(lambda component, own: component.env_action(own), action)

    def _each(self, function: Callable[..., Any], *others: Any) -> Any:
        """`function` of every component and its part of `others`, in a container of the same kind."""
        if isinstance(self.components, dict):
            return {name: function(c, *(o[name] for o in others)) for name, c in self.components.items()}
        return tuple(function(c, *(o[i] for o in others)) for i, c in enumerate(self.components))

    def _sum(self, function: Callable[..., Any], *others: Any) -> Array:
        terms = self._each(function, *others)
        return jnp.stack(list(terms.values() if isinstance(terms, dict) else terms)).sum(axis=0)
