"""The suites of environments that ppax adapts: each an extra of the same name, imported when asked for."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, NamedTuple

from ppax.envs.hosting.host_env import HostEnv
from ppax.types import ConfigError, Environment


class Suite(NamedTuple):
    """What is known of a suite without importing it."""

    library: str  # the module that the extra brings
    dear_resets: bool = False  # a reset costs many steps, so that they are shared (vector.PoolResets)


SUITES = {
    "brax": Suite("brax"),
    "craftax": Suite("craftax", dear_resets=True),
    "gymnax": Suite("gymnax"),
    "jaxmarl": Suite("jaxmarl"),
    "jumanji": Suite("jumanji"),
    "navix": Suite("navix"),
    "playground": Suite("mujoco_playground"),
}


# Those whose environments are stepped on the host, and the module that each needs
HOST_SUITES = {"gymnasium": "gymnasium", "atari": "ale_py", "envpool": "envpool", "pettingzoo": "pettingzoo"}


def load_host(suite: str, env_id: str, made: tuple[Any, ...], options: Mapping[str, Any] | None = None) -> HostEnv:
    """Environments `env_id` of a suite on the host; `made`: how many, their vectorization, their action repeat, and for
    several agents `agent_ids` and `central_critic`.

    `options` and errors are those of `load`.
    """
    env: HostEnv = _load(suite, env_id, made, options)
    return dataclasses.replace(env, options=tuple((options or {}).items()))


def load(suite: str, env_id: str, options: Mapping[str, Any] | None = None) -> Environment:
    """The environment `env_id` of a suite, made with `options`, which are the suite's own.

    Raises ImportError, naming the extra, where the suite is not installed, and ConfigError for options that it does
    not take.
    """
    env: Environment = _load(suite, env_id, (), options)
    return env


def _load(suite: str, env_id: str, made: tuple[Any, ...], options: Mapping[str, Any] | None) -> Any:
    adapter = _adapter(suite)
    try:
        return adapter.load(env_id, *made, **(options or {}))
    except TypeError as error:
        if not options:
            raise
        raise ConfigError(f"env_params of {suite}/{env_id}: {error}") from error


def ids(suite: str) -> list[str]:
    """All ids of an installed suite."""
    found: list[str] = _adapter(suite).ids()
    return found


def installed(suite: str) -> bool:
    """Whether the suite's library is there; nothing is imported."""
    library = HOST_SUITES[suite] if suite in HOST_SUITES else SUITES[suite].library
    return importlib.util.find_spec(library) is not None


def _adapter(suite: str) -> Any:
    return importlib.import_module(f"ppax.envs.suites.{suite}")
