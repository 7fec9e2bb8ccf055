"""Training of the members of a pack in one compiled program.

A program trains every member to the same iteration, and members are saved together: a resume continues from the newest
iteration of which all of them have an intact checkpoint. A member that is not finite keeps its place in the program, so
that the others compute the same, and is left out of everything else: its state no longer changes.
"""

from __future__ import annotations

import itertools
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from ppax.core.options import Config
from ppax.core.protocols import Agent, Row
from ppax.core.types import TrainState
from ppax.run.logging import measured, next_row, row_intervals, untrained_row
from ppax.run.provenance import changes
from ppax.run.restore import planned_iterations
from ppax.run.saving import PATIENCE
from ppax.storage.backoff import Backoff
from ppax.storage.manifest import CheckpointError
from ppax.sweeps.decisions import STOP
from ppax.sweeps.member import FAULT, SEARCH, MemberRun, end_of
from ppax.sweeps.packing import Pack, Task
from ppax.sweeps.progress import Counting
from ppax.sweeps.searching import Searching
from ppax.training.sweeps import Apart, MembersTraining, filled, stacked, with_learners

T = TypeVar("T")


class Stopped(Exception):
    """A signal has stopped the sweep; its members are saved."""


def repeated(items: Sequence[T], count: int) -> list[T]:
    """Return `count` items: those given, and again those at the beginning, whose results are dropped."""
    return list(itertools.islice(itertools.cycle(items), count))


def objects_of(tasks: Sequence[Task], count: int) -> tuple[list[Agent], list[Any]]:
    """Return agents and environments of `count` members: those of the tasks, repeated."""
    own = repeated(tasks, count)
    return [task.agent for task in own], [task.env for task in own]


