"""How environments begin anew: a reset for each, or a few for all that need one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.types import Environment, EnvReset, Key, part, static


def fresh_resets(env: Environment, needed: Array, key: Key) -> EnvReset:
    """A reset of its own for every environment, keys [E]: independent first states."""
    return jax.vmap(env.reset)(key)


@part
class PoolResets:
    """`size` fresh resets a step, dealt out in turn to the environments that begin anew.

    For environments whose reset costs many steps. More than `size` that begin on the same step share first states;
    the next step's are fresh again. With several devices each has a pool of its own, so that, unlike everything else,
    first states depend on how many there are.
    """

    size: int = static("fresh resets in a step", default=8, low=1)

    def __call__(self, env: Environment, needed: Array, key: Key) -> EnvReset:
        """First states for all environments, of which those count that are `needed` [E]; keys [E]."""
        size = min(self.size, needed.shape[0])
        starts = jax.vmap(env.reset)(key[:size])
        place = (jnp.cumsum(needed) - 1) % size  # [E]
        dealt: EnvReset = jax.tree.map(lambda x: x[place], starts)
        return dealt
