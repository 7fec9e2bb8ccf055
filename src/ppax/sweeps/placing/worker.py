"""Worker, an actor of a Ray cluster that trains the members of one program in a directory of its own machine.

The driver, which is the process that began the sweep, polls for events since its last request: progress, snapshots of
the run directories, the end. Only the driver writes the directory of the sweep, so that a worker that was given up as
lost but still lives can change nothing there.
"""

from __future__ import annotations

import contextlib
import os
import platform
import queue
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ppax.core import imports
from ppax.core.protocols import Row
from ppax.core.types import ConfigError
from ppax.core.version import __version__
from ppax.devices import sharding
from ppax.devices.footprint import explaining_memory, footprint
from ppax.run.directory import MEMBERS, SweepName
from ppax.run.signals import stopped_by
from ppax.storage.cache import kept_programs
from ppax.sweeps.decisions import Searching
from ppax.sweeps.directory import member_dir
from ppax.sweeps.packing import packed
from ppax.sweeps.placing import transport
from ppax.sweeps.placing.transport import Outbox, Snapshot
from ppax.sweeps.plan import Member, Plan
from ppax.sweeps.progress import MEANS, NO_STEPS
from ppax.sweeps.training import Programs, SweepStopped, train_alone

WAIT_SECONDS = 0.5  # longest wait for an event before a request of the driver is answered
ERRORS: dict[str, type[Exception]] = {one.__name__: one for one in (ConfigError, MemoryError, OSError)}
WAITING = 1_000  # capacity of the queue of events; a full queue blocks training


class ProcessContext(NamedTuple):
    """Context of the driver's process that a worker takes over: versions, trusted packages, search path, directory.

    `versions` are those of ppax and JAX. `trusted` is what `imports.granted` returns: the names that the user trusts
    (packages, paths, addresses), those of them from the command line, and the directories of configuration files.
    `search` is the search path of Python modules, and `cpus` the number of CPUs that the worker may use.
    """

    versions: tuple[str, str]  # of ppax and JAX
    trusted: tuple[list[str], list[str], list[str]]  # as imports.granted
    search: list[str]  # sys.path
    directory: str  # current one, for relative paths
    cpus: int  # of a program, which has as many CPU devices


class Job(NamedTuple):
    """Job of a worker on a cluster: members (runs of a sweep) that train in one program, or one member on the host.

    They train up to iteration `until` of `iterations`, and begin from the files `begun` of their run directories.
    `largest` is the number of members in the largest program for members that differ in numbers alone: smaller programs
    are filled up to this size with copies. It is 0 for a member on the host.
    """

    context: ProcessContext
    plan: Plan  # of the whole sweep
    members: tuple[Member, ...]
    largest: int  # members of the largest program of these sizes; 0 on the host
    until: int  # iteration to which they train now
    iterations: int  # of the whole training
    begun: Snapshot  # their run directories so far
    name: SweepName = SweepName()  # of the sweep, for the members' loggers


class Skipped(NamedTuple):
    """Event that members (runs) need no training up to the iterations `reached`, by member number.

    The iterations were done before a resume, or are left by a member that has ended early. `env_steps` are the members'
    environment steps before the resume. The driver passes both to the sweep's `Counting.skip`.
    """

    reached: dict[int, int]
    env_steps: dict[int, int]


class Added(NamedTuple):
    """Event that members (runs) have trained up to the iterations `reached`, by member number.

    `env_steps` and `rows` are the steps and log rows of that training. The driver adds those of all programs together
    and counts them by the sweep's `Counting.add`.
    """

    reached: dict[int, int]
    env_steps: int
    rows: list[Row]  # the columns MEANS of each member


class Ended(NamedTuple):
    """Event that a worker's program has ended: because all is done, by a request to stop, or with an error.

    The error is an exception as (name of its type, text, traceback); None: there was none.
    """

    stopped: bool
    error: tuple[str, str, str] | None


Event = Skipped | Added | Snapshot | Ended


def process_context(cpus: int) -> ProcessContext:
    """Return the context of this process, the driver, for a worker that may use `cpus` CPUs."""
    return ProcessContext((__version__, jax.__version__), imports.granted(), list(sys.path), os.getcwd(), cpus)


def enter(given: ProcessContext, stack: contextlib.ExitStack) -> None:
    """Take over the context `given` of the driver's process until `stack` is closed.

    Raises ConfigError if this machine has other versions of ppax or JAX.
    """
    own = (__version__, jax.__version__)
    if own != given.versions:
        raise ConfigError(
            f"{platform.node()} has ppax {own[0]} and JAX {own[1]}, the sweep was begun with ppax {given.versions[0]} "
            f"and JAX {given.versions[1]}: install the same on all nodes"
        )
    sys.path.extend(entry for entry in given.search if entry not in sys.path)
    if os.path.isdir(given.directory):
        os.chdir(given.directory)
    sharding.use_only(given.cpus)
    names, beside, within = given.trusted
    stack.enter_context(imports.trusting(names, within=within))
    stack.enter_context(imports.trusting(beside, beside=True))
    stack.enter_context(kept_programs())


