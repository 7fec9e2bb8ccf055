"""Driver, which starts the programs of a sweep in workers on a Ray cluster, and writes the files that workers send."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ppax.core.protocols import Row
from ppax.core.types import ConfigError
from ppax.run.directory import MEMBERS, name_of_sweep
from ppax.run.restore import planned_iterations
from ppax.run.result import ProcessLost
from ppax.storage.paths import quoted
from ppax.sweeps.decisions import Searching
from ppax.sweeps.directory import member_dir, sweep_trust_flags
from ppax.sweeps.member import end_of, is_complete
from ppax.sweeps.packing import Pack, Task
from ppax.sweeps.placing import transport
from ppax.sweeps.placing.settings import RAY, Cluster
from ppax.sweeps.placing.transport import Snapshot
from ppax.sweeps.placing.worker import (
    Added,
    Event,
    Job,
    Skipped,
    Worker,
    process_context,
    raised_by,
    run_of,
    size_of_programs,
)
from ppax.sweeps.progress import Progress
from ppax.sweeps.training import Session, SweepStopped, done

PATIENCE = 120.0  # seconds in which a cluster that has lost all its machines must get another
LOOK_SECONDS = 0.5  # interval at which signals and progress are polled


class Room(NamedTuple):
    """Numbers of a sweep's programs that can run at the same time on a cluster.

    `programs` is the number on the whole cluster, `together` the number on its largest machine.
    """

    programs: int
    together: int


class Places:
    """Counter of how many programs of a sweep a Ray cluster can run at the same time, by the resources in `cluster`.

    Machines of the cluster may come and go.
    """

    def __init__(self, ray: Any, cluster: Cluster):
        """Look at the machines of a cluster; ConfigError if none has the CPUs and GPUs of a program."""
        self._ray, self._cluster = ray, cluster
        self._seen = time.monotonic()  # when there was room last
        if not self.room().programs:
            self._refuse()

    def room(self) -> Room:
        """Return how many programs can run at the same time, on the whole cluster and on its largest machine.

        Programs that run already are included.
        """
        each = [self._on(node["Resources"]) for node in self._nodes()]
        return Room(sum(each), max(each, default=0))

    def require(self) -> int:
        """Return how many programs the cluster can run; ConfigError if it could run none for PATIENCE seconds."""
        room = self.room()
        if room.programs:
            self._seen = time.monotonic()
        elif time.monotonic() - self._seen > PATIENCE:
            self._refuse()
        return room.programs

    def _nodes(self) -> list[Any]:
        return [node for node in self._ray.nodes() if node["Alive"]]

    def _on(self, has: dict[str, float]) -> int:
        """Return how many programs a machine with the resources `has` (amounts by kind) can run at the same time."""
        places = int(has.get("CPU", 0)) // self._cluster.cpus
        return min(places, int(has.get("GPU", 0)) // self._cluster.gpus) if self._cluster.gpus else places

    def _refuse(self) -> None:
        wanted = {"CPU": self._cluster.cpus, "GPU": self._cluster.gpus}
        largest = {kind: max((int(n["Resources"].get(kind, 0)) for n in self._nodes()), default=0) for kind in wanted}
        nearest = ", ".join(f"{RAY}.{kind.lower()}s = {min(x, largest[kind])}" for kind, x in wanted.items())
        raise ConfigError(
            f"{RAY}.cpus = {self._cluster.cpus}, {RAY}.gpus = {self._cluster.gpus}: no machine there has both; "
            f"nearest valid values: {nearest}"
        )


@dataclasses.dataclass
class Placed:
    """Program of a sweep on the cluster: its members (runs), its worker (an actor of Ray), and its progress.

    `largest` is the number of members in the largest program for members that differ in numbers alone: smaller programs
    are filled up to this size with copies. It is 0 for a member with environments on the host.
    """

    tasks: list[Task]
    largest: int  # members of the largest program of these sizes; 0 on the host
    lost: int = 0  # workers that were lost
    worker: Any = None
    begun: bool = False  # the worker has answered
    stopping: bool = False  # the worker is asked to stop
    env_steps: int = 0  # counted since the last snapshot
    reached: Mapping[int, int] = dataclasses.field(default_factory=dict)  # iteration of the members that still train

    @property
    def described(self) -> str:
        """Members of the program in words, for messages: "member 3" or "members 0 to 7"."""
        numbers = [task.member.number for task in self.tasks]
        return f"member {numbers[0]}" if len(numbers) == 1 else f"members {numbers[0]} to {numbers[-1]}"


def plan_programs(ray: Any, session: Session, packs: Sequence[Pack], cluster: Cluster, places: Places) -> None:
    """Assign members (runs) that have no program yet to new programs, and write the assignment to sweep.json.

    There are as many programs as the cluster can run at the same time, or more where memory requires smaller ones: a
    machine of the cluster measures how many members fit. `packs` are groups of members that one program can train
    together. Raises SweepStopped after a signal.
    """
    new = [session.unplaced(pack) for pack in packs if pack.compiled]
    left = [[task.member for task in tasks] for tasks in new if tasks]
    if not left:
        return
    room = places.room()
    most = -(-sum(map(len, left)) // room.programs)
    # max_calls=1: the process ends with the call, so that workers get its memory, which on a GPU is all of it
    ask = ray.remote(max_calls=1, **cluster.resources)(size_of_programs)
    given = process_context(cluster.cpus)
    asked = [ask.remote(given, tuple(members), most, room.together) for members in left]
    programs = list(session.recorded.programs)
    for members, answer in zip(left, asked, strict=True):
        while not ray.wait([answer], timeout=LOOK_SECONDS)[0]:
            if session.stop.is_set():
                raise SweepStopped
        try:
            size = ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        programs += [tuple(m.number for m in members[at : at + size]) for at in range(0, len(members), size)]
    session.record(programs=tuple(programs))


def placed_of(session: Session, packs: Sequence[Pack]) -> list[Placed]:
    """Return all programs of the packs, groups of members (runs) that share programs, in the form that `Driver` trains.

    A member whose environments are on the host makes a program of its own.
    """
    placed = []
    for pack in packs:
        by_number = {task.member.number: task for task in pack.tasks}
        groups = session.programs_of(pack) if pack.compiled else [(number,) for number in by_number]
        largest = max(map(len, groups), default=0) if pack.compiled else 0
        placed += [Placed([by_number[number] for number in numbers], largest) for numbers in groups]
    return placed


def train_on_cluster(
    ray: Any, cluster: Cluster, session: Session, packs: Sequence[Pack], searching: Searching, until: int
) -> None:
    """Train all packs (groups of members that share programs) on the cluster to iteration `until`.

    Programs that sweep.json records are used again, and new ones made for members without one. `searching` is not used:
    the search decides in the driver's process, between two calls of this function. Raises SweepStopped after a signal,
    when all programs have saved; ProcessLost where a program has lost more workers than `cluster.retries`; ConfigError
    where no machine has the CPUs and GPUs of a program.
    """
    places = Places(ray, cluster)
    plan_programs(ray, session, packs, cluster, places)
    Driver(ray, session, cluster, until, places).train(placed_of(session, packs))


class Driver:
    """Driver of a sweep's programs that train at the same time on a cluster, each in a worker of its own."""

    def __init__(self, ray: Any, session: Session, cluster: Cluster, until: int, places: Places):
        self._ray, self._session, self._cluster, self._until, self._places = ray, session, cluster, until, places
        self._progress, self._merged, self._stop = session.progress, MergedProgress(session.progress), session.stop
        self._root = session.path / MEMBERS
        self._root.mkdir(exist_ok=True)
        self._running: dict[Any, Placed] = {}  # by the reference of the awaited answer
        self._waiting: collections.deque[Placed] = collections.deque()
        self._error: BaseException | None = None
        self._worker = ray.remote(max_restarts=0, max_task_retries=0, **cluster.resources)(Worker)

    def train(self, programs: Sequence[Placed]) -> None:
        """Train the programs to the driver's iteration `until`, as many at a time as the cluster has room for.

        Raises SweepStopped after a signal, ProcessLost where too many workers of a program were lost.
        """
        for placed in programs:
            left = [task for task in placed.tasks if not self._done(task)]
            ended = [task for task in placed.tasks if is_complete(self._dir_of(task))]
            for task in ended:
                number, steps = task.member.number, end_of(self._dir_of(task)).env_steps
                self._progress.skip({number: planned_iterations(task.env, task.run)}, {number: steps})
            if left:
                self._waiting.append(placed)
        try:
            while self._waiting or self._running:
                self._place()
                self._poll()
                self._merged.show({n: i for placed in self._running.values() for n, i in placed.reached.items()})
                if self._stop.is_set() or self._error is not None:
                    self._finish()
        finally:
            for placed in self._running.values():
                self._kill(placed)
        if self._error is not None:
            raise self._error
        if not all(self._done(task) for placed in programs for task in placed.tasks):
            raise SweepStopped

    def _place(self) -> None:
        """Start workers for waiting programs, as many as the cluster has room for."""
        room = self._places.require() if self._waiting else 0
        while self._waiting and len(self._running) < room:
            placed = self._waiting.popleft()
            members = tuple(task.member for task in placed.tasks)
            begun = transport.collect_files(self._root, self._runs_of(placed))
            placed.worker, placed.begun = self._worker.remote(), False
            given = process_context(self._cluster.cpus)
            iterations = planned_iterations(placed.tasks[0].env, placed.tasks[0].run)
            job = Job(
                given,
                self._session.recorded.plan,
                members,
                placed.largest,
                self._until,
                iterations,
                begun,
                name_of_sweep(self._session.path),
            )
            self._running[placed.worker.begin.remote(job)] = placed

    def _poll(self) -> None:
        """Handle the events that workers send within LOOK_SECONDS, and ask them for more unless they have ended."""
        if not self._running:
            time.sleep(LOOK_SECONDS)
            return
        ready, _ = self._ray.wait(list(self._running), num_returns=1, timeout=LOOK_SECONDS)
        for answer in ready:
            placed = self._running.pop(answer)
            try:
                events: list[Event] = self._ray.get(answer)
            except self._ray.exceptions.RayTaskError as error:  # of the worker's own code
                self._kill(placed)
                self._error = self._error or error.cause
            except self._ray.exceptions.RayError as error:
                self._lose(placed, error)
            else:
                placed.begun = True
                if all([self._take(placed, event) for event in events]):
                    self._running[placed.worker.next.remote()] = placed

    def _take(self, placed: Placed, event: Event) -> bool:
        """Handle one event of a worker, such as rows or files to write; return True if the worker goes on."""
        if isinstance(event, Snapshot):
            transport.apply(self._root, self._runs_of(placed), event)
            placed.env_steps = 0
        elif isinstance(event, Skipped):
            self._progress.skip(event.reached, event.env_steps)
        elif isinstance(event, Added):
            placed.env_steps += event.env_steps
            placed.reached = event.reached
            self._progress.skip(event.reached)  # also of a program that ends in this answer
            self._merged.add(event.env_steps, event.rows)
        else:
            self._error = self._error or raised_by(event)
            self._kill(placed)
            return False
        return True

    def _lose(self, placed: Placed, error: Exception) -> None:
        """Put a program whose worker is lost back into the queue, to go on from its last checkpoint.

        If the program has lost more than `retries` workers, the sweep ends with ProcessLost.
        """
        self._kill(placed)  # a worker that still lives would keep its resources
        self._progress.take_back(placed.env_steps)
        placed.env_steps, placed.reached = 0, {}
        placed.lost += 1
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        lost = f"the worker of {placed.described} was lost"
        if self._stop.is_set() or self._error is not None:
            return
        if placed.lost <= self._cluster.retries:
            warnings.warn(f"{lost}; they go on from their last checkpoint, elsewhere: {reason}", stacklevel=2)
            self._waiting.appendleft(placed)
            return
        self._error = ProcessLost(
            f"{lost} {placed.lost} times, and {RAY}.retries = {self._cluster.retries}: {reason}; `ppax resume "
            f"{quoted(self._session.path)}{sweep_trust_flags(self._session.recorded)}` continues from the last "
            f"checkpoints, with --{RAY} or without"
        )

    def _finish(self) -> None:
        """Ask all workers to save and end; workers that have not begun are ended at once."""
        self._waiting.clear()
        for answer, placed in list(self._running.items()):
            if not placed.begun:
                self._kill(self._running.pop(answer))
            elif not placed.stopping:
                placed.stopping = True
                placed.worker.stop.remote()

    def _kill(self, placed: Placed) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(placed.worker)

    def _runs_of(self, placed: Placed) -> list[str]:
        return [run_of(task.member) for task in placed.tasks]

    def _done(self, task: Task) -> bool:
        return done(self._dir_of(task), self._until, planned_iterations(task.env, task.run))

    def _dir_of(self, task: Task) -> Path:
        return member_dir(self._session.path, task.member)


class MergedProgress:
    """Progress of programs that train at the same time on a cluster, added up to the one progress of the sweep."""

    def __init__(self, progress: Progress):
        self._progress, self._since = progress, time.monotonic()
        self._changed, self._env_steps, self._rows = False, 0, list[Row]()

    def add(self, env_steps: int, rows: Sequence[Row]) -> None:
        """Collect, for `show`, what members (runs) trained together since the last call: their steps and log rows.

        `env_steps` is the sum over the members of the environment steps since then.
        """
        self._changed, self._env_steps = True, self._env_steps + env_steps
        self._rows += rows

    def show(self, reached: Mapping[int, int]) -> None:
        """Add to the sweep's progress what `add` has collected since the last call; nothing if `add` was not called.

        `reached` has the iterations of the members (runs) that still train, by number.
        """
        if self._changed:
            now = time.monotonic()
            self._progress.add(reached, self._env_steps, now - self._since, self._rows)
            self._since, self._changed, self._env_steps, self._rows = now, False, 0, []
