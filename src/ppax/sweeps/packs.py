"""Packs of members that share a compiled program, and their training here or on a cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ppax import config
from ppax.devices.footprint import available_bytes, explained, footprint
from ppax.run.directory import RUN_FILE
from ppax.run.fit import fit_run, resume
from ppax.run.restore import planned_iterations
from ppax.run.result import Interrupted, NumericalError, record_evaluation
from ppax.sweeps import directory
from ppax.sweeps.directory import Recorded, member_dir
from ppax.sweeps.member import SEARCH, complete, end_of, reached, require_recorded
from ppax.sweeps.packing import Pack, Task, alike
from ppax.sweeps.progress import Counting, Progress
from ppax.sweeps.searching import Searching, stop_members, unplaced
from ppax.sweeps.training import Stopped, Together, objects_of
from ppax.training.sweeps import MOST, SHARE, MembersTraining, filled, members_that_fit

# Packing of members into compiled programs: those that differ in numbers alone share one.


# Training of a member whose environments are on the host: a run of its own.


def train_alone(task: Task, path: Path, progress: Counting) -> None:
    """Train and evaluate a member whose environments are on the host, as a run of its own."""
    iterations = planned_iterations(task.env, task.run)
    if complete(path):
        progress.skip({task.member.number: iterations}, {task.member.number: end_of(path).env_steps})
        return
    begin = time.perf_counter()
    try:
        require_recorded(task, path)
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
        progress.skip({task.member.number: iterations})
        return
    except Interrupted as error:
        raise Stopped from error
    with trained.env:
        settings = task.run.eval
        record_evaluation(trained, trained.evaluate(settings.episodes, settings.deterministic, task.run.seed))
    progress.add({task.member.number: iterations}, trained.env_steps, time.perf_counter() - begin, trained.history[-1:])


KEPT = 4  # most compiled programs that are kept


class Programs:
    """Compiled programs, the newest ones, for further members with equal static parts."""

    def __init__(self) -> None:
        self._kept: list[tuple[Task, MembersTraining]] = []

    def program(self, pack: Pack, tasks: Sequence[Task], size: int) -> MembersTraining:
        """Return a program of `size` members for `tasks`, of `pack`."""
        for task, kept in self._kept:
            if kept.members == size and alike(task, tasks[0]):
                return kept
        made = MembersTraining(*objects_of(tasks, size), pack.shapes)
        self._kept = [*self._kept[1 - KEPT :], (tasks[0], made)]
        return made


class Place(NamedTuple):
    """Place where packs train: this process with its programs, or a cluster with `elsewhere`, as `driver.train`."""

    programs: Programs
    elsewhere: Callable[[Path, Recorded, Sequence[Pack], int, Progress, threading.Event], Recorded] | None = None


def train_stages(
    path: Path,
    recorded: Recorded,
    packs: Sequence[Pack],
    searching: Searching,
    place: Place,
    progress: Progress,
    stop: threading.Event,
) -> Recorded:
    """Train packs to their ends, in stages between decisions over all members; return the record with programs."""
    for until in searching.stages():
        progress.skip(dict.fromkeys(searching.decisions.stops(), searching.total))
        if place.elsewhere is None:
            recorded = _train_here(path, recorded, packs, searching, until, place.programs, progress, stop)
        else:
            recorded = place.elsewhere(path, recorded, packs, until, progress, stop)
        if until < searching.total:
            recorded = stop_members(path, recorded, searching, until)
    return recorded


def _train_here(
    path: Path,
    recorded: Recorded,
    packs: Sequence[Pack],
    searching: Searching,
    until: int,
    programs: Programs,
    progress: Progress,
    stop: threading.Event,
) -> Recorded:
    """Train all packs to iteration `until` in this process; return the record with their programs."""
    for pack in packs:
        if stop.is_set():
            raise Stopped
        if pack.compiled:
            with explained(footprint(pack.shapes)):
                recorded = _train_pack(path, recorded, pack, searching, until, programs, progress, stop)
        else:
            train_alone(pack.tasks[0], member_dir(path, pack.tasks[0].member), progress)
    return recorded


def _train_pack(
    path: Path,
    recorded: Recorded,
    pack: Pack,
    searching: Searching,
    until: int,
    programs: Programs,
    progress: Progress,
    stop: threading.Event,
) -> Recorded:
    """Train a pack to iteration `until`, one program after the other; return the record with these programs."""
    run_dirs = {task.member.number: member_dir(path, task.member) for task in pack.tasks}
    known = [numbers for numbers in recorded.programs if set(numbers) <= run_dirs.keys()]
    new = unplaced(pack, known, run_dirs)
    if new:
        chunks = chunks_of(pack, new, programs)
        known = [*known, *chunks]
        recorded = recorded._replace(programs=(*recorded.programs, *chunks))
        directory.write_programs(path, recorded)
    train_programs(pack, known, max(map(len, known), default=0), run_dirs, searching, until, progress, stop, programs)
    return recorded


def train_programs(
    pack: Pack,
    chunks: Sequence[tuple[int, ...]],
    largest: int,
    run_dirs: Mapping[int, Path],
    searching: Searching,
    until: int,
    progress: Counting,
    stop: threading.Event,
    programs: Programs,
) -> None:
    """Train members of a pack, a program for each chunk of numbers, to iteration `until`; one has at most `largest`."""
    tasks = {task.member.number: task for task in pack.tasks}
    total = planned_iterations(pack.tasks[0].env, pack.tasks[0].run)
    for numbers in chunks:
        while True:
            left = [tasks[number] for number in numbers if end_of(run_dirs[number]).kind != SEARCH]
            ended = {number: end_of(run_dirs[number]).env_steps for number in numbers if complete(run_dirs[number])}
            progress.skip(dict.fromkeys(ended, total), ended)
            if all(done(run_dirs[task.member.number], until, total) for task in left):
                break
            size = filled(largest if len(left) == len(numbers) else len(left))
            program = programs.program(pack, left, size)
            with ExitStack() as stack:
                together = Together(pack, left, lambda task: run_dirs[task.member.number], searching, stack)
                together.train(program, progress, stop, min(until, total))


def done(run_dir: Path, until: int, total: int) -> bool:
    """Whether a member needs no training before `until`, and no evaluation."""
    return complete(run_dir) or (until < total and reached(run_dir, until))


def chunks_of(
    pack: Pack, tasks: Sequence[Task], programs: Programs, most: int = MOST, sharing: int = 1
) -> list[tuple[int, ...]]:
    """Distribute members evenly over the fewest programs that fit into memory; return the numbers of each.

    The number for a program begins with a lower bound on memory, at most `most`, and is halved until the compiled
    program fits. `sharing` programs share the machine's memory.
    """
    free = available_bytes()
    available = None if free is None else free // sharing
    most = min(most, members_that_fit(footprint(pack.shapes), available))
    while True:
        size = -(-len(tasks) // -(-len(tasks) // most))
        program = programs.program(pack, tasks, filled(size))
        if size == 1 or available is None or program.num_bytes <= SHARE * available:
            break
        most = -(-size // 2)
    numbers = [task.member.number for task in tasks]
    return [tuple(numbers[begin : begin + size]) for begin in range(0, len(numbers), size)]
