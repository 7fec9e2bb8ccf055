"""Adapter for MuJoCo Playground, https://playground.mujoco.org (Zakka et al. 2025, https://arxiv.org/abs/2502.08844).

Its environments have brax's interface. The adapter applies the time limit and action repeat of their configuration.
"""

from __future__ import annotations

import functools
import subprocess
from typing import Any

from ppax.envs.suites.brax import Brax
from ppax.envs.suites.common import known, library
from ppax.envs.wrappers.action_repeat import ActionRepeat
from ppax.envs.wrappers.time_limit import TimeLimit
from ppax.protocols import Environment


def load(env_id: str, impl: str = "jax", time_out_truncates: bool = False) -> Environment:
    """Load the environment `env_id` ("CartpoleBalance"), truncated at its own time limit, with its own action repeat.

    `impl` is MuJoCo's implementation, "jax" (MJX) or "warp". Observations are a Box, or a Dict of "state" and
    "privileged_state". Raises ImportError without MuJoCo Playground, ConfigError for an unknown id, and OSError if the
    files of a robot, which are downloaded at first use, cannot be obtained.
    """
    known("playground", env_id, ids())
    env, config = _make(env_id, impl)
    adapted: Environment = Brax(env, time_out_truncates)
    repeats = int(config.action_repeat)
    if repeats > 1:
        adapted = ActionRepeat(adapted, repeats)
    return TimeLimit(adapted, -(-int(config.episode_length) // repeats))


def ids() -> list[str]:
    """Return the ids of all environments."""
    return sorted(library("mujoco_playground", "playground").registry.ALL_ENVS)


@functools.cache
def _make(env_id: str, impl: str) -> Any:
    """Create one object for each configuration; return it and the configuration."""
    registry = library("mujoco_playground", "playground").registry
    config = registry.get_default_config(env_id)
    try:
        return registry.load(env_id, config, config_overrides={"impl": impl} if "impl" in config else None), config
    except subprocess.CalledProcessError as error:
        raise OSError(f"playground/{env_id} downloads the files of its robot on first use: {error}") from error
