"""Adapter for POPGym Arcade, https://github.com/bolt-research/popgym-arcade (Wang et al. 2025, https://arxiv.org/abs/2503.01450).

Arcade games as pictures, each fully or partially observable. The adapter calls `step_env`, which does not reset. The
library reports some time limits as termination and as truncation both: an end at the limit is a truncation here.
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
class Arcade:
    """Game of POPGym Arcade as an environment of ppax. Create it with `load`."""

    env: Any = static(doc="environment object of POPGym Arcade")

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: pictures, uint8 [H, W, 3]."""
        return spaces.Box(0, 255, (self.env.obs_size, self.env.obs_size, 3), np.uint8)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions: up, down, left, right and fire in all games."""
        return spaces.Discrete(int(self.env.action_space(self.env.default_params).n))

    def reset(self, key: Key) -> EnvReset:
        """Return the start of a new game."""
        obs, state = strong(self.env.reset_env(key, self.env.default_params))
        return EnvReset(state, jnp.asarray(obs, jnp.uint8))

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Return the result of one step of the game."""
        results = self.env.step_env(key, state, jnp.asarray(action, jnp.int32), self.env.default_params)
        obs, after, reward, done, info = strong(results)
        # the library changes dtypes of its state from step to step, as from int32 to float32
        after = jax.tree.map(lambda new, old: new.astype(old.dtype), after, state)
        ended, truncated = jnp.asarray(done, bool), jnp.asarray(info["truncated"], bool)
        reward = jnp.asarray(reward, jnp.float32)
        return EnvStep(after, jnp.asarray(obs, jnp.uint8), reward, ended & ~truncated, ended & truncated)

    def render(self, state: PyTree) -> np.ndarray:
        """Return the picture [H, W, 3] that the player sees."""
        return np.asarray(self.env.get_obs(state), np.uint8)


def load(env_id: str, **kwargs: Any) -> Environment:
    """Return the game `env_id` of POPGym Arcade ("CartPoleEasy"), with its own time limit.

    `kwargs` go to the game and must be hashable: `partial_obs`, `obs_size`. Raises ImportError without POPGym Arcade,
    ConfigError for an unknown id.
    """
    return Arcade(_make(known("popgym_arcade", env_id, ids()), **kwargs))


def ids() -> list[str]:
    """Return the ids of all games of POPGym Arcade, each in three levels of difficulty."""
    return list(library("popgym_arcade.registration", "popgym_arcade").REGISTERED_ENVIRONMENTS)


@functools.cache
def _make(env_id: str, **kwargs: Any) -> Any:
    """Return the game's object, the same one for equal arguments, as jit compares objects by identity."""
    return library("popgym_arcade", "popgym_arcade").make(env_id, **kwargs)[0]