def size_of_programs(given: ProcessContext, members: tuple[Member, ...], most: int, sharing: int) -> int:
    """Return how many of `members` (runs) one program may train on this machine, at most `most`.

    The members are split into as few programs of about equal size as memory allows, where `sharing` programs share the
    memory. They must be alike enough for one compiled program to train them. `given` is the context that this process
    takes over from the driver's.
    """
    with contextlib.ExitStack() as stack:
        enter(given, stack)
        (pack,) = packed(members)
        with explaining_memory(footprint(pack.shapes)):
            chunks = Programs().chunks_of(pack, pack.tasks, most, sharing)
        return max(map(len, chunks))


class Worker:
    """Actor of Ray that trains one job in a thread, so that it can answer the driver's requests meanwhile."""

    def __init__(self) -> None:
        self._events: queue.Queue[Event] = queue.Queue(WAITING)
        self._stop, self._on_host = threading.Event(), False
        self._lock = threading.Lock()  # guards snapshots, which `next` takes of a host run while it trains
        self._folder = Path(tempfile.mkdtemp(prefix="ppax-"))
        (self._folder / MEMBERS).mkdir()
        self._outbox = Outbox(self._folder / MEMBERS)

    def begin(self, job: Job) -> list[Event]:
        """Start to train `job` in a thread; return [], as there are no events yet."""
        threading.Thread(target=self._run, args=(job,), daemon=True).start()
        return []

    def next(self) -> list[Event]:
        """Return the worker's events since the last request, after WAIT_SECONDS at most; [] if there are none."""
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            events.append(self._events.get(timeout=WAIT_SECONDS))
            while True:
                events.append(self._events.get_nowait())
        if self._on_host:
            with self._lock:
                snapshot = self._outbox.take() if self._on_host and self._outbox.due else None
            events += [] if snapshot is None else [snapshot]
        return events

    def stop(self) -> None:
        """Ask the worker's training to save checkpoints and end."""
        self._stop.set()

    def skip(self, reached: Mapping[int, int], env_steps: Mapping[int, int] = NO_STEPS) -> None:
        """Send the driver the event that members (runs) need no training up to the iterations `reached`; see `Skipped`.

        `reached` and `env_steps` are by member number, as in `Counting.skip`, which the driver then calls.
        """
        self._events.put(Skipped(dict(reached), dict(env_steps)))

    def add(self, reached: Mapping[int, int], env_steps: int, seconds: float, rows: Sequence[Row]) -> None:
        """Send the driver the event of what members (runs) have trained together; new checkpoints are sent first.

        The arguments are those of `Counting.add`.
        """
        if not self._on_host and self._outbox.due:
            self._send()
        self._events.put(
            Added(dict(reached), env_steps, [{name: one[name] for name in MEANS if name in one} for one in rows])
        )

    def _send(self) -> None:
        snapshot = self._outbox.take()
        if snapshot is not None:
            self._events.put(snapshot)

    def _run(self, job: Job) -> None:
        stopped, error = False, None
        try:
            self._train(job)
        except SweepStopped:
            stopped = True
        except BaseException as raised:  # any error belongs to the driver
            error = _described(raised)
        try:
            with self._lock:
                self._on_host = False
                self._send()
        except Exception as raised:
            error = error or _described(raised)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._events.put(Ended(stopped, error))

    def _train(self, job: Job) -> None:
        with contextlib.ExitStack() as stack:
            enter(job.context, stack)
            runs = [run_of(member) for member in job.members]
            job.name.write(self._folder)
            transport.apply(self._folder / MEMBERS, runs, job.begun)
            self._outbox.sent()
            stack.enter_context(stopped_by(self._stop))
            (pack,) = packed(job.members)
            run_dirs = {one.number: member_dir(self._folder, one) for one in job.members}
            if not job.largest:
                self._on_host = True
                train_alone(pack.tasks[0], run_dirs[job.members[0].number], self)
                return
            searching = Searching(self._folder, job.plan, job.members, job.iterations)
            with explaining_memory(footprint(pack.shapes)):
                chunks = [tuple(run_dirs)]
                Programs().train_chunks(pack, chunks, job.largest, run_dirs, searching, job.until, self, self._stop)


def run_of(member: Member) -> str:
    """Return the name of a member's run directory, such as "007"."""
    return member_dir(Path(), member).name


def _described(error: BaseException) -> tuple[str, str, str]:
    """Return an exception as (name of its type, text, traceback).

    The driver gets these texts, as it unpickles no object of a worker.
    """
    return type(error).__name__, str(error), "".join(traceback.format_exception(error))


def raised_by(event: Ended) -> Any:
    """Return the exception with which a worker's program ended; None if there was none.

    The result is a RuntimeError if the exception's type is not in ERRORS.
    """
    if event.error is None:
        return None
    name, text, trace = event.error
    error = ERRORS[name](text) if name in ERRORS else RuntimeError(f"{name}: {text}")
    error.add_note(trace)
    return error
