"""Adapter for Craftax, https://github.com/MichaelTMatthews/Craftax (Matthews et al. 2024, https://arxiv.org/abs/2402.16801).

The adapter uses the environment without autoreset. Craftax reports its time limit as a termination; the adapter removes
it, and TimeLimit truncates instead.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs.suites.registry import NO_LIMIT, known, library, strong
from ppax.envs.wrappers.time import TimeLimit

PICTURE_PIXELS = 16  # pixels of a block in a picture: one of the texture sizes of Craftax


@part
class Craftax:
    """World of Craftax as an environment of ppax, without its time limit. Create it with `load`."""

    params: PyTree  # Craftax's own EnvParams
    env: Any = static(doc="environment object of Craftax")

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: a Box from 0 to 1, a vector or pixels [H, W, 3]."""
        declared = self.env.observation_space(None)
        return spaces.Box(0.0, 1.0, declared.shape, np.float32)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions: 17 discrete ones in Craftax-Classic, 43 in Craftax."""
        return spaces.Discrete(int(self.env.num_actions))

    def reset(self, key: Key) -> EnvReset:
        """Return the start in a newly generated world of Craftax, which costs as much as several steps."""
        obs, state = strong(self.env.reset_env(key, self.params))
        return EnvReset(state, obs)

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Return the result of one step of Craftax, which is never truncated."""
        unlimited = self.params.replace(max_timesteps=NO_LIMIT)  # used only in Craftax's test for termination
        obs, state, reward, done, _ = self.env.step_env(key, state, action, unlimited)
        state, obs = strong((state, obs))
        reward, terminated = jnp.asarray(reward, jnp.float32), jnp.asarray(done, bool)
        return EnvStep(state, obs, reward, terminated, jnp.zeros((), bool))

    def render(self, state: PyTree) -> np.ndarray:
        """Return a picture [H, W, 3] of the player's view."""
        package = "craftax.craftax_classic" if "Classic" in type(self.env).__name__ else "craftax.craftax"
        picture = library(f"{package}.renderer", "craftax").make_craftax_pixel_renderer(PICTURE_PIXELS)(state)
        return np.clip(np.asarray(picture), 0, 255).astype(np.uint8)


def load(env_id: str) -> Environment:
    """Return the Craftax world `env_id` ("Craftax-Symbolic-v1"), truncated at Craftax's own time limit.

    Raises ImportError without Craftax, ConfigError for an unknown id.
    """
    env = _make(known("craftax", env_id, ids()))
    params = env.default_params
    return TimeLimit(Craftax(params, env), int(params.max_timesteps))


def ids() -> list[str]:
    """Return the ids of all worlds of Craftax, which are listed here, as Craftax has no list of them."""
    library("craftax", "craftax")
    return [f"Craftax{size}-{view}-v1" for size in ("-Classic", "") for view in ("Symbolic", "Pixels")]


@functools.cache
def _make(env_id: str) -> Any:
    """Return Craftax's environment, the same object for equal ids, as Craftax and jit compare objects by identity."""
    return library("craftax.craftax_env", "craftax").make_craftax_env_from_name(env_id, auto_reset=False)
