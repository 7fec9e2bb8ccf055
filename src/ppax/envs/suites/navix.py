"""Adapter for NAVIX, https://github.com/epignatelli/navix: MiniGrid in JAX.

Pignatelli et al., "NAVIX: Scaling MiniGrid Environments with JAX", 2024, https://arxiv.org/abs/2407.19396. The adapter
calls the inner `_step`: the public one computes a reset beside every step of a batch, and throws it away.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.suites.common import known, library, strong
from ppax.types import Environment, EnvReset, EnvStep, Key, PyTree, part, static


@part
class Navix:
    """One NAVIX room. Make it with `load`, not by hand.

    It has a time limit of its own, which it tells from an end; where both fall on one step it is an end.
    """

    env: Any = static(doc="NAVIX's own environment")

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """As declared, but of the shape and dtype that the observations really have."""
        return _observation_space(self.env)

    @property
    def action_space(self) -> spaces.Discrete:
        """Turn, move, pick up, drop, toggle, done."""
        return spaces.Discrete(len(self.env.action_set))

    def reset(self, key: Key) -> EnvReset:
        """Begin an episode."""
        begin = self.env.reset(key)
        return EnvReset(strong(self._without_pictures(begin)), strong(begin.observation))

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Advance by one step; what is random in it is drawn from the state's own key."""
        after = self.env._step(state, jnp.asarray(action, jnp.int32))
        return EnvStep(
            strong(self._without_pictures(after)),
            strong(after.observation),
            jnp.asarray(after.reward, jnp.float32),
            jnp.asarray(after.is_termination(), bool),
            jnp.asarray(after.is_truncation(), bool),
        )

    def render(self, state: PyTree) -> np.ndarray:
        """The room from above, [H, W, 3]."""
        cache = library("navix.rendering.cache", "navix").RenderingCache.init(state.state.grid)
        picture = library("navix.observations", "navix").rgb(state.state.replace(cache=cache))
        return np.asarray(picture)

    def _without_pictures(self, timestep: Any) -> Any:
        """Without the picture of the empty room, hundreds of kilobytes, which only observations of pixels need."""
        function = self.env.observation_fn
        if function.__module__ != "navix.observations" or "rgb" in function.__name__:
            return timestep
        return timestep.replace(state=timestep.state.replace(cache=None))


def load(env_id: str, **kwargs: Any) -> Environment:
    """The room `env_id` ("Navix-Empty-8x8-v0"); `kwargs` go to `navix.make` and must be hashable.

    Raises ImportError without NAVIX, ConfigError for an unknown id.
    """
    return Navix(_make(known("navix", env_id, ids()), **kwargs))


def ids() -> list[str]:
    """All rooms there are."""
    return list(library("navix", "navix").registry())


class _Identity:
    """NAVIX's environments hold arrays and have no hash; one object for each stands for it."""

    def __init__(self, env: Any):
        self.env = env

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)


@functools.cache
def _make(env_id: str, **kwargs: Any) -> Any:
    return _Identity(library("navix", "navix").make(env_id, disable_autoreset=True, **kwargs))


@functools.cache
def _observation_space(env: Any) -> spaces.Box:
    obs = jax.eval_shape(lambda key: env.reset(key).observation, jax.random.key(0))
    with jax.ensure_compile_time_eval():
        low, high = (np.asarray(x, obs.dtype) for x in (env.observation_space.minimum, env.observation_space.maximum))
    return spaces.Box(np.broadcast_to(low, obs.shape), np.broadcast_to(high, obs.shape), dtype=obs.dtype.type)
