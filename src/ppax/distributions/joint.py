"""Product of independent distributions of different kinds, for Dict and Tuple spaces (hybrid actions), also nested."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.protocols import Distribution
from ppax.core.types import Key, PyTree, part


@part
class Joint:
    """Product of independent `components`; an action is a dict or tuple of the same structure."""

    components: dict[str, Distribution] | tuple[Distribution, ...]

    def sample(self, key: Key) -> PyTree:
        """Return a sample of each component, a dict or tuple like the components."""
        keys = iter(jax.random.split(key, len(self.components)))
        return self._each(lambda component: component.sample(next(keys)))

    def log_prob(self, action: PyTree) -> Array:
        """Return the joint log-density or log-probability [...] of `action`, the sum over components."""
        return self._sum(lambda component, own: component.log_prob(own), action)

    def entropy(self) -> Array:
        """Return the joint entropy [...], the sum over components."""
        return self._sum(lambda component: component.entropy())

    def mode(self) -> PyTree:
        """Return the most likely action of each component, a dict or tuple like the components."""
        return self._each(lambda component: component.mode())

    def kl(self, other: Joint) -> Array:
        """Return KL(self || other) [...], the sum over components."""
        return self._sum(lambda component, own: component.kl(own), other.components)

    def env_action(self, action: PyTree) -> PyTree:
        """Return the environment's action: that of each component, a dict or tuple like the components."""
        return self._each(lambda component, own: component.env_action(own), action)

    def metrics(self) -> dict[str, Array]:
        """Return the components' diagnostics by name, [...], each as its mean over the components that have it."""
        parts = self._each(lambda component: component.metrics())
        tables = list(parts.values()) if isinstance(parts, dict) else list(parts)
        names = dict.fromkeys(name for table in tables for name in table)
        return {name: jnp.stack([table[name] for table in tables if name in table]).mean(axis=0) for name in names}

    def _each(self, function: Callable[..., Any], *others: Any) -> Any:
        """Return the results of `function` for each component and its entries in `others`, in a dict or tuple."""
        if isinstance(self.components, dict):
            return {name: function(c, *(o[name] for o in others)) for name, c in self.components.items()}
        return tuple(function(c, *(o[i] for o in others)) for i, c in enumerate(self.components))

    def _sum(self, function: Callable[..., Any], *others: Any) -> Array:
        terms = self._each(function, *others)
        return jnp.stack(list(terms.values() if isinstance(terms, dict) else terms)).sum(axis=0)
