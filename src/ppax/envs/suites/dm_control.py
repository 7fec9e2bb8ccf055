"""Adapter for the DeepMind Control Suite on the host: `ppax.make("dm_control/cartpole-balance")`.

https://github.com/google-deepmind/dm_control. Tasks that run on an accelerator are those of `playground`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ppax.core.types import ConfigError
from ppax.envs.hosting.faults import EnvError
from ppax.envs.hosting.host_env import HostEnv, host
from ppax.envs.settings import DEFAULT, EnvSettings
from ppax.envs.suites.dm_control_task import ControlTask
from ppax.envs.suites.registry import known, library


def ids() -> list[str]:
    """Return the ids of all tasks of the suite: domain and task, joined by a hyphen."""
    return [f"{domain}-{task}" for domain, task in library("dm_control.suite", "dm_control").ALL_TASKS]


def load(env_id: str, num_envs: int, settings: EnvSettings = DEFAULT, **options: Any) -> HostEnv:
    """Return `num_envs` environments of the task `env_id` ("walker-walk"), with its own time limit.

    `options` are `task_kwargs` and `environment_kwargs` of dm_control, and `height`, `width` and `camera_id` of the
    pictures that `render` returns. Raises ConfigError for an unknown id or a wrong option, and ImportError, naming the
    extra to install, without dm_control.
    """
    domain, _, task = known("dm_control", env_id, ids()).partition("-")
    try:
        return host(
            partial(ControlTask, domain, task, **options), num_envs, f"dm_control/{env_id}", **settings.of_host()
        )
    except EnvError as error:
        if options and isinstance(error.cause, ValueError):
            raise ConfigError(f"env_params of dm_control/{env_id}: {error.cause}") from error
        raise
