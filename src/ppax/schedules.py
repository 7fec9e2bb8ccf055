"""Schedules: (agent, progress in [0, 1]) -> agent. They may anneal any number of the agent.

`progress` is iterations done over iterations planned, so the first update is at the full value and the last one of n is
at 1/n of the way above the end: never at or below it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.types import ConfigError, Scalar, number, part, static


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


@part
class Constant:
    """Nothing is annealed."""

    def __call__(self, agent: Any, progress: Array) -> Any:
        """The agent as it is."""
        return agent


@part
class Linear:
    """Each named number falls on a straight line from its value to `end` times its value."""

    leaves: tuple[str, ...] = static("dotted names of the numbers to anneal", default=("learning_rate",))
    end: Scalar = number("share of the value that is left at the end", default=0.0, low=0.0)

    def __call__(self, agent: Any, progress: Array) -> Any:
        """The agent at `progress`."""
        share = 1.0 - jnp.clip(progress, 0.0, 1.0) * (1.0 - self.end)
        for path in self.leaves:
            agent = replace_at(agent, path, lambda value: value * share)
        return agent


@part
class Cosine:
    """Each named number falls along half a cosine from its value to `end` times its value."""

    leaves: tuple[str, ...] = static("dotted names of the numbers to anneal", default=("learning_rate",))
    end: Scalar = number("share of the value that is left at the end", default=0.0, low=0.0)

    def __call__(self, agent: Any, progress: Array) -> Any:
        """The agent at `progress`."""
        share = self.end + (1.0 - self.end) * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(progress, 0.0, 1.0)))
        for path in self.leaves:
            agent = replace_at(agent, path, lambda value: value * share)
        return agent
