"""Driver: places the programs of a sweep on a Ray cluster, and writes what their workers send into its directory."""

from __future__ import annotations

import collections
import contextlib
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppax.run.directory import MEMBERS
from ppax.run.restore import planned_iterations
from ppax.run.result import ProcessLost
from ppax.sweeps.directory import Recorded, member_dir, trust_flags
from ppax.sweeps.member import complete, end_of
from ppax.sweeps.packing import Pack, Task
from ppax.sweeps.packs import done
from ppax.sweeps.placing import transport
from ppax.sweeps.placing.places import Places
from ppax.sweeps.placing.programs import LOOK_SECONDS, Placed, placed_of, planned
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
)
from ppax.sweeps.progress import Merged, Progress
from ppax.sweeps.training import Stopped


def train(
    ray: Any,
    cluster: Cluster,
    path: Path,
    recorded: Recorded,
    packs: Sequence[Pack],
    until: int,
    progress: Progress,
    stop: threading.Event,
) -> Recorded:
    """Train all packs on the cluster to iteration `until`, with programs as recorded and new ones for other members.

    Returns the record with these programs.

    Raises Stopped after a signal, when all programs have saved; ProcessLost where a program has lost more workers than
    `cluster.retries`; ConfigError where no machine has the resources of a program.
    """
    places = Places(ray, cluster)
    recorded = planned(ray, path, recorded, packs, cluster, places, stop)
    Driver(ray, path, recorded, cluster, until, places, progress, stop).train(placed_of(recorded, packs))
    return recorded


class Driver:
    """Programs that train at the same time on a cluster, each in a worker of its own."""

    def __init__(
        self,
        ray: Any,
        path: Path,
        recorded: Recorded,
        cluster: Cluster,
        until: int,
        places: Places,
        progress: Progress,
        stop: threading.Event,
    ):
        self._ray, self._path, self._recorded, self._cluster = ray, path, recorded, cluster
        self._until = until
        self._places, self._progress, self._merged, self._stop = places, progress, Merged(progress), stop
        self._root = path / MEMBERS
        self._root.mkdir(exist_ok=True)
        self._running: dict[Any, Placed] = {}  # by the reference of the awaited answer
        self._waiting: collections.deque[Placed] = collections.deque()
        self._error: BaseException | None = None
        self._worker = ray.remote(max_restarts=0, max_task_retries=0, **cluster.resources)(Worker)

    def train(self, programs: Sequence[Placed]) -> None:
        """Train the programs to their ends, as many at a time as the cluster has room for."""
        for placed in programs:
            left = [task for task in placed.tasks if not self._done(task)]
            ended = [task for task in placed.tasks if complete(self._dir_of(task))]
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
            raise Stopped

    def _place(self) -> None:
        """Begin programs that wait, where there is room."""
        room = self._places.require() if self._waiting else 0
        while self._waiting and len(self._running) < room:
            placed = self._waiting.popleft()
            members = tuple(task.member for task in placed.tasks)
            begun = transport.collect(self._root, self._runs_of(placed))
            placed.worker, placed.begun = self._worker.remote(), False
            given = process_context(self._cluster.cpus)
            iterations = planned_iterations(placed.tasks[0].env, placed.tasks[0].run)
            job = Job(given, self._recorded.plan, members, placed.largest, self._until, iterations, begun)
            self._running[placed.worker.begin.remote(job)] = placed

    def _poll(self) -> None:
        """Take what workers have answered, and ask them again unless they have ended."""
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
        """Take one event of a worker; return whether the worker goes on."""
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
        """Let a program whose worker is lost go on from its last checkpoint, `retries` times at most."""
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
            f"{self._path}{trust_flags(self._recorded)}` continues from the last checkpoints, with --{RAY} or without"
        )

    def _finish(self) -> None:
        """Ask all workers to save and end; those that have not begun end at once."""
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
        return member_dir(self._path, task.member)
