"""Chunked training loop on the host: run the compiled program, log, check, stop and save after every chunk."""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import jax

from ppax.agents.multi_agent import Agent
from ppax.arrays import counter
from ppax.arrays.metrics import Summary
from ppax.config import Run
from ppax.envs import Env, EnvError
from ppax.loggers import Console, Csv, JsonLines, Logger, Row, TensorBoard, last_row
from ppax.program import compilation
from ppax.program.backends import backend_of
from ppax.run.directory import RunDirectory
from ppax.run.ending import STOPPED, Callback, RunMonitor
from ppax.run.faults import NETWORK, locate
from ppax.run.origin import Origin, origin_of, versions_and_hardware
from ppax.run.restore import planned_iterations
from ppax.run.result import Interrupted, NumericalError, TrainedRun
from ppax.run.saving import NotFinite, Saver
from ppax.types import TrainState

ROWS_PER_RUN = 100  # log rows of a run that is long enough
CHUNK_STEPS = 2**18  # maximum env-steps of a chunk, so that a signal stops the run within seconds
# Polling interval while a chunk runs: this share of its time so far, at most so many seconds
POLL_SHARE, POLL_SECONDS = 0.01, 0.05


class Loop:
    """Chunked loop of one run: program, loggers, stop conditions and checkpoints."""

    def __init__(
        self,
        agent: Agent,
        env: Env,
        run: Run,
        directory: RunDirectory | None,
        callbacks: Sequence[Callback | Logger],
        monitor: RunMonitor,
        stop: threading.Event,
    ):
        self.agent, self.env, self.run, self.directory = agent, env, run, directory
        self.monitor, self.stop = monitor, stop
        self.user_loggers: list[Any] = [c for c in callbacks if hasattr(c, "log")]
        self.total_iterations = planned_iterations(env, run)
        steps = run.num_steps * env.num_streams
        self.chunk_iterations = run.log.every or max(
            1, min(self.total_iterations // ROWS_PER_RUN, CHUNK_STEPS // steps)
        )
        self.saver = Saver(directory, monitor, run.log.checkpoint_seconds)
        self.console: Console | None = None

    def begin(self, verb: str) -> Origin | None:
        """Record this start (`verb`: fit or resume) in the run directory; return the origin for its checkpoints."""
        if self.directory is None:
            return None
        origin = self.saver.origin = origin_of(self.directory.path, self.agent, self.env, self.run)
        self.directory.record_start({"verb": verb, "devices": origin.devices} | versions_and_hardware())
        return origin

    def compile(self, state: TrainState) -> Any:
        """Compile the program of all chunks. The iteration count is traced: results do not depend on chunk sizes."""
        if self.run.log.console:
            self.console = Console(self.total_iterations)  # before compilation, which may take long
        return compilation.compile(self.agent, self.env, state, self.stop)

    def close(self) -> None:
        """Close the console and restore the terminal, also after a failed compilation."""
        if self.console is not None:
            self.console.close()

    def train(self, state: TrainState, program: Any = None) -> TrainedRun:
        """Train from `state` until all iterations are done, or a signal, stop condition or callback ends the run."""
        path = self.directory.path if self.directory else None
        if int(state.iteration) >= self.total_iterations or self.monitor.why:
            self.monitor.record(path, state, "done")
            return self._trained(state, [])
        program = program or self.compile(state)
        if self.run.log.every is None:
            program.chunk_seconds = self.run.log.checkpoint_seconds  # slow environments: a row is due for each save
        history: list[Row] = []
        if path is not None:
            (path / STOPPED).unlink(missing_ok=True)
        ended, done, first_step = False, int(state.iteration), counter.to_int(state.env_steps)
        started_at, train_seconds = time.time(), 0.0
        with ExitStack() as stack:
            loggers = self._loggers(stack, state)
            while not ended and done < self.total_iterations and not self.stop.is_set():
                count = min(self.chunk_iterations, self.total_iterations - done)
                chunk_start, steps_before, env_error = time.perf_counter(), counter.to_int(state.env_steps), None
                try:
                    state, metrics = program(self.agent, self.env, state, count, self.total_iterations)
                except EnvError as error:
                    env_error = error
                    state, metrics = error.reached or (state, None)
                row = {} if metrics is None else {name: float(x) for name, x in _wait(metrics).items()}
                seconds = time.perf_counter() - chunk_start
                done_before, done = done, int(state.iteration)  # a host loop may stop inside a chunk
                env_steps = counter.to_int(state.env_steps)
                train_seconds += seconds
                timing = {
                    "steps_per_second": (env_steps - steps_before) / seconds,
                    "seconds": self.seconds_before + train_seconds,
                }
                if done > done_before:  # false if no iteration of the chunk was completed
                    history.append({"iteration": done, "env_steps": env_steps} | row | timing)
                    self._log(loggers, history[-1])
                if env_error is not None:
                    self.saver.rescue(state)
                    self.monitor.record(path, state, "environment")
                    raise env_error
                self._check_finite(state, row)
                ended = self.monitor.update(state, history[-1])
                self._save(state, self.saver.save_if_due)
            save_error = self._save(state, self.saver.save_final)
        for sentence in self.monitor.metrics_without_values() if done == self.total_iterations else ():
            warnings.warn(sentence, stacklevel=2)
        self.monitor.record(path, state, "done" if done == self.total_iterations else "signal")
        if done < self.total_iterations and not ended:
            if save_error is not None:
                raise save_error
            if self.directory is not None:
                where = f"resume with: ppax resume {self.directory.path}"
                raise Interrupted(f"stopped after {counter.to_int(state.env_steps):,} steps; {where}")
            if not history:  # interrupted during compilation: no result to return
                raise KeyboardInterrupt
            self.monitor.why = "Ctrl-C; fit(..., run_dir=PATH) makes runs that can be resumed"
        times = (started_at, program.compile_seconds, train_seconds)
        trained = self._trained(state, history)
        if save_error is not None:  # the result is returned all the same
            trained.unsaved = str(save_error)
            warnings.warn(f"the last checkpoint could not be saved: {save_error}", stacklevel=3)
        trained.started_at, trained.compile_seconds, trained.train_seconds = times
        trained.steps_per_second = (trained.env_steps - first_step) / max(train_seconds, 1e-9)
        return trained

    def _trained(self, state: TrainState, history: list[Row]) -> TrainedRun:
        trained = TrainedRun(self.agent, self.env, state, history, self.directory.path if self.directory else None)
        trained.stopped, trained.best = self.monitor.why, self.monitor.best
        trained.eval_env_params = self.run.eval.env_params
        return trained

    def _loggers(self, stack: ExitStack, state: TrainState) -> list[Logger]:
        done, self.seconds_before = int(state.iteration), 0.0
        loggers: list[Logger] = [*self.user_loggers]
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
            stack.callback(_close, logger)
        return loggers

    def _log(self, loggers: list[Logger], row: Row) -> None:
        """Log one row; a logger that fails is removed with a warning, and training goes on."""
        for logger in list(loggers):
            try:
                logger.log(row)
            except Exception as error:
                loggers.remove(logger)
                warnings.warn(f"{type(logger).__name__} failed and is removed: {error}", stacklevel=2)

    def _check_finite(self, state: TrainState, row: Row) -> None:
        """Raise NumericalError if the last iteration was rejected; saves `state`, which is the one before it."""
        if math.isfinite(row["grad_norm"]):
            return
        self.saver.rescue(state)
        self.monitor.record(self.directory.path if self.directory else None, state, "fault")
        where = NETWORK
        if backend_of(self.env).repeatable:  # host rollouts are checked while they are collected
            # device_put and not NumPy: the state contains typed keys
            on_device = jax.device_put(state, jax.local_devices()[0])
            where = locate(self.agent, self.env, on_device, self.total_iterations)
        raise NumericalError(
            f"iteration {int(state.iteration) + 1} is not finite: {where}{self.saver.newest_checkpoint_note()}"
        )

    def _save(self, state: TrainState, save: Callable[[TrainState], OSError | None]) -> OSError | None:
        """Call `save(state)`; raise NumericalError if the state is not finite."""
        try:
            return save(state)
        except NotFinite as error:
            self.monitor.record(self.directory.path if self.directory else None, state, "fault")
            raise NumericalError(
                f"after iteration {int(state.iteration)} the learner is not finite ({error}), though its gradients "
                f"are: it was not saved{self.saver.newest_checkpoint_note()}; "
                "look for numbers beyond 1e18 in observations and rewards"
            ) from error


def _close(logger: Logger) -> None:
    """Close a logger; warn where that fails, as for a console whose terminal is closed."""
    try:
        logger.close()
    except Exception as error:
        warnings.warn(f"{type(logger).__name__} could not be closed: {error}", stacklevel=2)


def _wait(metrics: Summary) -> Summary:
    """Fetch metrics to the host; polls in Python, so that signal handlers run while a chunk is computed."""
    start, last = time.perf_counter(), jax.tree.leaves(metrics)[-1]
    while not last.is_ready():
        time.sleep(min(POLL_SHARE * (time.perf_counter() - start) + 1e-4, POLL_SECONDS))
    return jax.device_get(metrics)
