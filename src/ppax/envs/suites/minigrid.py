"""Adapter for MiniGrid and BabyAI, https://minigrid.farama.org, on the host: `ppax.make("minigrid/BabyAI-GoTo-v0")`."""

from __future__ import annotations

import contextlib
import sys
from functools import partial
from typing import Any

import gymnasium

from ppax.core.types import ConfigError
from ppax.envs.hosting.faults import EnvError
from ppax.envs.hosting.host_env import HostEnv, host
from ppax.envs.settings import DEFAULT, EnvSettings
from ppax.envs.suites.minigrid_room import MiniGridRoom
from ppax.envs.suites.registry import known, library


def ids() -> list[str]:
    """Return the ids of all rooms of MiniGrid and BabyAI."""
    with contextlib.redirect_stdout(sys.stderr):  # pygame prints its version
        gymnasium.register_envs(library("minigrid", "minigrid"))
    specs = gymnasium.registry.values()
    return [spec.id for spec in specs if str(spec.entry_point).startswith("minigrid.")]


def load(env_id: str, num_envs: int, settings: EnvSettings = DEFAULT, **options: Any) -> HostEnv:
    """Return `num_envs` rooms `env_id` of MiniGrid; `options` are those of MiniGridRoom and of the room's constructor.

    Raises ConfigError for an unknown id or a wrong option, and ImportError, naming the extra to install, without
    MiniGrid.
    """
    room = partial(MiniGridRoom, known("minigrid", env_id, ids()), **options)
    try:
        return host(room, num_envs, f"minigrid/{env_id}", **settings.of_host())
    except EnvError as error:
        if isinstance(error.cause, ImportError):  # rooms made by wave function collapse need NetworkX
            raise ImportError(f'minigrid/{env_id}: {error.cause}: pip install "minigrid[wfc]"') from error
        if options and isinstance(error.cause, ValueError | AssertionError):
            raise ConfigError(f"env_params of minigrid/{env_id}: {error.cause}") from error
        raise
