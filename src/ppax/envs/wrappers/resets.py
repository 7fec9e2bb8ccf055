"""Resets within a step of many environments: one for each environment, or a small pool that they share."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import EnvReset, Key, part, static


def fresh_resets(env: Environment, needed: Array, key: Key) -> EnvReset:
    """Return a new episode for every environment, [E, ...], each from its own key; `needed` is not read."""
    return jax.vmap(env.reset)(key)


@part
class PoolResets:
    """Resets from a pool: `size` new initial states in each step, assigned in turn to environments that need one.

    It is for environments whose reset costs as much as many steps. If more than `size` environments reset in the same
    step, some share an initial state; the next step has new ones. With several devices each has its own pool, so that
    initial states, unlike everything else, depend on the number of devices.
    """

    size: int = static("number of resets that are computed in each step", default=8, low=1)

    def __call__(self, env: Environment, needed: Array, key: Key) -> EnvReset:
        """Return initial states [E, ...] from the pool; only those where `needed` [E] is True have meaning.

        `key` has one key for each environment, [E].
        """
        size = min(self.size, needed.shape[0])
        resets = jax.vmap(env.reset)(key[:size])
        place = (jnp.cumsum(needed) - 1) % size  # [E]
        assigned: EnvReset = jax.tree.map(lambda x: x[place], resets)
        return assigned
