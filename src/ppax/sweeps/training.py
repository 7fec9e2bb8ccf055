"""Training of a sweep: stages between decisions, the compiled programs of each pack, the members of each program.

A member is a run of the sweep, a pack the members that one compiled program can train together. A program trains every
member to the same iteration, and members are saved together: a resume continues from the newest iteration of which all
of them have an intact checkpoint. If an iteration of a member is not finite, the member stays in the program, so that
the others compute the same, but its state no longer changes, and it is neither logged nor saved any more.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from ppax import config
from ppax.core.options import Config
from ppax.core.protocols import Agent, Row
from ppax.core.types import TrainState
from ppax.devices.footprint import available_bytes, explaining_memory, footprint
from ppax.run.directory import RUN_FILE
from ppax.run.fit import fit_run, resume
from ppax.run.logging import measured, next_row, row_intervals, untrained_row
from ppax.run.provenance import changed_provenance
from ppax.run.restore import planned_iterations
from ppax.run.result import Interrupted, NumericalError, record_evaluation
from ppax.run.saving import PATIENCE
from ppax.storage import safe_files
from ppax.storage.manifest import CheckpointError
from ppax.storage.safe_files import Backoff
from ppax.sweeps import directory, member
from ppax.sweeps.decisions import STOP, Searching
from ppax.sweeps.directory import Recorded, member_dir
from ppax.sweeps.member import FAULT, SEARCH, MemberRun, end_of, is_complete, reached, require_recorded
from ppax.sweeps.packing import Pack, Task, alike, task_config
from ppax.sweeps.progress import Counting, Progress
from ppax.training.sweeps import (
    MOST,
    SHARE,
    MemberStates,
    MembersTraining,
    filled,
    members_that_fit,
    stacked,
    with_learners,
)

T = TypeVar("T")
KEPT = 4  # most compiled programs that are kept


class SweepStopped(Exception):
    """Exception raised when a signal has stopped a sweep; its members (runs) are saved."""


@dataclasses.dataclass
class Session:
    """Sweep in training: its directory, what its files record, its progress, and the event by which a signal stops it.

    `recorded` is the content of sweep.toml and sweep.json. `train` is the function that trains packs (groups of members
    that share programs) to an iteration: `Programs.train` in this process, or `train_on_cluster` in
    sweeps/placing/driver.py.
    """

    path: Path
    recorded: Recorded
    progress: Progress
    stop: threading.Event
    train: Callable[[Session, Sequence[Pack], Searching, int], None]

    def run_dirs(self) -> dict[int, Path]:
        """Return the run directories of all members (runs) of the sweep, by number."""
        return {one.number: member_dir(self.path, one) for one in self.recorded.members}

    def record(self, **changed: Any) -> None:
        """Replace fields of `recorded` by the values in `changed`, and write sweep.json again.

        The fields are `members` (the sweep's runs) or `programs` (the numbers of each program's members).
        """
        self.recorded = self.recorded._replace(**changed)
        directory.write_programs(self.path, self.recorded)

    def train_stages(self, packs: Sequence[Pack], searching: Searching) -> None:
        """Train the packs of a sweep to their ends, in stages between which the search decides over all members (runs).

        A pack is the members that one compiled program can train together. Raises SweepStopped after a signal.
        """
        for until in searching.stages():
            self.progress.skip(dict.fromkeys(searching.decisions.stops(), searching.total))
            self.train(self, packs, searching, until)
            if until < searching.total:
                self._stop_members(searching, until)

    def _stop_members(self, searching: Searching, iteration: int) -> None:
        """Stop those members (runs) of the sweep that the search decides to stop at `iteration`.

        Compiled programs with a stopped member are removed from sweep.json; their other members get new programs.
        """
        training = {number: run_dir for number, run_dir in self.run_dirs().items() if not end_of(run_dir).kind}
        for number, one in searching.decide(iteration, training).items():
            if one.decision == STOP:
                member.stop(training[number], iteration, one.reason)
        stopped = searching.decisions.stops().keys()
        programs = tuple(numbers for numbers in self.recorded.programs if not stopped & set(numbers))
        if programs != self.recorded.programs:
            self.record(programs=programs)

    def unplaced(self, pack: Pack) -> list[Task]:
        """Return the members of `pack` that are in no recorded program, without those that the search has stopped.

        A pack is the sweep's members (runs) that one compiled program can train together.
        """
        placed = {number for numbers in self.recorded.programs for number in numbers}
        left = [task for task in pack.tasks if task.member.number not in placed]
        return [task for task in left if end_of(member_dir(self.path, task.member)).kind != SEARCH]

    def programs_of(self, pack: Pack) -> list[tuple[int, ...]]:
        """Return, for each recorded program of `pack`, the numbers of its members (runs); [] if there is none yet."""
        own = {task.member.number for task in pack.tasks}
        return [numbers for numbers in self.recorded.programs if own.issuperset(numbers)]


class Programs:
    """Compiled programs of this process that train members (runs) of a sweep, with a cache of the newest KEPT of them.

    A cached program trains further members that differ from the earlier ones in numbers alone.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Task, MembersTraining]] = []

    def train(self, session: Session, packs: Sequence[Pack], searching: Searching, until: int) -> None:
        """Train all packs of a sweep to iteration `until`, one program after the other.

        A pack is the members (runs) that one compiled program can train together. Programs that are not in the sweep's
        record are added to it. Raises SweepStopped after a signal.
        """
        for pack in packs:
            if session.stop.is_set():
                raise SweepStopped
            if pack.compiled:
                with explaining_memory(footprint(pack.shapes)):
                    self._train_pack(session, pack, searching, until)
            else:
                train_alone(pack.tasks[0], member_dir(session.path, pack.tasks[0].member), session.progress)

    def _train_pack(self, session: Session, pack: Pack, searching: Searching, until: int) -> None:
        new = session.unplaced(pack)
        if new:
            session.record(programs=(*session.recorded.programs, *self.chunks_of(pack, new)))
        chunks, run_dirs = session.programs_of(pack), session.run_dirs()
        largest = max(map(len, chunks), default=0)
        self.train_chunks(pack, chunks, largest, run_dirs, searching, until, session.progress, session.stop)

    def train_chunks(
        self,
        pack: Pack,
        chunks: Sequence[tuple[int, ...]],
        largest: int,
        run_dirs: Mapping[int, Path],
        searching: Searching,
        until: int,
        progress: Counting,
        stop: threading.Event,
    ) -> None:
        """Train the members (runs) of a pack to iteration `until`, with one compiled program for each of `chunks`.

        A chunk is a tuple of members' numbers; `largest` is the number of members in the pack's largest chunk. A
        smaller chunk is filled up to that number with copies of its members, so that one compiled program serves all
        chunks. A chunk of which a search has stopped members is not filled up: its other members train in a smaller
        program.
        """
        tasks = {task.member.number: task for task in pack.tasks}
        total = planned_iterations(pack.tasks[0].env, pack.tasks[0].run)
        for numbers in chunks:
            left = [tasks[number] for number in numbers if end_of(run_dirs[number]).kind != SEARCH]
            ended = {number: end_of(run_dirs[number]).env_steps for number in numbers if is_complete(run_dirs[number])}
            progress.skip(dict.fromkeys(ended, total), ended)
            if all(done(run_dirs[task.member.number], until, total) for task in left):
                continue
            program = self._program(pack, left, filled(largest if len(left) == len(numbers) else len(left)))
            with ExitStack() as stack:
                training = ProgramTraining(program, pack, left, run_dirs, searching, progress, stack)
                training.train(stop, min(until, total))

    def chunks_of(self, pack: Pack, tasks: Sequence[Task], most: int = MOST, sharing: int = 1) -> list[tuple[int, ...]]:
        """Return members split into chunks, one for each program: as few as memory allows, of about equal size.

        `tasks` are the members (runs), of the pack `pack`, and a chunk is a tuple of their numbers. A program has at
        most `most` members, or fewer if a lower bound on the memory of a member allows only fewer. If the compiled
        program still does not fit into memory, its number of members is halved until it does. `sharing` programs share
        the machine's memory.
        """
        free = available_bytes()
        available = None if free is None else free // sharing
        most = min(most, members_that_fit(footprint(pack.shapes), available))
        while True:
            size = -(-len(tasks) // -(-len(tasks) // most))
            program = self._program(pack, tasks, filled(size))
            if size == 1 or available is None or program.num_bytes <= SHARE * available:
                break
            most = -(-size // 2)
        numbers = [task.member.number for task in tasks]
        return [tuple(numbers[begin : begin + size]) for begin in range(0, len(numbers), size)]

    def _program(self, pack: Pack, tasks: Sequence[Task], size: int) -> MembersTraining:
        """Return a compiled program that trains `size` members (runs) at a time, for members `tasks` of `pack`.

        It comes from the cache, if there is a program of this size for members that differ from `tasks` in numbers
        alone.
        """
        for task, kept in self._kept:
            if kept.members == size and alike(task, tasks[0]):
                return kept
        made = MembersTraining(*agents_and_envs(tasks, size), pack.shapes)
        self._kept = [*self._kept[1 - KEPT :], (tasks[0], made)]
        return made


def done(run_dir: Path, until: int, total: int) -> bool:
    """Return True if the member (run) in `run_dir` has nothing left to do up to iteration `until`, of `total` in all.

    If `until` is the last iteration, the member must be evaluated, too.
    """
    return is_complete(run_dir) or (until < total and reached(run_dir, until))


def train_alone(task: Task, path: Path, progress: Counting) -> None:
    """Train and evaluate a member (run) with environments on the host, as an ordinary run in the directory `path`.

    Raises SweepStopped after a signal.
    """
    iterations = planned_iterations(task.env, task.run)
    if is_complete(path):
        progress.skip({task.member.number: iterations}, {task.member.number: end_of(path).env_steps})
        return
    begin = time.perf_counter()
    try:
        require_recorded(task, path)
        if (path / RUN_FILE).is_file():
            safe_files.write_text(path / RUN_FILE, config.to_toml(task_config(task)))  # edited options of its records
            trained = resume(path, console=False)
        else:
            agent, env, run = config.build(task.member.config)
            with contextlib.ExitStack() as stack:
                stack.callback(env.close)
                quiet = dataclasses.replace(run, log=dataclasses.replace(run.log, console=False))
                trained = fit_run(agent, env, quiet, path)
                stack.pop_all()
    except NumericalError:  # recorded in stopped.json
        progress.skip({task.member.number: iterations})
        return
    except Interrupted as error:
        raise SweepStopped from error
    with trained.env:
        settings = task.run.eval
        record_evaluation(
            trained, trained.evaluate(settings.episodes, settings.deterministic, task.run.seed, record=False)
        )
    progress.add({task.member.number: iterations}, trained.env_steps, time.perf_counter() - begin, trained.history[-1:])


class ProgramTraining:
    """Training and recording of the members (runs) of a sweep that one compiled program trains."""

    def __init__(
        self,
        program: MembersTraining,
        pack: Pack,
        tasks: Sequence[Task],
        run_dirs: Mapping[int, Path],
        searching: Searching,
        progress: Counting,
        stack: ExitStack,
    ):
        """Open the run directories of `tasks`, members (runs) of `pack`; they are closed with `stack`.

        `run_dirs` has these directories by member number. The members' states are restored later, by `train`.
        """
        changing = tasks[0].member.values.keys() if searching.search.perturbs else ()
        self.runs = [MemberRun(task, run_dirs[task.member.number], pack.shapes, stack, changing) for task in tasks]
        stack.push(self._close_loggers)
        self._program, self._progress = program, progress
        self._tasks, self._searching = list(tasks), searching
        _, _, env, self._run = tasks[0]
        self._total = planned_iterations(env, self._run)
        self._intervals = row_intervals(self._run, self._total, self._run.num_steps * env.num_streams)
        self._saved_at, self._disk = time.monotonic(), Backoff(PATIENCE)
        self._last: dict[int, TrainState] = {}  # states of members that train no more, by place

    @property
    def training(self) -> list[int]:
        """Indices, in the program, of the members (runs) that still train."""
        return [place for place, run in enumerate(self.runs) if not run.end]

    def train(self, stop: threading.Event, until: int) -> None:
        """Train the program's members (runs) to iteration `until`, and evaluate those that end.

        Raises SweepStopped if `stop` is set before all is done.
        """
        done, states = self.restore()
        self._take_values(done)
        self._last = {place: states[place] for place, run in enumerate(self.runs) if run.end}
        for place in self.training:
            self.runs[place].begin(states[place])
        self._warn_of_changes()
        if done == 0 and any(run.task.run.init_from.run is not None for run in self.runs):
            self._save(done, states)  # as a run of its own does: a resume needs the other run no more
        for run in self.runs:
            iteration, steps = (self._total, end_of(run.path).env_steps) if run.end else (done, run.env_steps)
            self._progress.skip({run.task.member.number: iteration}, {run.task.member.number: steps})
        for place in self.training:
            if self.runs[place].monitor.stop_reason:  # a kill came between its last row and the record of its end
                self._finish(place, states[place], "stopped")
        if done == 0 and self.runs[0].evaluations.blank:
            for place in self.training:
                self.runs[place].log(untrained_row(self._program.metric_names), states, place)
        trained = self._copied(stacked(filled_up(states, self._program.members)), done)
        while done < until and self.training and not stop.is_set():
            next_stage = min(until, self._searching.next_after(done), self.runs[0].evaluations.next_after(done))
            count = next_row(done, self._intervals, next_stage) - done
            begin = time.perf_counter()
            trained, metrics = self._program(trained, count, self._total)
            columns = dict(jax.device_get(metrics))
            seconds, done = time.perf_counter() - begin, done + count
            states = own = MemberStates(trained, len(self.runs))
            self._log(own, columns, count, done, seconds)
            self._save_if_due(done, states)
            trained = self._copied(trained, done)
        self._end(done, states, until, stop.is_set())

    def _close_loggers(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Close the loggers of all members in parallel: the sweep waits only once for slow servers.

        `error` is that with which the sweep ends, if any. A sweep that a signal stops can be resumed: that is none.
        """
        error = None if isinstance(error, SweepStopped) else error
        with ThreadPoolExecutor(len(self.runs)) as threads:
            list(threads.map(lambda run: run.close_loggers(error), self.runs))

    def restore(self) -> tuple[int, Sequence[TrainState]]:
        """Return the iteration from which the program continues, and the states of its members (runs) there.

        It is the newest iteration of which all members that still train have an intact checkpoint, or 0, the start. For
        members that have ended, the result has their last state. Population-based training is an exception, as the
        learner of a member that has ended may be copied to others: a member that ended after that iteration continues
        there, too, and is trained to its end again.
        """
        active = [self.runs[place] for place in self.training]
        together = self.runs if active and self._searching.search.perturbs else active
        saved = {run.path: {*run.saved(), 0} for run in together}
        for iteration in sorted({0}.union(*saved.values()), reverse=True):
            again = [run for run in together if run.end and not run.ended_before(iteration)]
            training = [*active, *again]
            if not all(iteration in saved[run.path] for run in training):
                continue
            try:
                states = [self._state(run, iteration, run in training) for run in self.runs]
            except CheckpointError as error:
                if iteration == 0:
                    raise
                warnings.warn(f"skipped a damaged checkpoint: {error}", stacklevel=2)
                continue
            if iteration == 0 and active and all(max(saved[run.path]) for run in active):
                text = "the members have no checkpoint of one iteration, as after a resume of one of them alone"
                warnings.warn(f"{text}: they begin again", stacklevel=2)
            for run in again:
                run.end = ""
            return iteration, states
        raise AssertionError("unreachable: iteration 0 returns or raises")

    def _state(self, run: MemberRun, iteration: int, trains: bool) -> TrainState:
        saved = run.saved()
        if not trains:
            return run.load(saved[-1]) if saved else run.initial()
        return run.load(iteration) if iteration in saved else run.initial()

    def _warn_of_changes(self) -> None:
        """Warn if the members' (runs') checkpoints were saved with other devices, or another version of JAX, than now.

        There is one warning for each difference, with the names of the members that have it.
        """
        found: dict[str, list[str]] = {}
        for place in self.training:
            run = self.runs[place]
            for text in changed_provenance(run.saved_by, run.origin):
                found.setdefault(text, []).append(run.path.name)
        for text, names in found.items():
            warnings.warn(f"members {', '.join(names)}: {text}", stacklevel=3)

    def _take_values(self, iteration: int) -> None:
        """Set the swept values of the members (runs) as they are just before the search's decisions at `iteration`.

        Only population-based training changes values. Its decisions at `iteration` itself are applied afterwards, by
        `_copied`.
        """
        for place, run in enumerate(self.runs):
            self._set(place, self._searching.values(run.task.member, iteration))
        self._program.set_members(*agents_and_envs(self._tasks, self._program.members))

    def _set(self, place: int, values: Config) -> None:
        """Set the swept values of the member (run) at index `place` of the program, if the search changes values."""
        if self._searching.search.perturbs:
            self.runs[place].take_values(values)
            self._tasks[place] = self.runs[place].task

    def _copied(self, trained: TrainState, iteration: int) -> TrainState:
        """Return the states `trained` of the program's members after the search's copies of learners at `iteration`.

        If no copies are made there, they are returned unchanged.
        """
        training = self.training
        if not self._searching.search.perturbs or not training or not self._searching.decides_at(iteration):
            return trained
        places = {self.runs[place].task.member.number: place for place in training}
        found = self._searching.decide(iteration, {number: self.runs[place].path for number, place in places.items()})
        sources = np.arange(self._program.members)
        for number, place in places.items():
            source = found[number].source
            if source is not None:
                sources[place] = places[source]
                self._set(place, self._searching.values(self.runs[place].task.member, iteration + 1))
        if (sources == np.arange(self._program.members)).all():
            return trained
        self._program.set_members(*agents_and_envs(self._tasks, self._program.members))
        return with_learners(trained, sources)

    def _log(self, states: MemberStates, columns: dict[str, np.ndarray], count: int, done: int, seconds: float) -> None:
        """Log a row for each member that trains, over the `count` iterations up to `done`, which took `seconds`.

        `columns` are the metrics by name, each [members]. A member's run ends here if a stop condition is met, or if
        its state is at an iteration before `done`: the iteration after it was not finite and has been discarded.
        """
        training, rows, steps, ends = self.training, list[Row](), 0, dict[int, str]()
        share = seconds / len(training)  # each member's part of the time
        for place in training:
            run, iteration = self.runs[place], int(states.iterations[place])
            if iteration > run.iteration:
                new = states.env_steps(place) - run.env_steps
                row: Row = {"iteration": iteration, "env_steps": run.env_steps + new}
                row |= {name: float(x[place]) for name, x in columns.items()}
                row |= measured(share, iteration - run.iteration, new, run.seconds, self._program.compile_seconds)
                rows, steps = [*rows, row], steps + new
                if run.log(row, states, place):
                    ends[place] = "stopped"
            if iteration < done and place not in ends:  # its iteration does not advance where the next is not finite
                ends[place] = FAULT
        if ends and self._searching.search.perturbs:
            self._save(done, states)  # first: a resume from before an end would copy from members that train no more
        for place, kind in ends.items():
            self._finish(place, states[place], kind)
        numbers = {place: self.runs[place].task.member.number for place in training}
        self._progress.skip({numbers[place]: self._total for place in training if self.runs[place].end})
        self._progress.add({numbers[place]: done for place in self.training}, steps, seconds, rows)

    def _finish(self, place: int, state: TrainState, kind: str) -> None:
        self._last[place] = state
        self.runs[place].finish(state, kind)

    def _save_if_due(self, iteration: int, states: Sequence[TrainState]) -> None:
        """Save all members (runs) of the program that still train, if a checkpoint is due.

        Raises OSError if writes have failed for PATIENCE seconds.
        """
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
        """Save all members (runs) of the program, and evaluate those that have ended.

        `done` is the iteration that `states` have reached. Raises SweepStopped if a signal has stopped training
        (`stopped`) before iteration `until`.
        """
        self._save(done, states)
        if self.training and done < until and stopped:
            for place in self.training:
                self.runs[place].monitor.record(self.runs[place].path, states[place], "signal")
            raise SweepStopped
        for place in self.training if done == self._total else ():
            self._finish(place, states[place], "done")
        for place, state in self._last.items():
            self.runs[place].evaluate(state)


def filled_up(items: Sequence[T], count: int) -> list[T]:
    """Return a list of `count` items: `items`, repeated from the first on as often as needed.

    The caller ignores results for the repetitions.
    """
    return list(itertools.islice(itertools.cycle(items), count))


def agents_and_envs(tasks: Sequence[Task], count: int) -> tuple[list[Agent], list[Any]]:
    """Return `count` agents and `count` environments for a program: those of `tasks`, repeated if too few."""
    own = filled_up(tasks, count)
    return [task.agent for task in own], [task.env for task in own]
