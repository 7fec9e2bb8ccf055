"""Action distributions of groups of agents, and values of all streams from those of the groups."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Key, PyTree, part, static


def join(values: Mapping[str, Array], sizes: tuple[tuple[str, int], ...]) -> Array:
    """Join values [E * A_g] of each group to [B], ordered by environment, then by group in the order of `sizes`."""
    return jnp.concatenate([values[name].reshape(-1, size) for name, size in sizes], axis=1).reshape(-1)


@part
class ByGroup:
    """Action distributions of all groups, by group name, [E * A_g] each."""

    parts: dict[str, Any]
    sizes: tuple[tuple[str, int], ...] = static("(name, number of agents) of each group")

    def sample(self, key: Key) -> PyTree:
        """Sample actions of all groups; `key` is one key."""
        keys = jax.random.split(key, len(self.parts))
        return {name: one.sample(key) for (name, one), key in zip(self.parts.items(), keys, strict=True)}

    def mode(self) -> PyTree:
        """Mode of every group's distribution."""
        return {name: one.mode() for name, one in self.parts.items()}

    def env_action(self, action: PyTree) -> PyTree:
        """Return the actions that the environment receives; see `Distribution.env_action`."""
        return {name: one.env_action(action[name]) for name, one in self.parts.items()}

    def log_prob(self, action: PyTree) -> Array:
        """Return the log-probability [B] of the actions of all groups; `action` as `sample` returns it."""
        return join({name: one.log_prob(action[name]) for name, one in self.parts.items()}, self.sizes)
