"""Training of the members of a pack: all in one compiled program, or one after the other on the host.

A program trains every member to the same iteration, and members are saved together: a resume continues from the newest
iteration of which all of them have an intact checkpoint. A member that is not finite keeps its place in the program, so
that the others compute the same, and is left out of everything else: its state no longer changes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ppax import config
from ppax.program.fetching import fetch
from ppax.program.members import Apart, MembersTraining, stacked
from ppax.protocols import Agent, Row
from ppax.run.directory import RUN_FILE
from ppax.run.fit import fit_run, resume
from ppax.run.restore import planned_iterations
from ppax.run.result import Interrupted, NumericalError, record_evaluation
from ppax.run.rows import Timing, measured, next_row, row_intervals, untrained_row
from ppax.run.saving import PATIENCE
from ppax.storage.backoff import Backoff
from ppax.storage.manifest import CheckpointError
from ppax.sweeps.member import FAULT, MemberRun, complete
from ppax.sweeps.packing import Pack, Task
from ppax.sweeps.progress import Counting
from ppax.types import TrainState

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

    def __init__(self, pack: Pack, tasks: Sequence[Task], directory: Callable[[Task], Path], stack: ExitStack):
        """Open the run directories of `tasks`, members of `pack`; they are closed with `stack`."""
        self.runs = [MemberRun(task, directory(task), pack.shapes, stack) for task in tasks]
        _, _, env, self._run = tasks[0]
        self._total = planned_iterations(env, self._run)
        self._intervals = row_intervals(self._run, self._total, self._run.num_steps * env.num_streams)
        self._saved_at, self._disk = time.monotonic(), Backoff(PATIENCE)
        self._last: dict[int, TrainState] = {}  # states of members that train no more, by place

    @property
    def training(self) -> list[int]:
        """Places of the members that still train."""
        return [place for place, member in enumerate(self.runs) if not member.end]

    def restore(self) -> tuple[int, list[TrainState]]:
        """Return the iteration and states to continue from; members that have ended keep their last state."""
        active = [self.runs[place] for place in self.training]
        common = sorted(set.intersection(*(set(member.saved()) for member in active))) if active else []
        for iteration in [*reversed(common), 0]:
            try:
                return iteration, [self._state(member, iteration) for member in self.runs]
            except CheckpointError as error:
                if iteration == 0:
                    raise
                warnings.warn(f"skipped a damaged checkpoint: {error}", stacklevel=2)
        raise AssertionError("unreachable: iteration 0 returns or raises")

    def _state(self, member: MemberRun, iteration: int) -> TrainState:
        if member.end:
            saved = member.saved()
            return member.load(saved[-1]) if saved else member.initial()
        return member.load(iteration) if iteration in member.saved() else member.initial()

    def train(self, program: MembersTraining, progress: Counting, stop: threading.Event) -> None:
        """Train all members to their ends and evaluate them; Stopped if `stop` is set before."""
        done, restored = self.restore()
        states: Sequence[TrainState] = restored
        tasks = [member.task for member in self.runs]
        program.set_members(*objects_of(tasks, program.members))
        self._last = {i: states[i] for i, member in enumerate(self.runs) if member.end}
        for place in self.training:
            self.runs[place].begin(states[place])
        progress.skip(sum(done if place in self.training else self._total for place in range(len(tasks))))
        if done == 0 and self.runs[0].evaluations.blank:
            for place in self.training:
                self.runs[place].log(untrained_row(program.metric_names), states, place)
        trained = stacked(repeated(states, program.members))
        while done < self._total and self.training and not stop.is_set():
            count = next_row(done, self._intervals, self.runs[0].evaluations.next_after(done)) - done
            begin = time.perf_counter()
            trained, metrics = program(trained, count, self._total)
            columns = {name: np.asarray(x) for name, x in fetch(dict(metrics)).items()}
            seconds, done = time.perf_counter() - begin, done + count
            states = own = Apart(trained, len(tasks))
            self._log(program, own, columns, count, done, seconds, progress)
            self._save_if_due(done, states)
        self._end(done, states)

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
        training, rows, steps = self.training, list[Row](), 0
        share, timing = seconds / len(training), Timing(program.compile_seconds)  # each member's part of the time
        for place in training:
            member, iteration = self.runs[place], int(states.iterations[place])
            if iteration > member.iteration:
                new = states.env_steps(place) - member.env_steps
                row: Row = {"iteration": iteration, "env_steps": member.env_steps + new}
                row |= {name: float(x[place]) for name, x in columns.items()}
                row |= measured(timing, share, iteration - member.iteration, new, member.seconds)
                rows, steps = [*rows, row], steps + new
                if member.log(row, states, place):
                    self._finish(place, states[place], "stopped")
            if iteration < done and not member.end:  # it stands still where its next iteration is not finite
                self._finish(place, states[place], FAULT)
        progress.add(count * len(training), steps, seconds, [x["episode_return"] for x in rows], len(self.training))
        progress.skip((self._total - done) * (len(training) - len(self.training)))

    def _finish(self, place: int, state: TrainState, kind: str) -> None:
        self._last[place] = state
        self.runs[place].finish(state, kind)

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
        for place in self.training:  # only now: a kill in between leaves the checkpoints before
            self.runs[place].prune(iteration)
        self._saved_at = time.monotonic()

    def _end(self, done: int, states: Sequence[TrainState]) -> None:
        """Save and evaluate members that are done; raise Stopped if others are not."""
        self._save(done, states)
        if self.training and done < self._total:
            for place in self.training:
                self.runs[place].monitor.record(self.runs[place].path, states[place], "signal")
            raise Stopped
        for place in self.training:
            self._finish(place, states[place], "done")
        for place, member in enumerate(self.runs):
            member.evaluate(self._last[place])


def train_alone(task: Task, path: Path, progress: Counting) -> None:
    """Train and evaluate a member whose environments are on the host, as a run of its own."""
    iterations = planned_iterations(task.env, task.run)
    if complete(path):
        progress.skip(iterations)
        return
    begin = time.perf_counter()
    try:
        if (path / RUN_FILE).is_file():
            trained = resume(path, console=False)
        else:
            agent, env, run = config.build(task.member.config)
            with contextlib.ExitStack() as stack:
                stack.callback(env.close)
                quiet = dataclasses.replace(run, log=dataclasses.replace(run.log, console=False))
                trained = fit_run(agent, env, quiet, path)
                stack.pop_all()
    except NumericalError:  # recorded in stopped.json
        progress.skip(iterations)
        return
    except Interrupted as error:
        raise Stopped from error
    with trained.env:
        settings = task.run.eval
        record_evaluation(trained, trained.evaluate(settings.episodes, settings.deterministic, task.run.seed))
    returns = [row["episode_return"] for row in trained.history[-1:]]
    progress.add(iterations, trained.env_steps, time.perf_counter() - begin, returns, 1)
