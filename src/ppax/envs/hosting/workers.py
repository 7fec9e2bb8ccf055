"""Steppers of host environments in this process or in worker processes, with the same results.

With workers the environments form two batches, each spread over all workers: while one batch is stepped, the policy
acts for the other. The batches alternate in a fixed order, so that results do not depend on timing.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import mmap
import os
import select
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, Pipe
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from gymnasium import Env

from ppax.core.types import ConfigError
from ppax.envs.hosting import domain_randomisation, team, worker_process
from ppax.envs.hosting.arrays import Arrays, Layout
from ppax.envs.hosting.batch import EnvBatch
from ppax.envs.hosting.faults import EnvError, Failure, failure_text
from ppax.envs.hosting.stepper import HostStep, host_step
from ppax.envs.suites import atari_game, dm_control_task, minigrid_room

Factory = Callable[[], Env]
# Importing these files would import all of ppax in a worker
PICKLED_BY_VALUE = (atari_game, dm_control_task, domain_randomisation, minigrid_room, team)
MOST_MS = 2**31 - 1  # milliseconds that `poll` can wait, 24 days
START_SECONDS = 60.0  # minimum timeout for the start of a worker and of its environments


def halves(num_envs: int) -> list[slice]:
    """Return the environments of each of the two batches, as slices; for one environment a single batch."""
    half = -(-num_envs // 2)
    return [envs for envs in (slice(0, half), slice(half, num_envs)) if envs.start < envs.stop]


def shares(batches: Sequence[slice], worker: int, workers: int) -> list[slice]:
    """Return the environments that worker number `worker` of `workers` steps in each batch, as slices."""
    edges = [[envs.start + (envs.stop - envs.start) * w // workers for w in (worker, worker + 1)] for envs in batches]
    return [slice(*edge) for edge in edges]


def pickled(layout: Layout, worker: int, owned: Sequence[tuple[slice, list[Factory]]], vectorization: str) -> bytes:
    """Return bytes from which a worker creates its environments `owned` without an import of ppax.

    `owned` has the indices of the worker's environments in each batch, and the functions that make them, which may be
    lambdas. The layout is sent as plain tuples: to unpickle its class would import ppax, and JAX with it. Raises
    ConfigError if a function refers to an object that cannot be pickled; the error names this object.
    """
    import cloudpickle

    for module in PICKLED_BY_VALUE:
        cloudpickle.register_pickle_by_value(module)
    try:
        data: bytes = cloudpickle.dumps((layout[:3], tuple(layout.spec), worker, owned))
    except Exception as error:  # any exception of the user's objects
        factory = next((one for _, factories in owned for one in factories if not _is_picklable(one)), None)
        raise ConfigError(
            f'vectorization = "{vectorization}": the function that makes environments is sent to other processes, and '
            f"{_culprit(factory)} cannot be sent ({error}); create it inside of the function or of the environment's "
            'constructor, or use "sync"'
        ) from error
    return data


def _is_picklable(x: Any) -> bool:
    import cloudpickle

    try:
        cloudpickle.dumps(x)
    except Exception:
        return False
    return True


def _culprit(x: Any, name: str = "the function", outside: tuple[Any, ...] = ()) -> str:
    """Return the name of the innermost object, among those that `x` refers to, that cannot be pickled.

    It is `name` if the cause is `x` itself. `outside` are the objects that refer to `x`: they are not searched again.
    """
    for inner, held in _held_by(x):
        if not any(held is one for one in (x, *outside)) and not _is_picklable(held):
            return _culprit(held, f"{inner}, of type {type(held).__name__},", (x, *outside))
    return name


def _held_by(x: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each object that a function, a partial function or another object refers to."""
    if isinstance(x, partial):
        yield from (("the function", x.func), *((f"argument {i}", one) for i, one in enumerate(x.args)))
        yield from x.keywords.items()
    elif isinstance(x, FunctionType):
        used = inspect.getclosurevars(x)
        defaults = {name: one.default for name, one in inspect.signature(x).parameters.items()}
        yield from {**used.nonlocals, **used.globals, **defaults}.items()
    elif isinstance(x, MethodType):
        yield "self", x.__self__
    elif not isinstance(x, type):
        yield from getattr(x, "__dict__", {}).items()


