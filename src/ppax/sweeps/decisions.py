"""Decisions of a search, rows of search.jsonl in a sweep's directory; and the lineage of a member of a population."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ppax import config
from ppax.core import untrusted
from ppax.core.options import Config, flatten, unflatten
from ppax.core.protocols import Copy, Stop
from ppax.core.types import ConfigError
from ppax.storage import safe_files

# Decisions of a search: rows of search.jsonl in a sweep's directory, one per member and iteration of decisions.
#
# The file is data of the sweep: a resume takes recorded decisions as they are, and makes those that are missing.

DECISIONS = "search.jsonl"
LIMIT = 2**26  # bytes read of it
ON, STOP, COPY = "on", "stop", "copy"  # a member goes on as it is, trains no more, takes over the learner of another


@dataclasses.dataclass(frozen=True)
class Decision:
    """Decision for one member at one iteration."""

    iteration: int
    member: int  # number in the sweep
    score: float  # NaN where no episode ended
    decision: str  # ON, STOP or COPY
    reason: str = ""
    source: int | None = None  # of a COPY
    values: Config | None = None  # of the swept options after a COPY, by dotted path

    def to_row(self) -> Config:
        """Return plain data, without what is empty."""
        row = dataclasses.asdict(self) | {"score": None if math.isnan(self.score) else self.score}
        return {name: x for name, x in row.items() if x not in (None, "") or name == "score"}


def made(iteration: int, scores: Mapping[int, float], found: Iterable[Stop | Copy]) -> list[Decision]:
    """Return a decision for each member with an entry in `scores`; those without one of the search go on."""
    by_member = {one.member: one for one in found}
    rows = []
    for number, score in scores.items():
        one = by_member.get(number)
        if isinstance(one, Copy):
            rows.append(Decision(iteration, number, score, COPY, one.reason, one.source, dict(one.values)))
        else:
            rows.append(Decision(iteration, number, score, ON) if one is None else _stop(iteration, score, one))
    return rows


def _stop(iteration: int, score: float, one: Stop) -> Decision:
    return Decision(iteration, one.member, score, STOP, one.reason)


class Decisions:
    """Decisions of a sweep by iteration and member, and their file."""

    def __init__(self, path: Path):
        """Read the decisions of the sweep directory `path`, none where it has none; ConfigError for a damaged file."""
        self._path = path / DECISIONS
        try:
            text = untrusted.read_text(self._path, LIMIT) if os.path.lexists(self._path) else ""
            rows = [_read(untrusted.from_json(line)) for line in text.splitlines()]
        except untrusted.MALFORMED as error:
            raise ConfigError(
                f"{self._path} is damaged ({error}); remove it, and its decisions are made again"
            ) from error
        self._rows = {(row.iteration, row.member): row for row in rows}

    def add(self, rows: Iterable[Decision]) -> None:
        """Record decisions, in one atomic write of the file."""
        self._rows |= {(row.iteration, row.member): row for row in rows}
        ordered = [self._rows[key] for key in sorted(self._rows)]
        safe_files.write_text(self._path, "".join(json.dumps(row.to_row()) + "\n" for row in ordered))

    def at(self, iteration: int) -> dict[int, Decision]:
        """Return the decisions at an iteration by member."""
        return {member: row for (when, member), row in self._rows.items() if when == iteration}

    def stops(self) -> dict[int, Decision]:
        """Return the decisions that ended a member, by member."""
        return {row.member: row for row in self._rows.values() if row.decision == STOP}

    def copies(self, member: int, before: float = math.inf) -> list[Decision]:
        """Return the copies into a member at iterations below `before`, in their order."""
        rows = (row for row in self._rows.values() if row.member == member and row.decision == COPY)
        return sorted((row for row in rows if row.iteration < before), key=lambda row: row.iteration)

    def values(self, member: int, first: Config, before: float = math.inf) -> Config:
        """Return the swept values of a member that began with `first`, after its decisions below `before`."""
        copies = self.copies(member, before)
        return {**first, **(copies[-1].values or {})} if copies else first

    def __len__(self) -> int:
        return len(self._rows)


def _read(row: Any) -> Decision:
    score, source, values = row["score"], row.get("source"), row.get("values")
    decision = Decision(
        int(row["iteration"]),
        int(row["member"]),
        math.nan if score is None else float(score),
        str(row["decision"]),
        str(row.get("reason", "")),
        None if source is None else int(source),
        None if values is None else {str(path): _number(x) for path, x in values.items()},
    )
    if decision.decision not in (ON, STOP, COPY) or (decision.decision == COPY and None in (source, values)):
        raise ValueError(f"decision {decision.decision!r} at iteration {decision.iteration}")
    return decision


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError(f"value {value!r}")
    return value


# Lineage of a member of a population: the members whose learners it has had, and its swept values over time.

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
