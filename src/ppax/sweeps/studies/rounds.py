"""Rounds of a study of Optuna: ask for settings, train their members together, tell their scores."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ppax.core.imports import Untrusted
from ppax.core.protocols import Copy, Standings, Stop
from ppax.core.types import ConfigError
from ppax.reports.statistics import iqm
from ppax.run.directory import read_evaluation
from ppax.sweeps import plan
from ppax.sweeps.decisions import Decisions, Searching, checked_total
from ppax.sweeps.directory import Recorded, member_dir
from ppax.sweeps.member import is_complete, stop
from ppax.sweeps.packing import Pack, packed
from ppax.sweeps.plan import Member
from ppax.sweeps.studies.study import Best, Proposed, Study
from ppax.sweeps.training import Session, SweepStopped

WAIT_SECONDS = 2.0  # interval at which the trials of other workers are polled
LOST = "repeated by another worker, after a pause here"


class TrialBatch(NamedTuple):
    """Trials of a study that train together: the members (runs) of each by trial number, and all members in packs.

    A pack is the members that one compiled program can train.
    """

    trials: Mapping[int, tuple[Member, ...]]
    packs: Sequence[Pack]


def train_study(session: Session) -> Best | None:
    """Train trials of a study until its budget is spent and no other worker trains; return the best trial.

    The result is None if no trial of the study has a value. Raises SweepStopped after a signal, ConfigError where this
    sweep has trained nothing: the budget was spent before, or all proposed settings are invalid.
    """
    with Study(session.path, session.recorded.plan, session.recorded.run_config) as study:
        while True:
            batch = _next_batch(session, study)
            if batch is None and not study.others():
                break
            if batch is not None and batch.trials:
                _train(session, batch, study)
            elif session.stop.wait(WAIT_SECONDS if batch is None else 0.0):
                raise SweepStopped
        if not session.recorded.members:
            refused = study.refused()
            if refused:
                raise ConfigError(
                    f"search.study = {study.settings.study!r}: none of the {len(refused)} trials that it has proposed "
                    f"can be trained; change [sweep]. The last one: {refused[-1]}"
                )
            raise ConfigError(
                f"search.study = {study.settings.study!r}: its {study.settings.trials} trials are done; raise "
                "search.trials, or name another study"
            )
        return study.best()


def _next_batch(session: Session, study: Study) -> TrialBatch | None:
    """Return the trials to train next: those that this sweep directory has begun, else new ones, which are recorded.

    The result is None if the study's budget of trials is spent. A batch has no trials if all that were proposed for it
    are invalid.
    """
    begun: dict[int, tuple[Member, ...]] = {}
    for member in session.recorded.members:
        begun[member.setting] = (*begun.get(member.setting, ()), member)
    left = {number: members for number, members in begun.items() if study.runs(number)}
    for number in begun.keys() - left.keys():
        _give_up(session.path, begun[number])
    if left:
        return TrialBatch(left, packed(one for members in left.values() for one in members))
    asked = study.unrecorded(begun)
    count = study.settings.batch - len(asked)
    asked += study.ask(count) if count > 0 else []
    if not asked:
        return None
    batch = _built(session.recorded, asked, study)
    session.record(members=(*session.recorded.members, *(one for own in batch.trials.values() for one in own)))
    return batch


def _give_up(path: Path, members: Sequence[Member]) -> None:
    """Record as stopped those of `members` (runs) that are not complete, because another worker repeats their trial."""
    for member in members:
        run_dir = member_dir(path, member)
        if not is_complete(run_dir):
            run_dir.mkdir(parents=True, exist_ok=True)
            stop(run_dir, 0, LOST)


def _built(recorded: Recorded, asked: Sequence[Proposed], study: Study) -> TrialBatch:
    """Return the trials `asked` with their members (runs), for which agents and environments are built.

    A trial whose setting is invalid is left out, with a warning, and the study is told that it is pruned.
    """
    trials: dict[int, tuple[Member, ...]] = {}
    seeds, count = plan.seeds_of(recorded.run_config, recorded.plan), len(recorded.members)
    for one in asked:
        try:
            numbers = range(count, count + len(seeds))
            own = tuple(
                plan.member(recorded.run_config, number, one.number, one.values, seed)
                for number, seed in zip(numbers, seeds, strict=True)
            )
            packed(own)
        except Untrusted:
            raise
        except ConfigError as error:
            warnings.warn(f"trial {one.number} cannot be trained: {error}", stacklevel=2)
            study.tell(one.number, math.nan, str(error), Path())
            continue
        trials[one.number], count = own, count + len(seeds)
    return TrialBatch(trials, packed(member for own in trials.values() for member in own))


def _train(session: Session, batch: TrialBatch, study: Study) -> None:
    """Train the members (runs) of a batch of trials to their ends, and tell the study the values of the trials."""
    recorded = session.recorded
    total = checked_total(recorded.plan, batch.packs)
    of_member = {member.number: number for number, members in batch.trials.items() for member in members}

    def decide(standings: Standings) -> list[Stop | Copy]:
        scores: dict[int, list[float]] = {}
        for member, score in standings.scores.items():
            scores.setdefault(of_member[member], []).append(score)
        ended = study.prunes({trial: math.fsum(own) / len(own) for trial, own in scores.items()}, standings.iteration)
        return [Stop(member, ended[of_member[member]]) for member in standings.scores if of_member[member] in ended]

    session.train_stages(batch.packs, Searching(session.path, recorded.plan, recorded.members, total, decide))
    run_dirs, stops = session.run_dirs(), Decisions(session.path).stops()
    for number, members in batch.trials.items():
        stopped = next((stops[member.number].reason for member in members if member.number in stops), "")
        scores = [_score(read_evaluation(run_dirs[member.number])) for member in members]
        dropped = "" if all(map(math.isfinite, scores)) else "a member was dropped, or has no score"
        study.tell(number, iqm(scores), stopped or dropped, run_dirs[members[0].number])


def _score(evaluation: Mapping[str, Any]) -> float:
    value: Any = evaluation.get("mean_return")
    return float(value) if type(value) in (int, float) else math.nan