class Together:
    """Members of one pack in one compiled program."""

    def __init__(
        self,
        pack: Pack,
        tasks: Sequence[Task],
        directory: Callable[[Task], Path],
        searching: Searching,
        stack: ExitStack,
    ):
        """Open the run directories of `tasks`, members of `pack`; they are closed with `stack`."""
        changing = tasks[0].member.values.keys() if searching.search.perturbs else ()
        self.runs = [MemberRun(task, directory(task), pack.shapes, stack, changing) for task in tasks]
        _, _, env, self._run = tasks[0]
        self._tasks, self._searching = list(tasks), searching
        self._total = planned_iterations(env, self._run)
        self._intervals = row_intervals(self._run, self._total, self._run.num_steps * env.num_streams)
        self._saved_at, self._disk = time.monotonic(), Backoff(PATIENCE)
        self._last: dict[int, TrainState] = {}  # states of members that train no more, by place

    @property
    def training(self) -> list[int]:
        """Places of the members that still train."""
        return [place for place, member in enumerate(self.runs) if not member.end]

    def restore(self) -> tuple[int, Sequence[TrainState]]:
        """Return the iteration and states to continue from; members that have ended keep their last state.

        Where others copy learners, a member that ended later than that is trained to its end again.
        """
        active = [self.runs[place] for place in self.training]
        together = self.runs if active and self._searching.search.perturbs else active
        saved = {member.path: {*member.saved(), 0} for member in together}
        for iteration in sorted({0}.union(*saved.values()), reverse=True):
            again = [member for member in together if member.end and not member.ended_before(iteration)]
            training = [*active, *again]
            if not all(iteration in saved[member.path] for member in training):
                continue
            try:
                states = [self._state(member, iteration, member in training) for member in self.runs]
            except CheckpointError as error:
                if iteration == 0:
                    raise
                warnings.warn(f"skipped a damaged checkpoint: {error}", stacklevel=2)
                continue
            if iteration == 0 and active and all(max(saved[member.path]) for member in active):
                text = "the members have no checkpoint of one iteration, as after a resume of one of them alone"
                warnings.warn(f"{text}: they begin again", stacklevel=2)
            for member in again:
                member.end = ""
            return iteration, states
        raise AssertionError("unreachable: iteration 0 returns or raises")

    def _state(self, member: MemberRun, iteration: int, trains: bool) -> TrainState:
        saved = member.saved()
        if not trains:
            return member.load(saved[-1]) if saved else member.initial()
        return member.load(iteration) if iteration in saved else member.initial()

    def train(self, program: MembersTraining, progress: Counting, stop: threading.Event, until: int) -> None:
        """Train all members to iteration `until`, evaluate those at their ends; Stopped if `stop` is set before.

        Returns before `until` where the search has stopped so many that a smaller program can train the others.
        """
        done, states = self.restore()
        self._take_values(program, done)
        self._last = {i: states[i] for i, member in enumerate(self.runs) if member.end}
        for place in self.training:
            self.runs[place].begin(states[place])
        self._warn_of_changes()
        if done == 0 and self._run.init_from.run is not None:
            self._save(done, states)  # as a run of its own does: a resume needs the other run no more
        for run in self.runs:
            iteration, steps = (self._total, end_of(run.path).env_steps) if run.end else (done, run.env_steps)
            progress.skip({run.task.member.number: iteration}, {run.task.member.number: steps})
        for place in self.training:
            if self.runs[place].monitor.stop_reason:  # a kill came between its last row and the record of its end
                self._finish(place, states[place], "stopped")
        if done == 0 and self.runs[0].evaluations.blank:
            for place in self.training:
                self.runs[place].log(untrained_row(program.metric_names), states, place)
        trained = self._searched(program, stacked(repeated(states, program.members)), states, done, progress)
        while done < until and self._needed(program) and not stop.is_set():
            next_stage = min(until, self._searching.next_after(done), self.runs[0].evaluations.next_after(done))
            count = next_row(done, self._intervals, next_stage) - done
            begin = time.perf_counter()
            trained, metrics = program(trained, count, self._total)
            columns = dict(jax.device_get(metrics))
            seconds, done = time.perf_counter() - begin, done + count
            states = own = Apart(trained, len(self.runs))
            self._log(program, own, columns, count, done, seconds, progress)
            self._save_if_due(done, states)
            trained = self._searched(program, trained, states, done, progress)
        self._end(done, states, until, stop.is_set())

    def _warn_of_changes(self) -> None:
        """Warn, once for all members, where devices or versions differ from those of their checkpoints."""
        found: dict[str, list[str]] = {}
        for place in self.training:
            member = self.runs[place]
            for text in changes(member.saved_by, member.origin):
                found.setdefault(text, []).append(member.path.name)
        for text, names in found.items():
            warnings.warn(f"members {', '.join(names)}: {text}", stacklevel=3)

    def _needed(self, program: MembersTraining) -> bool:
        """Whether this program goes on: a member trains, and a program for the members left would be no smaller."""
        left = sum(member.end != SEARCH for member in self.runs)
        return bool(self.training) and (left == len(self.runs) or filled(left) == program.members)

    def _take_values(self, program: MembersTraining, iteration: int) -> None:
        """Set the values that the members have as they reach `iteration`, before the decisions there."""
        for place, run in enumerate(self.runs):
            self._set(place, self._searching.values(run.task.member, iteration))
        program.set_members(*objects_of(self._tasks, program.members))

    def _set(self, place: int, values: Config) -> None:
        """Set the swept values of a member."""
        if self._searching.search.perturbs:
            self.runs[place].take_values(values)
            self._tasks[place] = self.runs[place].task

    def _searched(
        self,
        program: MembersTraining,
        trained: TrainState,
        states: Sequence[TrainState],
        iteration: int,
        progress: Counting,
    ) -> TrainState:
        """Return the states of a program after the search's decisions at `iteration`, if it decides there.

        A search over all members of the sweep at once decides when all programs have reached `iteration` (packs.py).
        """
        searching, training = self._searching, self.training
        if searching.search.waits or not training or not searching.decides_at(iteration):
            return trained
        places = {self.runs[place].task.member.number: place for place in training}
        found = searching.decide(iteration, {number: self.runs[place].path for number, place in places.items()})
        if any(one.decision == STOP for one in found.values()):
            self._save(iteration, states)  # first: the others continue from here, in a smaller program
        sources = np.arange(program.members)
        for number, place in places.items():
            one = found[number]
            if one.decision == STOP:
                self._finish(place, states[place], SEARCH, one.reason)
                progress.skip({number: self._total})
            elif one.source is not None:  # a copy
                sources[place] = places[one.source]
                self._set(place, searching.values(self.runs[place].task.member, iteration + 1))
        if (sources == np.arange(program.members)).all():
            return trained
        program.set_members(*objects_of(self._tasks, program.members))
        return with_learners(trained, sources)

    def _log(
        self,
        program: MembersTraining,
        states: Apart,
        columns: dict[str, np.ndarray],
        count: int,
        done: int,
        seconds: float,
        progress: Counting,
    ) -> None:
        """Log a row for each member, of `count` iterations up to `done`; end those that are done or not finite."""
        training, rows, steps, ends = self.training, list[Row](), 0, dict[int, str]()
        share = seconds / len(training)  # each member's part of the time
        for place in training:
            member, iteration = self.runs[place], int(states.iterations[place])
            if iteration > member.iteration:
                new = states.env_steps(place) - member.env_steps
                row: Row = {"iteration": iteration, "env_steps": member.env_steps + new}
                row |= {name: float(x[place]) for name, x in columns.items()}
                row |= measured(share, iteration - member.iteration, new, member.seconds, program.compile_seconds)
                rows, steps = [*rows, row], steps + new
                if member.log(row, states, place):
                    ends[place] = "stopped"
            if iteration < done and place not in ends:  # its iteration does not advance where the next is not finite
                ends[place] = FAULT
        if ends and self._searching.search.perturbs:
            self._save(done, states)  # first: a resume from before an end would copy from members that train no more
        for place, kind in ends.items():
            self._finish(place, states[place], kind)
        numbers = {place: self.runs[place].task.member.number for place in training}
        progress.skip({numbers[place]: self._total for place in training if self.runs[place].end})
        reached = {numbers[place]: done for place in self.training}
        progress.add(reached, steps, seconds, rows)

    def _finish(self, place: int, state: TrainState, kind: str, why: str = "") -> None:
        self._last[place] = state
        self.runs[place].finish(state, kind, why)

    def _save_if_due(self, iteration: int, states: Sequence[TrainState]) -> None:
        """Save all members that still train; OSError if writes failed for PATIENCE."""
        log = self._run.log
        due = time.monotonic() - self._saved_at >= log.checkpoint_seconds
        if log.checkpoint_every is not None:
            due = iteration % log.checkpoint_every == 0
        if not (self._disk.due if self._disk.failing else due):
            return
        try:
            self._save(iteration, states)
        except OSError as error:
            delay = self._disk.failed()
            if self._disk.hopeless:
                raise
            text = f"checkpoints failed ({error}); the earlier ones are kept, next attempt in {delay:.1f} s"
            warnings.warn(text, stacklevel=2)
        else:
            self._disk.succeeded()

    def _save(self, iteration: int, states: Sequence[TrainState]) -> None:
        for place in self.training:
            self.runs[place].save(states[place])
        for place in self.training:  # after all are saved: a kill before this leaves the previous checkpoints
            self.runs[place].prune(iteration)
        self._saved_at = time.monotonic()

    def _end(self, done: int, states: Sequence[TrainState], until: int, stopped: bool) -> None:
        """Save all and evaluate members that are done; raise Stopped if a signal ended the training of others."""
        self._save(done, states)
        if self.training and done < until and stopped:
            for place in self.training:
                self.runs[place].monitor.record(self.runs[place].path, states[place], "signal")
            raise Stopped
        for place in self.training if done == self._total else ():
            self._finish(place, states[place], "done")
        for place, state in self._last.items():
            self.runs[place].evaluate(state)
