"""Train from the host: chunks of iterations in one compiled program, with progress, logs, checkpoints and signals."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ppax import checkpoint, compiled, config, counter
from ppax.arguments import require_arguments, warn_of_single_rows
from ppax.cache import kept_programs
from ppax.config import Best, Log, Run
from ppax.ending import STOPPED, Callback, Ending
from ppax.envs import Env, EnvError, other_params, settings_of
from ppax.loggers import Console, Csv, JsonLines, Logger, Row, TensorBoard, last_row, require_tensorboard
from ppax.metrics import Summary
from ppax.multi_agent import Agent, pool_of, sharing_of
from ppax.restore import fresh_state, load_run, load_state, planned_iterations, state_shapes
from ppax.run_dir import RunDirectory
from ppax.selftest import require_sound
from ppax.signals import IN_MEMORY, ON_DISK, stop_on_signals
from ppax.trained import Interrupted, NumericalError, TrainedRun
from ppax.types import TrainState

ROWS_PER_RUN = 100  # log rows, where the run is long enough
CHUNK_STEPS = 2**18  # env-steps in a chunk at most, so a signal is answered within seconds
SAVE_FAILURES = 3  # in a row, before a run that cannot save gives up
POLL_SHARE, POLL_SECONDS = 0.01, 0.05  # we look whether a chunk is done after this share of its time, at most so long


def fit(
    agent: Agent,
    env: Env,
    total_steps: int = 500_000,
    seed: int = 0,
    run_dir: str | Path | None = None,
    num_steps: int = 128,
    log: Log | None = None,
    callbacks: Sequence[Callback | Logger] = (),
    *,
    stop: str | None = None,
    best: Best | None = None,
    iterations_per_env_reset: int | None = None,
) -> TrainedRun:
    """Train `agent` on `env` for `total_steps` steps of all environments, rounded up to whole rollouts.

    With `run_dir`, the configuration, metrics and checkpoints go there, and SIGTERM or Ctrl-C ends the run resumable
    (raises Interrupted); without it the first Ctrl-C ends the run after the chunk that is running, and the run so far
    comes back. Compiled programs are kept in the user's cache directory (cache.py says how to change that).

    `callbacks` are called with (state, row) at every log row and end the run by returning True; an object with
    `log(row)` and `close()` is a further logger. A callback that keeps the state must copy it: its memory is used again
    by the next chunk. `stop` is a condition as text (conditions.py), `best` says by which metric to keep the best
    policy: unlike callbacks they belong to the run's configuration, and a resumed run goes on with them.
    `iterations_per_env_reset` is that of `start`.

    Raises ConfigError, before anything compiles, for numbers out of range or sizes that do not divide;
    NumericalError when a gradient is not finite; EnvError when an environment on the host fails.
    """
    require_arguments(agent, env)
    plan: dict[str, Any] = settings_of(env) | {"num_steps": num_steps, "total_steps": total_steps, "seed": seed}
    plan |= {"iterations_per_env_reset": iterations_per_env_reset, "agents": sharing_of(agent)}
    run = Run(**plan, self_play=pool_of(agent), stop=stop, best=best or Best(), log=log or Log())
    return fit_run(agent, env, run, run_dir, callbacks)


def fit_run(
    agent: Agent,
    env: Env,
    run: Run,
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback | Logger] = (),
) -> TrainedRun:
    """`fit` for a run given as one object."""
    require_arguments(agent, env)
    plan = config.describe_run(agent, env, run)
    ending = Ending(run, callbacks)
    planned_iterations(env, run)
    other_params(env, run.eval.env_params)  # as far as evaluation may be away, what it needs must be there
    require_sound(env)
    agent.check()
    shapes = state_shapes(agent, env, run)
    warn_of_single_rows(agent, env, run.num_steps)
    ending.check(agent, env, shapes)
    # a schedule of a number that is not there
    jax.eval_shape(agent.annealed, jnp.float32(0.0), jnp.float32(0.0))
    if run.log.tensorboard:
        require_tensorboard()
    with ExitStack() as stack:
        directory = None
        if run_dir is not None:
            directory = stack.enter_context(RunDirectory.create(Path(run_dir), plan))
        stop_asked = stack.enter_context(stop_on_signals(ON_DISK if directory else IN_MEMORY))
        stack.enter_context(kept_programs())
        loop = _Loop(agent, env, run, directory, callbacks, ending, stop_asked)
        stack.callback(loop.close)
        with ThreadPoolExecutor(1) as beside:  # two programs, compiled at the same time
            state = beside.submit(fresh_state, agent, env, run)
            program = loop.compile(shapes)
        return loop.train(state.result(), program)


def resume(
    run_dir: str | Path,
    agent: Agent | None = None,
    env: Env | None = None,
    callbacks: Sequence[Callback | Logger] = (),
    console: bool | None = None,
) -> TrainedRun:
    """Continue the run in `run_dir` from its newest whole checkpoint, as if it had never stopped.

    A run made from your own parts needs them again: pass the same `agent` and `env`. Raises ConfigError where there is
    no run or it is in use, CheckpointError where no checkpoint can be loaded. `console` overrides the run's own choice.
    """
    with ExitStack() as stack:
        directory = stack.enter_context(RunDirectory.open(Path(run_dir)))
        stop_asked = stack.enter_context(stop_on_signals(ON_DISK))
        stack.enter_context(kept_programs())
        agent, env, run = load_run(directory.path, agent, env)
        if console is not None:
            run = dataclasses.replace(run, log=dataclasses.replace(run.log, console=console))
        state = load_state(directory.path, agent, env, run)
        ending, shapes = Ending(run, callbacks), state_shapes(agent, env, run)
        ending.check(agent, env, shapes)
        ending.recall(directory.path, int(state.iteration), shapes)
        loop = _Loop(agent, env, run, directory, callbacks, ending, stop_asked)
        stack.callback(loop.close)
        return loop.train(state)


class _Loop:
    """The chunked loop: everything around the one compiled program."""

    def __init__(
        self,
        agent: Agent,
        env: Env,
        run: Run,
        directory: RunDirectory | None,
        callbacks: Sequence[Callback | Logger],
        ending: Ending,
        stop: threading.Event,
    ):
        self.agent, self.env, self.run, self.directory = agent, env, run, directory
        self.ending, self.stop = ending, stop
        self.sinks: list[Any] = [c for c in callbacks if hasattr(c, "log")]
        self.total = planned_iterations(env, run)
        steps = run.num_steps * env.num_streams
        self.every = run.log.every or max(1, min(self.total // ROWS_PER_RUN, CHUNK_STEPS // steps))
        self.failures, self.last_save, self.saved = 0, time.monotonic(), -1
        self.console: Console | None = None

    def compile(self, state: TrainState) -> Any:
        """The program of all chunks. The number of iterations is traced: the same bits whatever the chunks are."""
        if self.run.log.console:
            self.console = Console(self.total)  # now: a long silence looks like a program that hangs
        return compiled.compile(self.agent, self.env, state, self.stop)

    def close(self) -> None:
        """Leave the terminal as it was, also where compilation failed."""
        if self.console is not None:
            self.console.close()

    def train(self, state: TrainState, program: Any = None) -> TrainedRun:
        """From `state` to the end of the plan, or until a signal or a callback ends it."""
        path = self.directory.path if self.directory else None
        if int(state.iteration) >= self.total or self.ending.why:
            self.ending.record(path, state, "done")
            return self._trained(state, [])
        program = program or self.compile(state)
        history: list[Row] = []
        if path is not None:
            (path / STOPPED).unlink(missing_ok=True)
        ended, done, first_step = False, int(state.iteration), counter.to_int(state.env_steps)
        started_at, train_seconds = time.time(), 0.0
        with ExitStack() as stack:
            loggers = self._loggers(stack, state)
            while not ended and done < self.total and not self.stop.is_set():
                count = min(self.every, self.total - done)
                begin, before = time.perf_counter(), counter.to_int(state.env_steps)
                try:
                    state, metrics = program(self.agent, self.env, state, count, self.total)
                except EnvError:
                    self._save(state)
                    self.ending.record(path, state, "environment")
                    raise
                row = {name: float(x) for name, x in _wait(metrics).items()}
                seconds = time.perf_counter() - begin
                done = int(state.iteration)  # a host loop may have stopped before
                env_steps = counter.to_int(state.env_steps)
                train_seconds += seconds
                timing = {
                    "steps_per_second": (env_steps - before) / seconds,
                    "seconds": self.seconds_before + train_seconds,
                }
                history.append({"iteration": done, "env_steps": env_steps} | row | timing)
                self._check_finite(state, history[-1])
                self._log(loggers, history[-1])
                ended = self.ending.look(state, history[-1])
                self._save_sometimes(state)
            if done != self.saved:
                self._save(state, last=True)
        self.ending.record(path, state, "done" if done == self.total else "signal")
        if done < self.total and not ended:
            if self.directory is not None:
                where = f"resume with: ppax resume {self.directory.path}"
                raise Interrupted(f"stopped after {counter.to_int(state.env_steps):,} steps; {where}")
            if not history:  # it was still compiling: nothing to give back
                raise KeyboardInterrupt
            self.ending.why = "Ctrl-C; fit(..., run_dir=PATH) makes runs that can be resumed"
        times = (started_at, program.compile_seconds, train_seconds)
        trained = self._trained(state, history)
        trained.started_at, trained.compile_seconds, trained.train_seconds = times
        trained.steps_per_second = (trained.env_steps - first_step) / max(train_seconds, 1e-9)
        return trained

    def _trained(self, state: TrainState, history: list[Row]) -> TrainedRun:
        trained = TrainedRun(self.agent, self.env, state, history, self.directory.path if self.directory else None)
        trained.stopped, trained.best = self.ending.why, self.ending.best
        trained.eval_env_params = self.run.eval.env_params
        return trained

    def _loggers(self, stack: ExitStack, state: TrainState) -> list[Logger]:
        done, self.seconds_before = int(state.iteration), 0.0
        loggers: list[Logger] = [*self.sinks]
        if self.console is not None:
            self.console.begin(done)
            loggers.append(self.console)
        if self.directory is not None:
            path = self.directory.path
            loggers += [JsonLines(path / "metrics.jsonl", done), Csv(path / "metrics.csv", done)]
            self.seconds_before = last_row(path / "metrics.jsonl").get("seconds", 0.0)
            if self.run.log.tensorboard:
                purge = counter.to_int(state.env_steps) + 1 if done else None
                loggers.append(TensorBoard(path / "tensorboard", purge))
        for logger in loggers:
            stack.callback(logger.close)
        return loggers

    def _log(self, loggers: list[Logger], row: Row) -> None:
        """Logging never stops training: a sink that fails is dropped, with a warning."""
        for logger in list(loggers):
            try:
                logger.log(row)
            except Exception as error:
                loggers.remove(logger)
                warnings.warn(f"{type(logger).__name__} failed and is off from now on: {error}", stacklevel=2)

    def _check_finite(self, state: TrainState, row: Row) -> None:
        if not math.isfinite(row["grad_norm"]):
            kept = f"; the last good checkpoint is in {self.directory.path}" if self.directory else ""
            self.ending.record(self.directory.path if self.directory else None, state, "fault")
            raise NumericalError(
                f"the gradient was not finite in iterations up to {row['iteration']}{kept}; "
                "try a lower learning_rate, normalize_obs or normalize_reward, and check the environment's rewards"
            )

    def _save_sometimes(self, state: TrainState) -> None:
        if time.monotonic() - self.last_save >= self.run.log.checkpoint_seconds:
            self._save(state)

    def _save(self, state: TrainState, last: bool = False) -> None:
        """A disk that fails costs no training until it has failed several times, or at the end."""
        if self.directory is None:
            return
        try:
            self.ending.save(self.directory.path)  # first: a best policy may be newer than the state, never be lost
            checkpoint.save(self.directory.checkpoints, state)
            self.failures, self.saved = 0, int(state.iteration)
        except OSError as error:
            self.failures += 1
            if last or self.failures >= SAVE_FAILURES:
                raise
            warnings.warn(f"checkpoint failed ({error}); the earlier one was kept, trying again", stacklevel=2)
        self.last_save = time.monotonic()


def _wait(metrics: Summary) -> Summary:
    """Fetch metrics; waits in Python, so that a second signal is heard while a chunk runs."""
    begin, last = time.perf_counter(), jax.tree.leaves(metrics)[-1]
    while not last.is_ready():
        time.sleep(min(POLL_SHARE * (time.perf_counter() - begin) + 1e-4, POLL_SECONDS))
    return jax.device_get(metrics)
