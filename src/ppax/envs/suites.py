"""The suites of native environments that ppax adapts: each an extra of the same name, imported when asked for."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any, NamedTuple

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


def load(suite: str, env_id: str, options: Mapping[str, Any] | None = None) -> Environment:
    """The environment `env_id` of a suite, made with `options`, which are the suite's own.

    Raises ImportError, naming the extra, where the suite is not installed, and ConfigError for options that it does
    not take.
    """
    adapter = _adapter(suite)
    try:
        env: Environment = adapter.load(env_id, **(options or {}))
    except TypeError as error:
        if not options:
            raise
        raise ConfigError(f"env_params of {suite}/{env_id}: {error}") from error
    return env


def ids(suite: str) -> list[str]:
    """All ids of an installed suite."""
    found: list[str] = _adapter(suite).ids()
    return found


def installed(suite: str) -> bool:
    """Whether the suite's library is there; nothing is imported."""
    return importlib.util.find_spec(SUITES[suite].library) is not None


def _adapter(suite: str) -> Any:
    return importlib.import_module(f"ppax.envs.{suite}")
