"""Adapter for EnvPool, which steps environments in C++ threads: `ppax.make("envpool/HalfCheetah-v5", num_envs=64)`.

https://envpool.readthedocs.io. EnvPool has next-step autoreset, as ppax does. It accepts a seed only when a pool is
created, so a reset with a seed creates a new pool.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ppax.core.types import ConfigError
from ppax.envs.hosting.action_filter import FILTER
from ppax.envs.hosting.host_env import HostEnv, host_vector
from ppax.envs.settings import DEFAULT, EnvSettings
from ppax.envs.suites.registry import known, library

# Atari as in atari_game.py: learning from single lives and clipped rewards, logging of whole games
RULES = {"episodic_life": True, "reward_clip": True}


class EnvPoolVector(VectorEnv):
    """Pool of `num_envs` environments `env_id` of EnvPool, as a vector environment of Gymnasium."""

    def __init__(self, env_id: str, num_envs: int):
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._library, self._id = library("envpool", "envpool"), env_id
        self._pool: Any = None
        fields = self._library.make_spec(env_id).config._fields
        self._rules = RULES if RULES.keys() <= set(fields) else {}
        self._create_pool(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Return observations and info after a reset of all environments of the pool.

        With a seed the pool is replaced by a new one, as EnvPool takes seeds only when a pool is created.
        """
        if seed is not None:
            self._create_pool(int(seed) % 2**31)
        obs, info = self._pool.reset()
        none = np.zeros(self.num_envs, bool)
        return obs, self._with_stats(none.astype(np.float32), none, info)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Return the result of one step of all environments of the pool."""
        obs, reward, terminated, truncated, info = self._pool.step(actions)
        over = np.asarray(info.get("terminated", terminated), bool) | truncated
        return obs, reward, terminated, truncated, self._with_stats(info.get("reward", reward), over, info)

    def close_extras(self, **options: Any) -> None:
        """Close EnvPool's pool of environments and end its threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _create_pool(self, seed: int) -> None:
        """Replace EnvPool's pool by a new one with this seed."""
        self.close_extras()
        options = self._rules | {"num_envs": self.num_envs, "seed": seed}
        with warnings.catch_warnings():  # some spaces have float64 bounds, which warns at first access
            warnings.simplefilter("ignore", UserWarning)
            self._pool = self._library.make(self._id, env_type="gymnasium", **options)
            self.single_observation_space = self._pool.observation_space
            self.single_action_space = self._pool.action_space

    def _with_stats(self, reward: np.ndarray, over: np.ndarray, info: dict[str, Any]) -> dict[str, Any]:
        """Return `info`, for Atari games with an entry "episode_stats": rewards and episode ends [num_envs] for logs.

        Learning uses clipped rewards and an end at each lost life; the entry is a pair of the unclipped rewards and the
        ends of whole games. The `info` of other environments is returned as it is.
        """
        return info | {"episode_stats": (np.asarray(reward, np.float32), over)} if self._rules else info


def ids() -> list[str]:
    """Return the ids of all environments of EnvPool."""
    return sorted(library("envpool", "envpool").list_all_envs())


def load(env_id: str, num_envs: int, settings: EnvSettings = DEFAULT) -> HostEnv:
    """Return `num_envs` environments `env_id` of EnvPool, with its own wrappers and time limits.

    Raises ConfigError for an unknown id and ImportError, naming the extra to install, without EnvPool.
    """
    settings.refuse(("vectorization", "timeout", "action_repeat", "stagger"), "EnvPool steps its environments itself")
    if FILTER in settings.env_params:
        raise ConfigError(f"env_params.{FILTER}: EnvPool steps its environments itself; leave it out")
    make = partial(EnvPoolVector, known("envpool", env_id, ids()))
    return host_vector(make, make(num_envs), f"envpool/{env_id}", settings=settings)
