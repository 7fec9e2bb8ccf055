"""The suites of environments that ppax adapts: each an extra of the same name, imported when asked for."""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any, NamedTuple

from ppax.envs.host_env import HostEnv
from ppax.types import Environment


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


def load_host(suite: str, env_id: str, num_envs: int, vectorization: str, action_repeat: int) -> HostEnv:
    """`num_envs` environments `env_id` of a suite on the host; ImportError, naming the extra, where it is missing."""
    env: HostEnv = _adapter(suite).load(env_id, num_envs, vectorization, action_repeat)
    return env


def load(suite: str, env_id: str) -> Environment:
    """The environment `env_id` of a suite; ImportError, naming the extra, where that is not installed."""
    env: Environment = _adapter(suite).load(env_id)
    return env


def ids(suite: str) -> list[str]:
    """All ids of an installed suite."""
    found: list[str] = _adapter(suite).ids()
    return found


def installed(suite: str) -> bool:
    """Whether the suite's library is there; nothing is imported."""
    library = HOST_SUITES[suite] if suite in HOST_SUITES else SUITES[suite].library
    return importlib.util.find_spec(library) is not None


def _adapter(suite: str) -> Any:
    return importlib.import_module(f"ppax.envs.{suite}")
