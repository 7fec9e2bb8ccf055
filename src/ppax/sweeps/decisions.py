"""Decisions of a search over the members (runs) of a sweep while they train, their record, and lineages.

A lineage is the history of a learner that population-based training has copied between members: which members have
trained it, with which swept values."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ppax import config
from ppax.core import untrusted
from ppax.core.options import Config, flatten, unflatten
from ppax.core.protocols import Copy, Row, Standings, Stop
from ppax.core.types import ConfigError
from ppax.loggers.files import rows_until, thinned
from ppax.run.directory import ROWS
from ppax.run.restore import planned_iterations
from ppax.storage import safe_files
from ppax.sweeps.packing import Pack, Task, alike, with_values
from ppax.sweeps.plan import Member, Plan
from ppax.sweeps.search import swept_bounds

DECISIONS = "search.jsonl"  # in the sweep's directory
LIMIT = 2**26  # bytes read of it
ON, STOP, COPY = "on", "stop", "copy"  # a member goes on as it is, trains no more, takes over the learner of another
RECENT = 5  # log rows whose mean episode return is a score
NUMBERS = "sweep numbers of the agent, as agent.learning_rate or agent.loss.clip_eps, or floats of env_params"
LIMITS = ("low", "high", "above")  # of an option that is a number
OF_AGENT = re.compile(r"((?:groups\.[^.]+\.)?agent)\.(.+)")  # numbers of an agent can follow a schedule


class Searching:
    """Search of one sweep while its members (runs) train: when it decides, by which scores, and what it has decided."""

    def __init__(
        self,
        path: Path,
        plan: Plan,
        members: Sequence[Member],
        total: int,
        decide: Callable[[Standings], list[Stop | Copy]] | None = None,
    ):
        """Read from the sweep directory `path` which members (runs) were stopped or copied: a resumed sweep repeats it.

        `members` are all members, which train for `total` iterations. `decide`, if given, is called in place of the
        method `decide` of the plan's search.
        """
        self.search, self.decisions, self.total = plan.search, Decisions(path), total
        self._decide = plan.search.decide if decide is None else decide
        self._swept, self._members = plan.values, members
        known = {option.path: option for option in config.options(members[0].config)}
        limits = {name: known[name].limits for name in members[0].values if name in known}
        self._limits = {name: {key: x[key] for key in LIMITS if x.get(key) is not None} for name, x in limits.items()}

    def next_after(self, iteration: int) -> int:
        """Return the first iteration after `iteration` at which the search decides; if none, the last of training."""
        return min(self.search.next_after(iteration, self.total), self.total)

    def decides_at(self, iteration: int) -> bool:
        """Return True if the search decides at `iteration`; it never does at iteration 0 or at the last one."""
        return 0 < iteration < self.total and self.next_after(iteration - 1) == iteration

    def stages(self) -> Iterator[int]:
        """Yield the iterations at which all members (runs) wait for each other: those of decisions, then the last one.

        A search that perturbs members (population-based training) decides inside each compiled program: only the last
        iteration is yielded.
        """
        until = 0
        while until < self.total:
            until = self.total if self.search.perturbs else self.next_after(until)
            yield until

    def values(self, member: Member, iteration: int) -> Config:
        """Return a member's swept values on reaching `iteration`, before the decision made there, by dotted path.

        A member is a run of the sweep.
        """
        return self.decisions.values(member.number, member.values, before=iteration)

    def decide(self, iteration: int, run_dirs: Mapping[int, Path]) -> dict[int, SearchDecision]:
        """Return the decision at `iteration` for each member (run) in `run_dirs`, by number of the member.

        Recorded decisions are returned as they are; the search makes those that are missing, and they are recorded.
        `run_dirs` are the run directories of the members that still train, by number. Raises ConfigError if the record
        is damaged, and for a decision that cannot be carried out: a stop by a search that copies members (`perturbs` is
        True), or a copy by one that stops members.
        """
        known = self.decisions.at(iteration)
        if not run_dirs.keys() <= known.keys():
            since = self._decided_before(iteration)
            scores = scores_of(run_dirs, since, iteration)
            now = {number: self.values(self._members[number], iteration) for number in scores}
            standings = Standings(iteration, self.total, len(self._members), scores, now, self._swept, self._limits)
            made = {one.member: one for one in self._decide(standings)}
            wrong = Stop if self.search.perturbs else Copy
            if any(isinstance(one, wrong) for one in made.values()):
                does = "copies members" if self.search.perturbs else "stops members"
                raise ConfigError(
                    f"search: {type(self.search).__name__} has decided {wrong.__name__}(...); with perturbs = "
                    f"{self.search.perturbs} it {does}"
                )
            self.decisions.add(_decision(iteration, number, x, made.get(number)) for number, x in scores.items())
            known = self.decisions.at(iteration)
        found = {number: known[number] for number in run_dirs}
        if not {one.source for one in found.values()} <= {None, *run_dirs}:
            raise ConfigError(
                f"the decisions at iteration {iteration} in {DECISIONS} are damaged: a source trains no more"
            )
        return found

    def _decided_before(self, iteration: int) -> int:
        before, following = 0, self.next_after(0)
        while following < iteration:
            before, following = following, self.next_after(following)
        return before


def _decision(iteration: int, number: int, score: float, made: Stop | Copy | None) -> SearchDecision:
    """Return the record of a search's decision on member (run) `number`, which was made from its score `score`.

    `made` is a stop or a copy; None: the member goes on.
    """
    if isinstance(made, Copy):
        return SearchDecision(iteration, number, score, COPY, made.reason, made.source, dict(made.values))
    if made is None:
        return SearchDecision(iteration, number, score, ON)
    return SearchDecision(iteration, number, score, STOP, made.reason)


def scores_of(run_dirs: Mapping[int, Path], since: int, iteration: int) -> dict[int, float]:
    """Return the score of each member (run) by number: `score`, or, if that is NaN for all members, `reward_score`.

    The two are never mixed, as returns and mean rewards are on different scales. `run_dirs` are the members' run
    directories by number; log rows after iteration `since`, up to `iteration`, are read.
    """
    scores = {number: score(path, since, iteration) for number, path in run_dirs.items()}
    if all(map(math.isnan, scores.values())):
        return {number: reward_score(path, since, iteration) for number, path in run_dirs.items()}
    return scores


def score(run_dir: Path, since: int, iteration: int) -> float:
    """Return the score of a member (run of a sweep) from its log rows after iteration `since`, up to `iteration`.

    It is the newest `eval_return`; without evaluations in these rows, the mean `episode_return` of the newest RECENT (a
    constant) rows in which an episode ended; NaN without such rows.
    """
    rows = _rows_between(run_dir, since, iteration)
    evaluated = _known(rows, "eval_return")
    return evaluated[-1] if evaluated else _mean_of_recent(_known(rows, "episode_return"))


def reward_score(run_dir: Path, since: int, iteration: int) -> float:
    """Return the score of a member whose episodes never end: the mean `reward_mean` of its newest log rows.

    As in `score`, the rows are at most RECENT (a constant) after iteration `since`, up to `iteration`; NaN without
    rows.
    """
    return _mean_of_recent(_known(_rows_between(run_dir, since, iteration), "reward_mean"))


def _rows_between(run_dir: Path, since: int, iteration: int) -> list[Row]:
    return thinned(row for row in rows_until(run_dir / ROWS, iteration) if row["iteration"] > since)


def _mean_of_recent(values: Sequence[float]) -> float:
    recent = values[-RECENT:]
    return math.fsum(recent) / len(recent) if recent else math.nan


def _known(rows: Sequence[Row], name: str) -> list[float]:
    values = (row.get(name) for row in rows)
    return [x for x in values if x is not None and math.isfinite(x)]


@dataclasses.dataclass(frozen=True)
class SearchDecision:
    """Decision of a search on one member (run) of a sweep at one iteration: to go on, stop, or copy another one.

    For a copy, `source` is the number of the member whose learner is copied, and `values` are the new swept values.
    """

    iteration: int
    member: int  # number in the sweep
    score: float  # NaN where no episode ended
    decision: str  # ON, STOP or COPY
    reason: str = ""
    source: int | None = None  # of a COPY
    values: Config | None = None  # of the swept options after a COPY, by dotted path

    def to_row(self) -> Config:
        """Return the decision as plain data for JSON, without empty fields; a score NaN becomes None."""
        row = dataclasses.asdict(self) | {"score": None if math.isnan(self.score) else self.score}
        return {name: x for name, x in row.items() if x not in (None, "") or name == "score"}


class Decisions:
    """Decisions of a sweep's search: whether each member (run) goes on, stops, or gets the learner of another member.

    They are looked up by iteration and member number, and stored in search.jsonl in the sweep's directory. A resumed
    sweep follows the stored decisions, and makes those that are missing.
    """

    def __init__(self, path: Path):
        """Read the decisions from search.jsonl in the sweep directory `path`; none if there is no such file.

        Raises ConfigError for a damaged file.
        """
        self._path = path / DECISIONS
        try:
            text = untrusted.read_text(self._path, LIMIT) if os.path.lexists(self._path) else ""
            rows = [_read(untrusted.from_json(line)) for line in text.splitlines()]
        except untrusted.MALFORMED as error:
            raise ConfigError(
                f"{self._path} is damaged ({error}); remove it, and its decisions are made again"
            ) from error
        self._rows = {(row.iteration, row.member): row for row in rows}

    def add(self, rows: Iterable[SearchDecision]) -> None:
        """Add decisions and write all of them to search.jsonl, atomically."""
        self._rows |= {(row.iteration, row.member): row for row in rows}
        ordered = [self._rows[key] for key in sorted(self._rows)]
        safe_files.write_text(self._path, "".join(json.dumps(row.to_row()) + "\n" for row in ordered))

    def at(self, iteration: int) -> dict[int, SearchDecision]:
        """Return the decisions at `iteration` by number of the member (run); {} where none was made."""
        return {member: row for (when, member), row in self._rows.items() if when == iteration}

    def stops(self) -> dict[int, SearchDecision]:
        """Return the decisions that stopped a member (run) of the sweep, by member number; {} if none was stopped."""
        return {row.member: row for row in self._rows.values() if row.decision == STOP}

    def copies(self, member: int, before: float = math.inf) -> list[SearchDecision]:
        """Return the decisions below iteration `before` that copied a learner into member number `member`, in order."""
        rows = (row for row in self._rows.values() if row.member == member and row.decision == COPY)
        return sorted((row for row in rows if row.iteration < before), key=lambda row: row.iteration)

    def values(self, member: int, first: Config, before: float = math.inf) -> Config:
        """Return the swept values of member (run) number `member` after decisions below iteration `before`.

        Without such decisions they are `first`, the values with which the member began.
        """
        copies = self.copies(member, before)
        return {**first, **(copies[-1].values or {})} if copies else first

    def __len__(self) -> int:
        return len(self._rows)


def _read(row: Any) -> SearchDecision:
    score, source, values = row["score"], row.get("source"), row.get("values")
    decision = SearchDecision(
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


def search_in_iterations(plan: Plan, packs: Sequence[Pack]) -> Plan:
    """Return the plan with the search's intervals in iterations: "50k steps" becomes the nearest number of iterations.

    `packs` hold the members (runs of the sweep), which give the number of steps of an iteration. Raises ConfigError
    where a conversion is needed and the members' iterations differ in size.
    """
    sizes = sorted({task.run.num_steps * task.env.num_streams for pack in packs for task in pack.tasks})
    search = config.part_in_iterations(plan.search, config.SEARCH, sizes[0])
    if search != plan.search and len(sizes) > 1:
        raise ConfigError(
            f"search: members have iterations of {', '.join(f'{size:,}' for size in sizes)} steps, and decide at equal "
            "iterations: write its intervals as a number of iterations"
        )
    return plan._replace(search=search)


def checked_total(plan: Plan, packs: Sequence[Pack]) -> int:
    """Return the largest number of iterations that a member trains for, after checks of the sweep's search.

    Raises ConfigError if the search decides before the last iteration and members' environments are on the host, or
    members have different numbers of iterations, or population-based training finds no swept option, or one that cannot
    change during training; also if there are too few members or iterations for the search. `packs` are groups of
    members (runs) that one compiled program can train together. Compiles nothing.
    """
    totals = [planned_iterations(pack.tasks[0].env, pack.tasks[0].run) for pack in packs]
    search, members = plan.search, sum(len(pack.tasks) for pack in packs)
    if search.next_after(0, max(totals)) >= max(totals):
        search.check(members, max(totals))
        return max(totals)  # it never decides
    for pack in packs:
        if not pack.compiled:
            raise ConfigError(
                f"search: {pack.tasks[0].env.name} is on the host, where members train one after the other; it takes a "
                "compiled environment, or a sweep without a search"
            )
        if search.perturbs:
            _require_numbers(plan, pack.tasks[0])
    if len(set(totals)) > 1:
        raise ConfigError(
            f"search: members have {', '.join(map(str, sorted(set(totals))))} iterations, and scores are compared at "
            "equal iterations; sweep total_steps, num_envs and num_steps without a search"
        )
    search.check(members if not search.perturbs else min(len(pack.tasks) for pack in packs), totals[0])
    return totals[0]


def _require_numbers(plan: Plan, task: Task) -> None:
    """Raise ConfigError if a swept option, such as a size, cannot change while a compiled program trains.

    To find out, the option's value in the member (run) `task` is changed slightly: the program that trains the member
    must be able to train the changed member, too.
    """
    known = {option.path: option for option in config.options(task.member.config)}
    if not plan.values:
        raise ConfigError(f"search: there is nothing to perturb; {NUMBERS}")
    for path, swept in plan.values.items():
        value: Any = task.member.values[path]
        option = known.get(path)
        plain = type(value) in (int, float) and (option is None or (option.leaf and option.kind is float))
        of_agent = OF_AGENT.fullmatch(path)
        if of_agent is not None and of_agent[2].startswith("schedule."):
            raise ConfigError(
                f"search: {path} is a number of the schedule, which sets others while a program trains and cannot be "
                "changed by a search; leave it out, or leave out the search"
            )
        limits = {} if option is None else {key: option.limits[key] for key in LIMITS if key in option.limits}
        if plain and alike(task, with_values(task, {path: _nudged(float(value), *swept_bounds(swept, limits))})):
            continue
        raise ConfigError(
            f"search: {path} = {value!r} is a size, a choice or a whole number, which cannot change while a program "
            f"trains; {NUMBERS}, or leave out the search"
        )


def _nudged(value: float, low: float, high: float) -> float:
    """Return a valid value close to `value`, to test whether a change of the option needs another compiled program.

    The value is slightly above `value`, or, where that exceeds the limit `high`, slightly below, but at least `low`.
    """
    step = abs(value) / 128 or 1e-3
    return value + step if value + step <= high else max(value - step, low)


class Stage(NamedTuple):
    """Stage of a learner's training: from `iteration` on, member (run) number `member` trains it with `values`.

    `values` are those of the swept options, by dotted path.
    """

    iteration: int
    member: int
    values: Config


def lineage_of(decisions: Decisions, member: int, first: Mapping[int, Config]) -> tuple[Stage, ...]:
    """Return the training stages, earliest first, of the learner that `member` has at the end.

    A stage is a member (run) and its swept values; population-based training copies learners between members, so a
    learner may have had stages in several members. `first` are the swept values of each member before training, by
    number.
    """
    stages: list[Stage] = []
    before = math.inf
    while copies := decisions.copies(member, before):
        last = copies[-1]
        stages.append(Stage(last.iteration, member, last.values or {}))
        before, member = last.iteration, member if last.source is None else last.source
    return (Stage(0, member, first[member]), *reversed(stages))


def scheduled_values(run_config: Config, stages: Sequence[Stage], total: int) -> Config:
    """Return a run file that repeats a learner's stages in one run, in which a schedule changes the agent's numbers.

    The schedule is a step function: from the iteration of each stage on, numbers have the stage's values. If the agent
    has a schedule already, that is applied to these numbers, too. Parameters of the environment have their last values.
    `total` is the number of iterations.
    """
    schedules: dict[str, list[Config]] = {}
    values: Config = {}
    for path, last in stages[-1].values.items():
        found = OF_AGENT.fullmatch(path)
        if found is not None:
            schedules.setdefault(f"{found[1]}.schedule", []).append(_steps(path, found[2], stages, total))
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
    """Return the table of a step-function schedule for one number, with a step at each stage that changes the number.

    `leaf` is the number's path inside the agent, as "learning_rate", `path` its path in the run file, as
    "agent.learning_rate"; `total` is the number of iterations. A step is placed half an iteration before the stage's
    first iteration, so that rounding of the progress of training cannot delay it by an iteration.
    """
    at, values = list[float](), list[Any]()
    for stage in stages:
        if not values or stage.values[path] != values[-1]:
            at.append(max(0.0, (stage.iteration - 0.5) / total))
            values.append(float(stage.values[path]))
    return {"part": "steps", "leaves": [leaf], "at": at, "values": values, "by": "progress"}


def _all(parts: Sequence[Config]) -> Config:
    """Return the table of one schedule that applies several, each to the numbers that the one before it returns.

    `parts` are the tables of the several schedules, at least one, in this order.
    """
    first, *others = parts
    return {"part": "both", "first": first, "second": _all(others)} if others else dict(first)
