"""Measuring side by side: worker processes that take turns, and ratios of neighbouring runs.

While one worker runs, the others wait for their next order. So a slow minute of the machine affects all of them, and
only runs of the same turn are compared: a ratio is the median over turns, reported with its minimum and maximum.

This process stays small (it never imports jax): Linux lets a child inherit its parent's peak memory.
"""

from __future__ import annotations

import json
import math
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import peers
import physics_peers
from peers import BEFORE, FOLDER_BEFORE
from w1 import Work

FIXED = (*peers.FIXED, *physics_peers.FIXED)
MEMORY = ("peak_memory_mb", "device_memory_mb")
MIN_ITERATIONS = 2  # a loop of one turn is compiled away
IDLE_SECONDS = 60  # a worker that computes nothing for so long will not answer: XLA hangs at times (NOTES.md)
Answer = dict[str, Any]
Turn = dict[str, Answer]  # by system


class Worker:
    """One system at one size, in a process of its own, without JAX's persistent cache."""

    def __init__(
        self,
        system: str,
        work: Work,
        changes: Mapping[str, str] | None = None,
        python: str = sys.executable,
        errors: IO[str] | None = None,
    ):
        """Start the process.

        `changes`: of its environment variables; `python`: interpreter, of any environment; `errors`: file that
        gets what it writes to standard error.
        """
        self.system = system
        environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
        environment |= {"JAX_ENABLE_COMPILATION_CACHE": "false", **(changes or {})}
        if system.split("/")[0] == BEFORE:
            environment["PYTHONPATH"] = str(Path(os.environ[FOLDER_BEFORE]).resolve() / "src")
        command = [python, str(Path(__file__).parent / "worker.py"), system, *map(str, work)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True, env=environment)
        self.prepared: Answer = {}

    def __enter__(self) -> Worker:
        try:
            return self.prepare()
        except SystemExit:
            with self.process as process:
                process.kill()
            raise

    def prepare(self, until: float = math.inf) -> Worker:
        """Wait until it is ready for runs; it ends if that takes until a time of `time.monotonic`."""
        self.prepared = self._read(until)
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.__exit__(None, None, None)  # closes its pipes, at which it ends, and waits

    def run(self, iterations: int) -> Answer:
        """Train for some iterations; what it took."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{iterations}\n")
        self.process.stdin.flush()
        return self._read()

    def _read(self, until: float = math.inf) -> Answer:
        assert self.process.stdout is not None
        used = -1.0
        while not select.select([self.process.stdout], [], [], self._wait(until))[0]:
            if time.monotonic() >= until:
                self.process.kill()
                raise SystemExit(f"the {self.system} worker was still compiling when its time was over")
            before, used = used, cpu_seconds(self.process.pid)
            if used == before:
                self.process.kill()
                raise SystemExit(f"the {self.system} worker hangs: no CPU time in {IDLE_SECONDS} s; start again")
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"the {self.system} worker ended early with code {self.process.wait()}")
        return json.loads(line)

    def _wait(self, until: float) -> float:
        return max(0.0, min(IDLE_SECONDS, until - time.monotonic()))


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far; of the clock where the system does not say (Linux does)."""
    stat = Path(f"/proc/{pid}/stat")
    if not stat.exists():
        return time.monotonic()
    user, kernel = stat.read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(kernel)) / os.sysconf("SC_CLK_TCK")


def present(systems: Sequence[str], num_envs: int = 4) -> list[str]:
    """Those of `systems` that run here, after a short run of each; prints a sentence for each of the others."""
    found, work = [], Work(num_envs, 1, MIN_ITERATIONS, 0)
    for system in systems:
        with tempfile.TemporaryFile("w+") as errors:
            try:
                with Worker(system, work, errors=errors) as worker:
                    worker.run(work.iterations)
                found.append(system)
            except SystemExit as error:
                errors.seek(0)
                lines = errors.read().split("\n")
                reason = next((line.strip() for line in reversed(lines) if line.strip()), "it says nothing")
                print(f"{system} is left out: {error}: {reason}", flush=True)
    return found


# ---------------------------------------------------------------- speed