class InProcess:
    """Stepper of all environments in this process, one after the other, as one batch."""

    has_final_obs = False

    def __init__(self, factories: Sequence[Factory], layout: Layout):
        self.arrays, self.batches = layout.make(), (layout.streams(slice(0, layout.num_envs)),)
        with _as_env_error():
            self._batch = EnvBatch(factories, 0, layout, self.arrays, 0)

    def reset(self, seeds: Sequence[int]) -> None:
        """Reset all environments, one seed each, in the calling process, not in workers; `receive` has the result."""
        with _as_env_error():
            self._batch.reset(seeds)

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Step all environments in this process; `receive` returns the result.

        `number` is that of the only batch, 0. `action` has one array [B, ...] for each array of the action space.
        """
        self.arrays.act(action)
        try:
            self._batch.step()
        except Failure as failure:
            raise EnvError(str(failure)) from None

    def receive(self, number: int) -> HostStep:
        """Return the result of the last step or reset of all environments: views that the next step overwrites."""
        return host_step(self.arrays)

    def close(self) -> None:
        """Close all environments in this process."""
        self._batch.close()


class Workers:
    """Stepper of environments in `layout.workers` worker processes, in two batches.

    While one batch is stepped, the policy acts for the other. A worker that does not answer within `timeout` seconds
    counts as failed.
    """

    has_final_obs = False

    def __init__(self, factories: Sequence[Factory], layout: Layout, timeout: float):
        self.timeout, size = timeout, layout.nbytes()
        self._layout, self._envs = layout, halves(layout.num_envs)
        self.batches = tuple(layout.streams(envs) for envs in self._envs)
        self._steps = [0] * len(self.batches)  # of each batch since `reset`
        self._processes: list[subprocess.Popen] = []
        self._connections: list[Connection] = []
        self._arrived: list[select.poll] = []
        # closes the workers without a call of `close` too: when this object or this process ends
        self._finalizer = weakref.finalize(self, _end, self._processes, self._connections)
        with _anonymous_file(size) as memory:
            self.arrays: Arrays = layout.make(mmap.mmap(memory, size))
            self.arrays.stepping[:] = -1
            self._views = [layout.rows(self.arrays, rows) for rows in self.batches]
            for worker in range(layout.workers):
                owned = [(envs, list(factories[envs])) for envs in shares(self._envs, worker, layout.workers)]
                self._start(memory, pickled(layout, worker, owned, "async"))
        for worker in range(layout.workers):
            self._answer(worker, max(timeout, START_SECONDS))

    def reset(self, seeds: Sequence[int]) -> None:
        """Start a reset of all environments in the workers, one seed each; `receive` waits for it."""
        self._steps = [0] * len(self.batches)
        for worker in range(len(self._processes)):
            for number, envs in enumerate(shares(self._envs, worker, len(self._processes))):
                self._request(worker, json.dumps([number, *seeds[envs]]).encode())

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Start one step of batch `number` in the workers; `receive` waits for it.

        `action` has one array [e, ...] for each array of the action space; e is the number of the batch's streams.
        """
        self._views[number].act(action)
        self._steps[number] += 1
        for worker in range(len(self._processes)):
            self._request(worker, bytes([number]))

    def receive(self, number: int) -> HostStep:
        """Return the result of the step or reset of batch `number`, for which it waits.

        Results must be received in the order of their requests, as every worker answers in that order.
        """
        for worker in range(len(self._processes)):
            self._answer(worker)
        return host_step(self._views[number])

    def close(self) -> None:
        """End all worker processes; kill those that still run after a second."""
        self._finalizer()

    def _start(self, memory: int, task: bytes) -> None:
        ours, theirs = Pipe()
        # A new interpreter instead of a fork: JAX has threads. -P: files beside the script must not shadow libraries
        command = [sys.executable, "-P", worker_process.__file__, str(theirs.fileno()), str(memory)]
        self._processes.append(subprocess.Popen(command, pass_fds=(theirs.fileno(), memory)))
        self._connections.append(ours)
        self._arrived.append(select.poll())  # `Connection.poll` would create one at each call
        self._arrived[-1].register(ours.fileno(), select.POLLIN)
        theirs.close()
        with contextlib.suppress(OSError):  # the worker has ended: `_answer` raises the error
            ours.send_bytes(json.dumps([one for one in sys.path if isinstance(one, str)]).encode())
            ours.send_bytes(task)

    def _request(self, worker: int, request: bytes) -> None:
        with contextlib.suppress(OSError):
            self._connections[worker].send_bytes(request)

    def _answer(self, worker: int, seconds: float | None = None) -> None:
        """Wait for the answer of a worker; if it failed, ended or hangs, end all workers and raise EnvError.

        A worker hangs if it does not answer within `seconds`; None stands for the timeout of steps.
        """
        connection = self._connections[worker]
        try:
            limit = self.timeout if seconds is None else seconds
            # the descriptor of a closed connection may belong to another file by now
            if not connection.closed and not self._arrived[worker].poll(min(1e3 * max(0.0, limit), MOST_MS)):
                remedy = "--timeout 300, timeout = 300 in the run file or timeout=300 in Python allows more"
                raise self._worker_error(worker, f"has not answered for {limit:g} s ({remedy})")
            answer = connection.recv_bytes()
        except (EOFError, OSError):
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._processes[worker].wait(1.0)
            raise self._worker_error(worker, f"has ended, exit status {self._processes[worker].poll()}") from None
        if answer:
            self.close()
            report = json.loads(answer)
            index = report["index"]
            raise EnvError(failure_text(report) if index >= 0 else f"worker process {worker}\n{report['cause']}")

    def _worker_error(self, worker: int, reason: str) -> EnvError:
        """Close all environments and return the error for a worker that does not answer.

        `worker` is the worker's number, and `reason` says what happened.
        """
        index = int(self.arrays.stepping[worker])
        at = ""
        if index >= 0:
            rows = self._layout.streams(slice(index, index + 1))
            action = [(x[rows] if self._layout.spec.agents else x[index]).tolist() for x in self.arrays.action]
            step = next(step for step, envs in zip(self._steps, self._envs, strict=True) if index < envs.stop)
            at = f" in step {step} of environment {index}, action {action}" if step else f" in reset of {index}"
        process = self._processes[worker].pid
        self.close()
        return EnvError(f"worker process {worker} (pid {process}) {reason}{at}; all environments were closed")


@contextlib.contextmanager
def _as_env_error() -> Iterator[None]:
    """Yield once; inside of this context the Failure of an environment is raised again as EnvError."""
    try:
        yield
    except Failure as failure:
        raise EnvError(str(failure)) from None


@contextlib.contextmanager
def _anonymous_file(size: int) -> Iterator[int]:
    """Yield the descriptor of a nameless file of `size` bytes: the memory that this process shares with its workers.

    The descriptor is closed afterwards. The system deletes the file when the last process with a descriptor ends.
    """
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("ppax")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    try:
        os.ftruncate(handle, size)
        yield handle
    finally:
        os.close(handle)


def _end(processes: list[subprocess.Popen], connections: list[Connection]) -> None:
    for connection in connections:
        connection.close()  # the workers end when the connection closes
    until = time.monotonic() + 1.0
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
