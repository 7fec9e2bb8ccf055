"""Adapter for NAVIX, https://github.com/epignatelli/navix: MiniGrid in JAX.

Pignatelli et al., "NAVIX: Scaling MiniGrid Environments with JAX", 2024, https://arxiv.org/abs/2407.19396. The adapter
calls the inner `_step`: under vmap the public one computes a reset in every step and discards it.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs.suites.registry import known, library, strong


@part
class Navix:
    """Room of NAVIX. Create it with `load`.

    NAVIX has its own time limit, which is a truncation. A step that is both truncated and terminated is reported as
    terminated only.
    """

    env: Any = static(doc="environment object of NAVIX")

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: a Box with the declared bounds, and the shape and dtype of real observations."""
        return _observation_space(self.env)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: turn, move, pick up, drop, toggle, done."""
        return spaces.Discrete(len(self.env.action_set))

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode in the NAVIX room."""
        timestep = self.env.reset(key)
        return EnvReset(strong(self._without_pictures(timestep)), strong(timestep.observation))

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Return the result of one step in the NAVIX room; randomness comes from the key inside the state."""
        timestep = self.env._step(state, jnp.asarray(action, jnp.int32))
        return EnvStep(
            strong(self._without_pictures(timestep)),
            strong(timestep.observation),
            jnp.asarray(timestep.reward, jnp.float32),
            jnp.asarray(timestep.is_termination(), bool),
            jnp.asarray(timestep.is_truncation(), bool),
        )

    def render(self, state: PyTree) -> np.ndarray:
        """Return a picture [H, W, 3] of the room from above."""
        cache = library("navix.rendering.cache", "navix").RenderingCache.init(state.state.grid)
        picture = library("navix.observations", "navix").rgb(state.state.replace(cache=cache))
        return np.asarray(picture)

    def _without_pictures(self, timestep: Any) -> Any:
        """Return NAVIX's timestep without the cached picture of the empty room, unless observations are pixels.

        The picture has hundreds of kilobytes.
        """
        function = self.env.observation_fn
        if function.__module__ != "navix.observations" or "rgb" in function.__name__:
            return timestep
        return timestep.replace(state=timestep.state.replace(cache=None))


def load(env_id: str, **kwargs: Any) -> Environment:
    """Return the NAVIX room `env_id` ("Navix-Empty-8x8-v0").

    `kwargs` are passed to `navix.make` and must be hashable. Raises ImportError without NAVIX, ConfigError for an
    unknown id.
    """
    return Navix(_make(known("navix", env_id, ids()), **kwargs))


def ids() -> list[str]:
    """Return the ids of all rooms of NAVIX."""
    return list(library("navix", "navix").registry())


class _Identity:
    """Proxy of a NAVIX environment that can be hashed, as static fields must be; the environment itself cannot.

    It contains arrays, which have no hash.
    """

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