def measure_at_once(
    workers: Mapping[str, Worker], work: Work, repeats: int, patience: float = math.inf
) -> tuple[Answer, list[str]]:
    """Workers that have been started, at one size: they compile at the same time, then take turns.

    For machines with a core for each: compile times are those of a busy machine. A run has `work.iterations`. Also
    returns a note for each worker that ended early, or compiled for more than `patience` seconds; it is left out of
    the result.
    """
    remaining, notes, until = dict(workers), [], time.monotonic() + patience

    def each(order: Callable[[Worker], Answer]) -> Turn:
        answers = {}
        for name, worker in list(remaining.items()):
            try:
                answers[name] = order(worker)
            except SystemExit as error:
                notes.append(f"{name}: {error}" if name != worker.system else str(error))
                del remaining[name]
        return answers

    try:
        prepared = each(lambda worker: worker.prepare(until).prepared)
        each(lambda worker: worker.run(work.iterations))  # the first run pays for what is set up once
        turns = [each(lambda worker: worker.run(work.iterations)) for _ in range(repeats)]
    finally:
        for worker in workers.values():
            with worker.process as process:
                process.kill()
    turns = [{name: turn[name] for name in remaining} for turn in turns]
    return _summary(prepared, work, work.iterations, turns), notes


def measure(systems: Sequence[str], work: Work, repeats: int, target_seconds: float) -> Answer:
    """All systems at one size: `repeats` turns of timed runs of the same length."""
    workers: dict[str, Worker] = {}
    with ExitStack() as stack:
        for system in sorted(systems, key=lambda s: s in FIXED):  # one after the other: compile times are honest too
            if system in FIXED and not work.iterations:
                work = work._replace(iterations=calibrate(workers.values(), target_seconds))
            workers[system] = stack.enter_context(Worker(system, work))
        iterations = work.iterations or calibrate(workers.values(), target_seconds)
        for system in set(workers) & set(FIXED):
            workers[system].run(iterations)  # the first run pays for what is set up once
        turns = [take_turn(workers, systems, iterations, turn) for turn in range(repeats)]
    return _summary({name: worker.prepared for name, worker in workers.items()}, work, iterations, turns)


def _summary(prepared: Mapping[str, Answer], work: Work, iterations: int, turns: list[Turn]) -> Answer:
    result: Answer = {"num_envs": work.num_envs, "num_seeds": work.num_seeds, "iterations": iterations}
    for system in turns[0]:
        runs = [turn[system] for turn in turns]
        result[system] = {
            **prepared[system],
            "steps_per_second": statistics.median(x["valid_steps"] / x["seconds"] for x in runs),
            "rows_per_second": statistics.median(x["rows"] / x["seconds"] for x in runs),
            **{name: max(x[name] for x in runs) for name in MEMORY if name in runs[0]},
            "runs": runs,
        }
    return result


def take_turn(workers: Mapping[str, Worker], systems: Sequence[str], iterations: int, turn: int) -> Turn:
    """Every worker once, one after the other; none always goes first."""
    first = turn % len(systems)
    return {system: workers[system].run(iterations) for system in (*systems[first:], *systems[:first])}


def calibrate(workers: Any, target_seconds: float) -> int:
    """How many iterations take the slowest of the workers about `target_seconds`."""
    for worker in workers:
        worker.run(1)  # the first run pays for what is set up once
    iterations = 1
    while True:
        slowest = max(worker.run(iterations)["seconds"] for worker in workers)
        if slowest > target_seconds / 4:
            return max(MIN_ITERATIONS, round(iterations * target_seconds / slowest))
        iterations = max(2 * iterations, int(iterations * 0.5 * target_seconds / slowest))


# ---------------------------------------------------------------- compilation


def compile_turns(systems: Sequence[str], work: Work, repeats: int) -> Answer:
    """Seconds to trace, lower and compile the training program, each time in a fresh process; systems take turns."""
    turns: list[Turn] = []
    for turn in range(repeats):
        first, answers = turn % len(systems), {}
        for system in (*systems[first:], *systems[:first]):
            with Worker(system, work) as worker:
                answers[system] = worker.prepared
        turns.append(answers)
    result: Answer = {"num_envs": work.num_envs}
    for system in systems:
        runs = [turn[system] for turn in turns]
        names = [name for name in runs[0] if name.endswith("_seconds")]
        result[system] = {name: statistics.median(run.get(name, 0.0) for run in runs) for name in names}
        result[system]["runs"] = runs
    return result


# ---------------------------------------------------------------- ratios


def ratios(result: Answer, ours: str, others: Sequence[str], value: Callable[[Answer], float], best: Any) -> Answer:
    """`ours` over the `best` (max or min) of the others in the same turn, and over each of them."""
    turns = zip(*(result[system]["runs"] for system in (ours, *others)), strict=True)
    values = [[value(run) for run in turn] for turn in turns]
    found = {"best": spread([mine / best(theirs) for mine, *theirs in values])}
    for i, system in enumerate(others):
        found[system] = spread([mine / theirs[i] for mine, *theirs in values])
    return found


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def speed(run: Answer) -> float:
    """Environment steps a second."""
    return run["valid_steps"] / run["seconds"]


def compile_seconds(run: Answer) -> float:
    """Seconds of tracing, lowering and compiling."""
    return run["compile_seconds"]
