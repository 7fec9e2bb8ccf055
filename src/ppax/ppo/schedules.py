"""Schedules: functions (agent, progress in [0, 1], env_steps) -> agent that anneal any of the agent's numbers.

`progress` is iterations done / iterations planned: 0 in the first update, 1 - 1/n in the last of n. `env_steps` counts
the valid training steps of all streams so far. Neither depends on the number of epochs or gradient steps. A schedule of
an environment gets, in place of an agent, the environment's parameters as nested dicts (envs/curriculum.py).
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.options import check_numbers, flatten
from ppax.core.parts import name_of, slot, slot_chains, slots
from ppax.core.protocols import Schedule
from ppax.core.types import ConfigError, Scalar, number, part, static
from ppax.core.unknown_names import own_name

__all__ = [
    "Both",
    "Constant",
    "Cosine",
    "Interpolated",
    "Linear",
    "Steps",
    "anneal_parts",
    "annealed",
    "changed_numbers",
    "knots",
    "piecewise",
    "replace_at",
    "scale",
]


@part
class Constant:
    """Constant schedule: no number is annealed."""

    def __call__(self, agent: Any, progress: Array, env_steps: Array | float = 0.0) -> Any:
        """Return `agent` unchanged: a constant schedule anneals nothing."""
        return agent


@part
class Linear:
    """Linear schedule: each number in `leaves` is annealed from its value to `end` times its value."""

    leaves: tuple[str, ...] = static(
        "paths of the numbers to anneal, such as learning_rate or loss.clip_eps", default=("learning_rate",)
    )
    end: Scalar = number("ratio of the final value to the initial value", default=0.0, low=0.0)

    def __call__(self, agent: Any, progress: Array, env_steps: Array | float = 0.0) -> Any:
        """Return the agent with the numbers in `leaves` scaled, linearly with `progress` of training, in [0, 1].

        The scale is 1 at progress 0, and `end` at 1.
        """
        return scale(agent, self.leaves, 1.0 - jnp.clip(progress, 0.0, 1.0) * (1.0 - self.end))


@part
class Cosine:
    """Cosine schedule: each number in `leaves` moves from its value to `end` times its value, along half a cosine.

    Loshchilov and Hutter 2017, https://arxiv.org/abs/1608.03983
    """

    leaves: tuple[str, ...] = static(
        "paths of the numbers to anneal, such as learning_rate or loss.clip_eps", default=("learning_rate",)
    )
    end: Scalar = number("ratio of the final value to the initial value", default=0.0, low=0.0)
    exponent: Scalar = number("exponent of the half cosine: above 1 the numbers fall earlier", default=1.0, above=0.0)

    def __call__(self, agent: Any, progress: Array, env_steps: Array | float = 0.0) -> Any:
        """Return the agent with the numbers in `leaves` scaled, along half a cosine over `progress` of training.

        The scale is 1 at progress 0, and `end` at 1.
        """
        wave = 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(progress, 0.0, 1.0)))
        return scale(agent, self.leaves, self.end + (1.0 - self.end) * wave**self.exponent)


@part
class Steps:
    """Piecewise-constant schedule: each number in `leaves` is values[i] from at[i] until at[i + 1]."""

    leaves: tuple[str, ...] = static(
        "paths of the numbers to set, such as learning_rate or loss.clip_eps", default=("learning_rate",)
    )
    at: tuple[Scalar, ...] = number("position at which each value starts; the first is 0", default=(0.0,), low=0.0)
    values: tuple[Scalar, ...] = number("value from each position on", default=(3e-4,))
    by: str = static(
        "unit of at: progress of training in [0, 1], or env_steps",
        default="progress",
        choices=("progress", "env_steps"),
    )

    def __call__(self, agent: Any, progress: Array, env_steps: Array) -> Any:
        """Return the agent with the numbers in `leaves` set to the value of the last position in `at` that is reached.

        Positions are of `progress` of training, in [0, 1], or of `env_steps`, the number of valid environment steps so
        far; the option `by` says which.
        """
        return piecewise(self, agent, progress, env_steps, _last_reached)


@part
class Interpolated:
    """Piecewise-linear schedule: each number in `leaves` follows the points (at[i], values[i]).

    It is constant after the last point.
    """

    leaves: tuple[str, ...] = static(
        "paths of the numbers to set, such as learning_rate or loss.clip_eps", default=("learning_rate",)
    )
    at: tuple[Scalar, ...] = number("position of each value; the first is 0", default=(0.0,), low=0.0)
    values: tuple[Scalar, ...] = number("value at each position; linear in between", default=(3e-4,))
    by: str = static(
        "unit of at: progress of training in [0, 1], or env_steps",
        default="progress",
        choices=("progress", "env_steps"),
    )

    def __call__(self, agent: Any, progress: Array, env_steps: Array) -> Any:
        """Return the agent with the numbers in `leaves` set to the value between the points (at[i], values[i]).

        Positions `at` are of `progress` of training, in [0, 1], or of `env_steps`, the number of valid environment
        steps so far; the option `by` says which.
        """
        return piecewise(self, agent, progress, env_steps, jnp.interp)


@part
class Both:
    """Schedule that applies two schedules, one after the other; each may be a `Both` again."""

    first: Schedule = slot("schedule", "schedule applied first", default=Constant())
    second: Schedule = slot("schedule", "schedule applied second, to the result of the first", default=Constant())

    def __call__(self, agent: Any, progress: Array, env_steps: Array) -> Any:
        """Return the agent with both schedules applied, the second one to the result of the first."""
        return self.second(self.first(agent, progress, env_steps), progress, env_steps)


def piecewise(schedule: Any, agent: Any, progress: Array, env_steps: Array, value: Callable[..., Array]) -> Any:
    """Return the agent with each number that a piecewise schedule names set to the schedule's value at this time.

    The value is `value(now, at, values)`, where `now` is `progress` or `env_steps`, as the schedule's option `by` says,
    and `at` and `values` [k] are the schedule's points.
    """
    now = value(progress if schedule.by == "progress" else env_steps, *knots(schedule))
    return change_each(agent, schedule.leaves, lambda _: now)


def knots(schedule: Any) -> tuple[Array, Array]:
    """Return positions and values, [k] each, of a piecewise schedule.

    Raises ConfigError if positions do not start at 0 and rise, if the numbers of positions and values differ, or if a
    position of training progress is above 1.
    """
    at, values = schedule.at, schedule.values
    if len(at) != len(values) or len(at) == 0:
        raise ConfigError(
            f"schedule: at has {len(at)} entries and values has {len(values)}; "
            "they must have the same number of entries, at least 1"
        )
    known = [x for x in at if isinstance(x, int | float)]
    if len(known) == len(at):  # traced inside a compiled program; `fit` checks them before
        if known[0] != 0:
            raise ConfigError(f"schedule: at = {known} must begin at 0, so that the first update has a value")
        if any(a >= b for a, b in itertools.pairwise(known)):
            raise ConfigError(f"schedule: at = {known} must rise from one entry to the next")
        if schedule.by == "progress" and known[-1] > 1:
            raise ConfigError(f'schedule: at = {known}: progress ends at 1; for steps write by = "env_steps"')
    return jnp.stack([jnp.float32(x) for x in at]), jnp.stack([jnp.float32(x) for x in values])


NEARLY = 1e-6  # distance from the end of training: an end value, such as 0, is approached and not reached


def check_values(agent: Any) -> None:
    """Raise ConfigError where the agent's schedule sets one of its numbers to a value out of the number's limits.

    The numbers of agent and schedule must be concrete: none may be a tracer. Schedules of a user's own are not checked.
    """
    members = _members(agent.schedule)
    if not all(isinstance(one, Constant | Linear | Cosine | Steps | Interpolated) for one in members):
        return
    for one in members:
        start = agent
        for change in _changes(one):
            agent = change_each(start, one.leaves, change)
            check_numbers(agent, "schedule: agent")


def _members(schedule: Any) -> list[Any]:
    """Return the schedules that `schedule` applies, in their order: those of a `Both`, or else itself."""
    return _members(schedule.first) + _members(schedule.second) if isinstance(schedule, Both) else [schedule]


def _changes(schedule: Any) -> list[Callable[[Any], Any]]:
    """Return functions from a number to the extreme values that a schedule of ppax takes it to, the last one last."""

    def set_to(value: Any) -> Callable[[Any], Any]:
        return lambda _: value

    if isinstance(schedule, Constant):
        return []
    if isinstance(schedule, Linear | Cosine):
        share = schedule.end + NEARLY * (1.0 - schedule.end)
        return [lambda value: value * share]
    values = list(schedule.values)
    if isinstance(schedule, Interpolated) and schedule.by == "progress" and schedule.at[-1] == 1 and len(values) > 1:
        values[-1] = values[-1] + NEARLY * (values[-2] - values[-1])
    return [set_to(value) for value in values]


def replace_at(tree: Any, path: str, change: Callable[[Any], Any], above: str = "") -> Any:
    """Return a copy of a part with `change` applied to the number at a dotted `path`, such as "loss.clip_eps".

    A part is a frozen dataclass, such as an agent or its loss. Raises ConfigError if there is no number at `path`. If
    `tree` is itself a field of the agent, such as `loss`, `above` is its path with a dot, "loss.", which the message
    puts before `path`.
    """
    name, _, rest = path.partition(".")
    if dataclasses.is_dataclass(tree) and name in slot_chains(type(tree)):
        return _replace_in_chain(tree, name, rest, change)
    entries = _entries(tree)
    value = entries.get(name)
    is_inner = dataclasses.is_dataclass(value) or isinstance(value, Mapping)
    if value is None and name in entries and not rest:
        raise ConfigError(f"schedule: {above + path!r} is none (off): give it a number, which is annealed")
    if value is None or (is_inner and not rest):
        is_env, last = isinstance(tree, Mapping), path.rpartition(".")[2]
        whole = "the environment" if is_env else type(tree).__name__
        given = [one for one, x in entries.items() if x is not None]  # the others are off
        inner = [f"{name}.{one}" for one, x in _entries(value).items() if x is not None]
        names = [x for x, _ in flatten(tree)] if is_env else [*given, *inner]
        others = [one for one in names if one != path]
        nearest = difflib.get_close_matches(path.removesuffix(last) + own_name(last), others, n=1)
        meant = f"did you mean {above + nearest[0]!r}? " if nearest else ""
        has = ", ".join(above + one for one in names)
        raise ConfigError(f"schedule: {above + path!r} is not a number of {whole}; {meant}it has {has}")
    if rest and not is_inner:
        raise ConfigError(f"schedule: {above + name!r} is a number and has no field {rest!r}")
    new = replace_at(value, rest, change, f"{above}{name}.") if rest else change(value)
    return {**tree, name: new} if isinstance(tree, Mapping) else dataclasses.replace(tree, **{name: new})


def _replace_in_chain(agent: Any, field: str, path: str, change: Callable[[Any], Any]) -> Any:
    """Return a copy of an agent with `change` applied to a number of one of the parts in its field `field`.

    Such a field is `extensions`, a tuple of parts (frozen dataclasses). `path` is the part's name and the number's, as
    "rnd.coef". Raises ConfigError if there is no such number.
    """
    name, _, rest = path.partition(".")
    parts = getattr(agent, field)
    if not rest or name not in map(name_of, parts):
        known = [f"{field}.{name_of(part)}.{number}" for part in parts for number in _entries(part)]
        nearest = difflib.get_close_matches(f"{field}.{path}", known, n=1)
        meant = f"did you mean {nearest[0]!r}? " if nearest else ""
        has = f"{meant}it has {', '.join(known)}" if known else f"the agent has no {field}"
        raise ConfigError(f"schedule: '{field}.{path}' is not a number of {field}; {has}")
    above = f"{field}.{name}."
    changed = (replace_at(part, rest, change, above) if name_of(part) == name else part for part in parts)
    return dataclasses.replace(agent, **{field: tuple(changed)})


def _entries(tree: Any) -> dict[str, Any]:
    """Return what dotted paths can lead to in `tree`, by name: a part's numbers and parts, or the entries of a mapping.

    A part is a frozen dataclass; its static fields are left out. The result is {} for any other object.
    """
    if isinstance(tree, Mapping):
        return dict(tree)
    fields = dataclasses.fields(tree) if dataclasses.is_dataclass(tree) else ()
    return {field.name: getattr(tree, field.name) for field in fields if not field.metadata.get("static")}


def change_each(agent: Any, leaves: tuple[str, ...], change: Callable[[Any], Any]) -> Any:
    """Return the agent with `change` applied to the number at each path of `leaves`, such as "loss.clip_eps"."""
    for path in leaves:
        agent = replace_at(agent, path, change)
    return agent


def scale(agent: Any, leaves: tuple[str, ...], share: Scalar) -> Any:
    """Return the agent with the number at each path of `leaves`, such as "loss.clip_eps", multiplied by `share`."""
    return change_each(agent, leaves, lambda value: value * share)


def anneal_parts(agent: Any, progress: Array) -> Any:
    """Return the agent with those numbers of its parts annealed that declare an end value (by `anneal_to`).

    Parts are the agent's swappable components, such as the loss. `progress` of training is in [0, 1]: at 0 these
    numbers have their start values, at 1 their end values.
    """
    parts = {name: annealed(getattr(agent, name), progress) for name in slots(type(agent))}
    chains = {name: tuple(annealed(one, progress) for one in getattr(agent, name)) for name in slot_chains(type(agent))}
    return dataclasses.replace(agent, **parts, **chains)


def annealed(part: Any, progress: Array) -> Any:
    """Return the part with each number that declares an end value annealed linearly to it.

    A part is a frozen dataclass of options. The field of such a number has `anneal_to`, the name of the field that
    holds the end value. `progress` of training is in [0, 1]: at 0 numbers are unchanged, at 1 they are at their ends.
    """
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    ends = {field.name: field.metadata["anneal_to"] for field in fields if "anneal_to" in field.metadata}
    if not ends:
        return part
    share = jnp.clip(progress, 0.0, 1.0)
    courses = {name: (getattr(part, name), getattr(part, end)) for name, end in ends.items()}
    return dataclasses.replace(part, **{name: start + (end - start) * share for name, (start, end) in courses.items()})


def changed_numbers(before: Any, after: Any) -> dict[str, Any]:
    """Return the numbers (learning rate and others) of `after` that a schedule has changed, by dotted paths, for logs.

    `before` and `after` are the agent without and with its schedule applied. Numbers may be traced, so that their
    values cannot be compared: a number counts as changed if it is another Python object than in `before`. The result is
    {} if the schedule has replaced a component of the agent by one of another kind.
    """
    # a schedule of the user may replace parts
    if jax.tree.structure(before) != jax.tree.structure(after):  # type: ignore[operator]
        return {}
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    return {_path_of(before, path): y for (path, x), y in pairs if x is not y}


def _path_of(tree: Any, path: Sequence[Any]) -> str:
    """Return the dotted path, such as "loss.clip_eps", of the number that JAX's key path `path` leads to in a part.

    In a field that holds several parts in order, such as `extensions`, a part's place is its name:
    "extensions.rnd.coef".
    """
    field, *inner = path
    name = getattr(field, "name", "")
    if inner and name in slot_chains(type(tree)):
        part = getattr(tree, name)[inner[0].idx]
        return ".".join([name, name_of(part), _path_of(part, inner[1:])])
    return jax.tree_util.keystr(tuple(path), simple=True, separator=".")


def _last_reached(now: Array, at: Array, values: Array) -> Array:
    return values[jnp.sum(now >= at) - 1]
