"""Curricula: schedules that change an environment's numbers (parameters such as gravity) over training.

A schedule is a part (a frozen dataclass), of the same kind as the schedules of an agent's numbers. It is called with
{"env": numbers by name} in place of an agent. Its `leaves` are paths such as `env.gravity`, or for a number that is
drawn at resets, `env.gravity.low` and `env.gravity.high`. Values are traced: nothing compiles again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.options import flatten, unflatten
from ppax.core.types import Scalar
from ppax.envs.adaptive_ranges import adaptive_of, check_adaptive, current_ends, limits_of
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers.params import ParameterPath, adjust, parameters, plain_value, put, ranges_of, value_at

ROOT = "env"  # first word of the paths
END = 2.0**63  # steps of the environment at the end of a schedule, more than any run has


class Scheduled(NamedTuple):
    """Environment with its parameters at some moment of training, and, by name, those that the schedule has set."""

    env: VectorEnv
    numbers: Mapping[str, Array]


def scheduled(env: VectorEnv, progress: Scalar, env_steps: Scalar, ranges: Any = ()) -> Scheduled:
    """Return the environment as it is at `progress` of training, in [0, 1], and after `env_steps` valid steps.

    Its parameters, such as gravity, have the values that its schedule gives them then; these values are returned by
    name, too ({} without a schedule). `ranges` is the state of the adaptive ranges, if the environment has any.
    """
    adaptive = adaptive_of(env)
    changed = current_ends(env, adaptive, ranges) if adaptive else _changed(env, progress, env_steps)
    if not changed:
        return Scheduled(env, {})
    inner, where = env.env, _paths(env.env)
    for name, value in changed.items():
        inner = put(inner, where[name], value)
    numbers = {f"{ROOT}.{name}": jnp.asarray(value, jnp.float32) for name, value in changed.items()}
    return Scheduled(dataclasses.replace(env, env=inner), numbers)


def at_start(env: Any, ranges: Any) -> Any:
    """Return the environment with the parameters that its schedule sets before the first step.

    An environment on the host, which has no schedule, is returned unchanged. `ranges` is the first state of the
    adaptive ranges, if the environment has any.
    """
    return scheduled(env, 0.0, 0.0, ranges).env if isinstance(env, VectorEnv) else env


def values_at(env: VectorEnv, progress: float, env_steps: float | None = None) -> dict[str, Any]:
    """Return the values that the schedule gives the environment's parameters at a time of training, as `env_params`.

    `progress` is 0 at the start of training and 1 at its end. A schedule may also depend on the number of steps so far,
    `env_steps`; None is 0 at the start, and at the end more than any run has. Evaluations use the values at the end.
    Parameters that the schedule does not change are left out. For a schedule that adapts ranges, the values are the
    widest ranges, whatever the progress.
    """
    if adaptive := adaptive_of(env):
        return limits_of(env, adaptive)
    known = parameters(env.env)
    names = {parameter.path: name for name, parameter in known.items()}
    where, values, ranges = _paths(env.env), dict[str, Any](), ranges_of(env.env)
    for name, changed in _changed(env, progress, END * progress if env_steps is None else env_steps).items():
        path, value = where[name], plain_value(jnp.asarray(changed))
        if path in names:
            values[names[path]] = value
        else:  # an end of a range
            *_, end, drawn = path
            both = values.get(drawn) or {end: plain_value(value_at(env.env, at)) for end, at in ranges[drawn].items()}
            whole = drawn in known and known[drawn].option.kind is int  # then rounded ends are drawn
            values[drawn] = {**both, end: float(round(value)) if whole else value}
    return values


def check_schedule(env: Any) -> None:
    """Raise ConfigError if the environment's schedule changes anything but parameters of the environment.

    It is raised, too, if a parameter would be outside of its limits at the start, at the end, or where a schedule of
    ppax has a value of its own in between.
    """
    if adaptive := adaptive_of(env):
        check_adaptive(env, adaptive)
    elif env.settings.schedule is not None:
        for values in extreme_values(env):
            adjust(env.env, values)


def extreme_values(env: VectorEnv) -> list[dict[str, Any]]:
    """Return the values of scheduled parameters at the start, at the end, and at the times that the schedule lists.

    Each is as `values_at` returns them. Between those times schedules of ppax are monotonic.
    """
    times: list[tuple[float, float | None]] = [(0.0, None), (1.0, None)]
    for one in _parts(env.settings.schedule):
        for at in np.ravel(np.asarray(getattr(one, "at", ()), float)).tolist():
            times += [(at, None)] if getattr(one, "by", "progress") == "progress" else [(0.0, at), (1.0, at)]
    return [values_at(env, *time) for time in times]


def _parts(schedule: Any) -> list[Any]:
    """Return the schedules that `schedule` applies one after the other, as `Both` does; else itself alone."""
    both = getattr(schedule, "first", None), getattr(schedule, "second", None)
    return [schedule] if None in both else [*_parts(both[0]), *_parts(both[1])]


def _changed(env: VectorEnv, progress: Scalar, env_steps: Scalar) -> dict[str, Any]:
    """Return the values of the parameters that the schedule changes, by name; {} without a schedule.

    They are those at `progress` of training, in [0, 1], and after `env_steps` valid steps. Integers are rounded.
    """
    if env.schedule is None:
        return {}
    before = {name: value_at(env.env, path) for name, path in _paths(env.env).items()}
    given = {ROOT: unflatten(before)}
    after = dict(flatten(env.schedule(given, jnp.float32(progress), jnp.float32(env_steps))[ROOT]))
    return {name: _like(before[name], after[name]) for name in before if after[name] is not before[name]}


def _paths(env: Any) -> dict[str, ParameterPath]:
    """Return the path in `env` of each parameter that a schedule may change, by its shortest and by its dotted name."""
    ranges = ranges_of(env)
    found = {f"{name}.{end}": path for name, ends in ranges.items() for end, path in ends.items()}
    for name, parameter in parameters(env).items():
        if not parameter.is_static and parameter.option.kind in (int, float) and name not in ranges:
            found |= {name: parameter.path, parameter.dotted: parameter.path}
    tables = {name[:i] for name in found for i, letter in enumerate(name) if letter == "."}
    return {name: path for name, path in found.items() if name not in tables}


def _like(old: Any, new: Any) -> Any:
    """Return `new` in the type of `old`: integers are rounded to int32, others cast to float32."""
    whole = jnp.issubdtype(jnp.asarray(old).dtype, jnp.integer)
    return jnp.round(jnp.asarray(new)).astype(jnp.int32) if whole else jnp.asarray(new, jnp.float32)
