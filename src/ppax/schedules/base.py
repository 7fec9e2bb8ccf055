"""Schedules: (agent, progress in [0, 1], env_steps) -> agent. They may anneal any number of the agent.

`progress` is iterations done over iterations planned, so the first update is at the full value and the last one of n is
at 1/n of the way above the end: never at or below it. `env_steps` counts the valid steps of all streams so far, those
of training only. Neither counts gradient steps: an epoch more or less changes no schedule.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.types import ConfigError, Scalar


def replace_at(tree: Any, path: str, change: Callable[[Any], Any]) -> Any:
    """A copy of a part with the number at a dotted `path` ("loss.clip_eps") changed."""
    name, _, rest = path.partition(".")
    fields = dataclasses.fields(tree) if dataclasses.is_dataclass(tree) else ()
    names = [field.name for field in fields if not field.metadata.get("static")]
    value = getattr(tree, name) if name in names else None
    if value is None or (dataclasses.is_dataclass(value) and not rest):
        inner = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
        names += [f"{name}.{field.name}" for field in inner if not field.metadata.get("static")]
        raise ConfigError(f"schedule: {path!r} is not a number of {type(tree).__name__}; it has {', '.join(names)}")
    if rest and not dataclasses.is_dataclass(value):
        raise ConfigError(f"schedule: {name!r} is a number, there is no {rest!r} below it")
    return dataclasses.replace(tree, **{name: replace_at(value, rest, change) if rest else change(value)})


def scale(agent: Any, leaves: tuple[str, ...], share: Scalar) -> Any:
    """The agent with each named number times `share`."""
    for path in leaves:
        agent = replace_at(agent, path, lambda value: value * share)
    return agent


def anneal_parts(agent: Any, progress: Array) -> Any:
    """The agent with each part that has a course of its own (`anneal`) at this progress of training."""
    parts = {field.name: getattr(agent, field.name) for field in dataclasses.fields(agent)}
    return dataclasses.replace(
        agent, **{name: part.anneal(progress) for name, part in parts.items() if hasattr(part, "anneal")}
    )


def knots(schedule: Any) -> tuple[Array, Array]:
    """Where and what, as arrays; ConfigError where they do not make a function of 0 and up."""
    at, values = schedule.at, schedule.values
    if len(at) != len(values) or not at:
        raise ConfigError(
            f"schedule: at has {len(at)} entries and values has {len(values)}; each value needs its place"
        )
    known = [x for x in at if isinstance(x, int | float)]
    if len(known) == len(at):  # inside a compiled program they are traced; `fit` asks before
        if known[0] != 0:
            raise ConfigError(f"schedule: at = {known} must begin at 0, so that the first update has a value")
        if any(a >= b for a, b in itertools.pairwise(known)):
            raise ConfigError(f"schedule: at = {known} must rise from one entry to the next")
        if schedule.by == "progress" and known[-1] > 1:
            raise ConfigError(f'schedule: at = {known}: progress ends at 1; for steps say by = "env_steps"')
    return jnp.stack([jnp.float32(x) for x in at]), jnp.stack([jnp.float32(x) for x in values])
