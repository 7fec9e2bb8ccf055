"""Adapter for MuJoCo Playground, https://playground.mujoco.org (Zakka et al. 2025, https://arxiv.org/abs/2502.08844).

Its environments have brax's interface. The adapter applies the time limit and action repeat of their configuration.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError
from ppax.envs.suites.brax import Brax
from ppax.envs.suites.registry import known, library
from ppax.envs.wrappers.time import ActionRepeat, TimeLimit


def load(
    env_id: str,
    impl: str = "jax",
    time_out_truncates: bool = False,
    config_overrides: Mapping[str, Any] | None = None,
    **options: Any,
) -> Environment:
    """Return the MuJoCo Playground environment `env_id` ("CartpoleBalance"), with its own time limit and action repeat.

    `impl` is MuJoCo's implementation, "jax" (MJX) or "warp". Other `options`, and `config_overrides`, replace values of
    the environment's configuration, by their dotted paths in it ("ctrl_dt", "noise_config.level"). With
    `time_out_truncates` an end that the environment marks as `time_out` is a truncation. Observations are a Box, or a
    Dict of "state" and "privileged_state". Raises ImportError without MuJoCo Playground, ConfigError for an unknown id
    or option, and OSError if the files of a robot, which are downloaded at first use, cannot be obtained.
    """
    known("playground", env_id, ids())
    overrides = dict(_flat({**(config_overrides or {}), **options}))
    env, config = _make(env_id, impl, tuple(sorted(overrides.items())))
    adapted: Environment = Brax(env, time_out_truncates)
    repeats = int(config.action_repeat)
    if repeats > 1:
        adapted = ActionRepeat(adapted, repeats)
    return TimeLimit(adapted, -(-int(config.episode_length) // repeats))


def ids() -> list[str]:
    """Return the ids of all environments of MuJoCo Playground, those that a user has registered included."""
    registry = library("mujoco_playground", "playground").registry
    # `registry.ALL_ENVS` was put together when it was imported
    return sorted({*registry.manipulation.ALL_ENVS, *registry.locomotion.ALL_ENVS, *registry.dm_control_suite.ALL_ENVS})


@functools.cache
def _make(env_id: str, impl: str, overrides: tuple[tuple[str, Any], ...]) -> Any:
    """Return MuJoCo Playground's environment and its configuration, the same objects for equal arguments.

    jit compares the environments by identity.
    """
    registry = library("mujoco_playground", "playground").registry
    config = registry.get_default_config(env_id)
    options = list(config)
    if "impl" in config:
        config.impl = impl
    try:
        config.update_from_flattened_dict({name: _as_in(config, name, value) for name, value in overrides})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(
            f"env_params of playground/{env_id}: {error}; the configuration has {', '.join(options)}"
        ) from error
    try:
        return registry.load(env_id, config), config
    except subprocess.CalledProcessError as error:
        raise OSError(f"playground/{env_id} downloads the files of its robot on first use: {error}") from error


def _as_in(config: Any, name: str, value: Any) -> Any:
    """Return `value` in the type of the configuration's entry `name`, a dotted path; KeyError where there is none."""
    entry = config
    for key in name.split("."):
        if key not in entry:
            raise KeyError(f"no entry {name!r}")
        entry = entry[key]
    if isinstance(value, tuple):
        return list(value) if isinstance(entry, list) else value
    return type(entry)(value) if isinstance(entry, float) and type(value) is int else value


def _flat(options: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of nested options, with lists as tuples."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", tuple(value) if isinstance(value, list) else value
