"""Search of one sweep while its members train: iterations of its decisions, the scores it reads, its decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ppax import config
from ppax.core.options import Config
from ppax.core.protocols import Copy, Row, Standings, Stop
from ppax.core.types import ConfigError
from ppax.loggers.files import rows_until, thinned
from ppax.run.directory import ROWS
from ppax.run.restore import planned_iterations
from ppax.sweeps import directory, member
from ppax.sweeps.decisions import DECISIONS, STOP, Decision, Decisions, made
from ppax.sweeps.directory import Recorded, member_dir
from ppax.sweeps.member import SEARCH, end_of
from ppax.sweeps.packing import Pack, Task, alike, with_values
from ppax.sweeps.plan import Member, Plan
from ppax.sweeps.search import bounds

RECENT = 5  # log rows whose mean episode return is a score
NUMBERS = "sweep numbers of the agent, as agent.learning_rate or agent.loss.clip_eps, or floats of env_params"
LIMITS = ("low", "high", "above")  # of an option that is a number


class Searching:
    """Iterations at which a sweep's search decides, and the record of its decisions."""

    def __init__(
        self,
        path: Path,
        plan: Plan,
        members: Sequence[Member],
        total: int,
        decide: Callable[[Standings], list[Stop | Copy]] | None = None,
    ):
        """Read the record of the sweep directory `path`; its members train for `total` iterations.

        `decide` replaces the search's own decisions.
        """
        self.search, self.decisions, self.total = plan.search, Decisions(path), total
        self._decide = plan.search.decide if decide is None else decide
        self._swept, self._members = plan.values, members
        known = {option.path: option for option in config.options(members[0].config)}
        limits = {name: known[name].limits for name in members[0].values if name in known}
        self._limits = {name: {key: x[key] for key in LIMITS if x.get(key) is not None} for name, x in limits.items()}

    def next_after(self, iteration: int) -> int:
        """Return the next iteration at which the search decides, at most the last one."""
        return min(self.search.next_after(iteration, self.total), self.total)

    def decides_at(self, iteration: int) -> bool:
        """Return whether the search decides at `iteration`; never before the first and after the last one."""
        return 0 < iteration < self.total and self.next_after(iteration - 1) == iteration

    def stages(self) -> Iterator[int]:
        """Yield the iterations to which all programs train in turn: decisions over all members at once, and the end."""
        until = 0
        while until < self.total:
            until = self.next_after(until) if self.search.waits else self.total
            yield until

    def values(self, member: Member, iteration: int) -> Config:
        """Return the swept values of a member as it reaches `iteration`, before the decisions there."""
        return self.decisions.values(member.number, member.values, before=iteration)

    def decide(self, iteration: int, run_dirs: Mapping[int, Path]) -> dict[int, Decision]:
        """Return the decision for each member that trains, by number: the recorded ones, else new ones, recorded."""
        known = self.decisions.at(iteration)
        if not run_dirs.keys() <= known.keys():
            since = self._decided_before(iteration)
            scores = {number: score(path, since, iteration) for number, path in run_dirs.items()}
            earlier = {number: row.score for number, row in known.items() if number not in scores}
            now = {number: self.values(self._members[number], iteration) for number in scores}
            standings = Standings(
                iteration, self.total, len(self._members), scores, now, self._swept, self._limits, earlier
            )
            self.decisions.add(made(iteration, scores, self._decide(standings)))
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


def score(run_dir: Path, since: int, iteration: int) -> float:
    """Return the score of a member, from its log rows after `since` up to `iteration`: NaN where no episode ended.

    It is the newest `eval_return`; without evaluations in these rows the mean `episode_return` of the newest RECENT
    rows in which an episode ended.
    """
    rows = thinned(row for row in rows_until(run_dir / ROWS, iteration) if row["iteration"] > since)
    evaluated, returns = _known(rows, "eval_return"), _known(rows, "episode_return")[-RECENT:]
    if evaluated:
        return evaluated[-1]
    return math.fsum(returns) / len(returns) if returns else math.nan


def _known(rows: Sequence[Row], name: str) -> list[float]:
    values = (row.get(name) for row in rows)
    return [x for x in values if x is not None and math.isfinite(x)]


def stop_members(path: Path, recorded: Recorded, searching: Searching, iteration: int) -> Recorded:
    """Stop members by the decisions of a search over all at once; return the record without their programs."""
    run_dirs = {one.number: member_dir(path, one) for one in recorded.members}
    training = {number: run_dir for number, run_dir in run_dirs.items() if not end_of(run_dir).kind}
    for number, one in searching.decide(iteration, training).items():
        if one.decision == STOP:
            member.stop(training[number], iteration, one.reason)
    stopped = searching.decisions.stops().keys()
    programs = tuple(numbers for numbers in recorded.programs if not stopped & set(numbers))
    if programs != recorded.programs:
        recorded = recorded._replace(programs=programs)
        directory.write_programs(path, recorded)
    return recorded


def unplaced(pack: Pack, programs: Sequence[tuple[int, ...]], run_dirs: Mapping[int, Path]) -> list[Task]:
    """Return the members of a pack that have no program, but for those that the search has stopped."""
    placed = {number for numbers in programs for number in numbers}
    left = [task for task in pack.tasks if task.member.number not in placed]
    return [task for task in left if end_of(run_dirs[task.member.number]).kind != SEARCH]


def in_iterations(plan: Plan, packs: Sequence[Pack]) -> Plan:
    """Return a plan with the intervals of its search in iterations; "50k steps" is the nearest number of them.

    Raises ConfigError where members have iterations of different sizes.
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
    """Return the iterations of every member; ConfigError, before anything compiles, where a search cannot work."""
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
    """Raise ConfigError for a swept option that cannot change while a program trains."""
    known = {option.path: option for option in config.options(task.member.config)}
    if not plan.values:
        raise ConfigError(f"search: there is nothing to perturb; {NUMBERS}")
    for path, swept in plan.values.items():
        value: Any = task.member.values[path]
        option = known.get(path)
        plain = type(value) in (int, float) and (option is None or (option.leaf and option.kind is float))
        limits = {} if option is None else {key: option.limits[key] for key in LIMITS if key in option.limits}
        if plain and alike(task, with_values(task, {path: _nudged(float(value), *bounds(swept, limits))})):
            continue
        raise ConfigError(
            f"search: {path} = {value!r} is a size, a choice or a whole number, which cannot change while a program "
            f"trains; {NUMBERS}, or leave out the search"
        )


def _nudged(value: float, low: float, high: float) -> float:
    """Return another number between the bounds, if there is one."""
    step = abs(value) / 128 or 1e-3
    return value + step if value + step <= high else max(value - step, low)
