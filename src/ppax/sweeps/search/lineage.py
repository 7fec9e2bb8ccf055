"""Lineage of a member of a population: the members whose learners it has had, and its swept values over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ppax import config
from ppax.core.options import Config, flatten, unflatten
from ppax.sweeps.search.decisions import Decisions

AGENT = "agent."  # numbers of an agent can follow a schedule


class Stage(NamedTuple):
    """Values with which a lineage trains from an iteration on."""

    iteration: int
    member: int
    values: Config


def lineage_of(decisions: Decisions, member: int, first: Mapping[int, Config]) -> tuple[Stage, ...]:
    """Return the stages of the learner that a member has at the end; `first` are the values before training."""
    stages: list[Stage] = []
    before = math.inf
    while copies := decisions.copies(member, before):
        last = copies[-1]
        stages.append(Stage(last.iteration, member, last.values or {}))
        before, member = last.iteration, member if last.source is None else last.source
    return (Stage(0, member, first[member]), *reversed(stages))


def scheduled(run_config: Config, stages: Sequence[Stage], total: int) -> Config:
    """Return a run file in which numbers of agents follow the values of a lineage, as steps of progress.

    A schedule that an agent has is applied to these numbers. Numbers of the environment have their last values.
    """
    schedules: dict[str, list[Config]] = {}
    values: Config = {}
    for path, last in stages[-1].values.items():
        head, found, leaf = path.partition(AGENT)
        if found:
            schedules.setdefault(f"{head}{AGENT}schedule", []).append(_steps(path, leaf, stages, total))
        else:
            values[path] = last
    flat = dict(flatten(run_config))
    for place, steps in schedules.items():
        own = unflatten({name.removeprefix(f"{place}."): x for name, x in flat.items() if name.startswith(f"{place}.")})
        parts = [*steps, *([] if own.get("part", "constant") == "constant" else [own])]
        flat = {name: x for name, x in flat.items() if not name.startswith(f"{place}.")}
        flat |= dict(flatten(_all(parts), f"{place}."))
    return config.resolve(unflatten(flat | values))


def _steps(path: str, leaf: str, stages: Sequence[Stage], total: int) -> Config:
    """Return the schedule of one number: a step half an iteration before each stage that changes it."""
    at, values = list[float](), list[Any]()
    for stage in stages:
        if not values or stage.values[path] != values[-1]:
            at.append(max(0.0, (stage.iteration - 0.5) / total))
            values.append(float(stage.values[path]))
    return {"part": "steps", "leaves": [leaf], "at": at, "values": values, "by": "progress"}


def _all(parts: Sequence[Config]) -> Config:
    """Return one schedule that applies all in turn."""
    first, *others = parts
    return {"part": "both", "first": first, "second": _all(others)} if others else dict(first)
