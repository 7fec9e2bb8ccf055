"""Environments of EnvPool, which steps them in threads of C++: `ppax.make("envpool/HalfCheetah-v5", num_envs=64)`.

https://envpool.readthedocs.io. It begins the next episode in the step after an end, as ppax does. Seeds it takes only
when a pool is made, so that a reset with a seed makes another one.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ppax.envs.hosting.host_env import HostEnv, host_vector
from ppax.envs.suites.common import known, library
from ppax.types import ConfigError

# Atari as in atari_game.py: learned from are lives and signs of rewards, counted are whole games
RULES = {"episodic_life": True, "reward_clip": True}


class Pool(VectorEnv):
    """`num_envs` environments `env_id` as one of Gymnasium's vector environments."""

    def __init__(self, env_id: str, num_envs: int):
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": AutoresetMode.NEXT_STEP}
        self._library, self._id = library("envpool", "envpool"), env_id
        self._pool: Any = None
        fields = self._library.make_spec(env_id).config._fields
        self._rules = RULES if RULES.keys() <= set(fields) else {}
        self._fresh(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin everywhere; with a seed, in new environments."""
        if seed is not None:
            self._fresh(int(seed) % 2**31)
        obs, info = self._pool.reset()
        none = np.zeros(self.num_envs, bool)
        return obs, self._tallied(none.astype(np.float32), none, info)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step of all."""
        obs, reward, terminated, truncated, info = self._pool.step(actions)
        over = np.asarray(info.get("terminated", terminated), bool) | truncated
        return obs, reward, terminated, truncated, self._tallied(info.get("reward", reward), over, info)

    def close_extras(self, **options: Any) -> None:
        """End its threads."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _fresh(self, seed: int) -> None:
        self.close_extras()
        options = self._rules | {"num_envs": self.num_envs, "seed": seed}
        with warnings.catch_warnings():  # each pool makes its spaces when asked first, some from bounds in float64
            warnings.simplefilter("ignore", UserWarning)
            self._pool = self._library.make(self._id, env_type="gymnasium", **options)
            self.single_observation_space = self._pool.observation_space
            self.single_action_space = self._pool.action_space

    def _tallied(self, reward: np.ndarray, over: np.ndarray, info: dict[str, Any]) -> dict[str, Any]:
        return info | {"episode_stats": (np.asarray(reward, np.float32), over)} if self._rules else info


def ids() -> list[str]:
    """All that it has."""
    return sorted(library("envpool", "envpool").list_all_envs())


def load(env_id: str, num_envs: int, vectorization: str = "sync", action_repeat: int = 1) -> HostEnv:
    """`num_envs` environments `env_id`, with EnvPool's own wrappers and time limits.

    Raises ConfigError for an unknown id and ImportError, naming the extra to install, without EnvPool.
    """
    for option, value, default in (("vectorization", vectorization, "sync"), ("action_repeat", action_repeat, 1)):
        if value != default:
            raise ConfigError(f"{option} = {value!r}: EnvPool steps its environments itself; leave it out")
    make = partial(Pool, known("envpool", env_id, ids()))
    return host_vector(make, make(num_envs), f"envpool/{env_id}")
