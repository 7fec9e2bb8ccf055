"""Training loop on the host, in chunks of iterations: run the compiled program, then log, check, stop and save."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import jax

from ppax import config
from ppax.arrays import counter
from ppax.config import Run
from ppax.core.protocols import Agent, Logger, Row
from ppax.core.types import TrainState
from ppax.devices import processes
from ppax.envs import Env, EnvError
from ppax.envs.hosting.faults import NotFiniteValue
from ppax.loggers import Console
from ppax.run import python_objects
from ppax.run.directory import EVALUATION, RUN_FILE, STOPPED
from ppax.run.evaluations import Evaluations
from ppax.run.faults import NETWORK, check_line, locate, lost_processes
from ppax.run.films import FilmRecorder
from ppax.run.logging import RunLoggers, close_logger, logged_run, measured, next_row, row_intervals, untrained_row
from ppax.run.monitor import RunMonitor
from ppax.run.restore import planned_iterations
from ppax.run.result import Interrupted, NumericalError, TrainedRun, record_evaluation
from ppax.run.saving import NotFinite, Saver
from ppax.training import backends
from ppax.training.backends import backend_of

CTRL_C = "Ctrl-C; fit(..., run_dir=PATH) makes runs that can be resumed"


class TrainedChunk(NamedTuple):
    """Result of one chunk, the iterations between two log rows: the state after them, and their log row.

    `grad_norm` is the mean norm of the chunk's gradients; NaN if an iteration had a rollout, gradient or weights that
    were not finite, or none was completed. An iteration that is not finite is discarded: `state` is that before it.
    `seconds` is the time of the chunk.
    """

    state: TrainState
    row: Row  # {} if no iteration was completed
    grad_norm: float  # NaN if an iteration of the chunk was rejected because it was not finite
    error: EnvError | None  # of a host environment that failed
    seconds: float


class RunLoop:
    """Training loop of one run in chunks of iterations, with its program, loggers, stop conditions and checkpoints."""

    def __init__(
        self,
        agent: Agent,
        env: Env,
        run: Run,
        saver: Saver,
        loggers: Sequence[Logger],
        monitor: RunMonitor,
        evaluations: Evaluations,
        stop: threading.Event,
    ):
        self.agent, self.env, self.run, self.saver, self.path = agent, env, run, saver, saver.path
        self.user_loggers, self.monitor, self.evaluations, self.stop = [*loggers], monitor, evaluations, stop
        self.total_iterations = planned_iterations(env, run)
        self.intervals = row_intervals(run, self.total_iterations, run.num_steps * env.num_streams)
        self.films = FilmRecorder(agent, env, run)
        self.console: Console | None = None

    def compile(self, state: TrainState) -> Any:
        """Return the compiled program that trains one chunk, the iterations between two log rows.

        It is called with agent, environment, state, the chunk's number of iterations and that of the run, and returns
        the state after the chunk and the chunk's metrics. As one program serves chunks of all lengths, the trained
        weights do not depend on how a run is divided into chunks. `state` may consist of shapes.
        """
        if self.run.log.console:
            steps = self.run.num_steps * self.env.num_streams
            self.console = Console(self.total_iterations, steps=steps)  # before compilation, which may take long
        program = backends.compile(self.agent, self.env, state, self.stop)
        program.overlap = self.run.overlap
        if self.run.log.every is None:
            program.chunk_seconds = self.run.log.checkpoint_seconds  # slow environments: a row is due for each save
        return program

    def close(self) -> None:
        """Close the run's console display and the user's loggers, also if nothing was left to train or compiled.

        Loggers that have got rows are closed before, at the end of the training.
        """
        if self.console is not None:
            self.console.close()
        for logger in self.user_loggers:
            close_logger(type(logger).__name__, logger)

    @lost_processes()
    def train(self, state: TrainState, program: Any = None) -> TrainedRun:
        """Train from `state` until all iterations are done or something ends the run, and return the trained run.

        A signal, a stop condition or a callback may end it; a fault raises an exception. `program` is the result of
        `compile`; None: it is compiled here.
        """
        if self._all_done(state) or self.monitor.stop_reason:
            self.monitor.record(self.path, state, "done")
            return self._result(state, [], self.monitor.stop_reason)
        program = program or self.compile(state)
        if self.path is not None:
            for name in (STOPPED, EVALUATION):  # of the policy that is trained on from here
                (self.path / name).unlink(missing_ok=True)
        history, ended, seconds = list[Row](), False, 0.0
        stopping = processes.any_of(self.stop.is_set())
        started_at, steps_before = time.time(), counter.to_int(state.env_steps)
        with self._open_loggers(state) as loggers:
            self.films.resume(int(state.iteration))
            loggers.store(self.films.due(state, self.path))
            while not (ended or self._all_done(state) or stopping):
                untrained = self.evaluations.blank and int(state.iteration) == 0 and not history
                before = loggers.seconds + seconds
                chunk = self._untrained(program, state) if untrained else self._run_chunk(program, state, before)
                chunk = self._evaluated(chunk)
                state, seconds = chunk.state, seconds + chunk.seconds
                if chunk.row:
                    history.append(chunk.row)
                    loggers.log(chunk.row)
                self._raise_faults(chunk)
                loggers.store(self.films.due(state, self.path))
                ended = processes.agreed(self.monitor.update(state, chunk.row))
                self._save(state, self.saver.save_if_due)
                stopping = processes.any_of(self.stop.is_set())
            save_error = self._save(state, self.saver.save_final)
            if not stopping:  # after a signal there may be little time
                loggers.store_policy(self._result(state, history, ""))
        self._record_end(state)
        interrupted = not (ended or self._all_done(state))
        if interrupted:
            self._raise_interrupted(state, save_error, history)
        elif save_error is not None:  # the result is returned all the same
            warnings.warn(f"the last checkpoint could not be saved: {save_error}", stacklevel=3)
        trained = dataclasses.replace(
            self._result(state, history, CTRL_C if interrupted else self.monitor.stop_reason),
            started_at=started_at,
            compile_seconds=program.compile_seconds,
            train_seconds=seconds,
            steps_per_second=(counter.to_int(state.env_steps) - steps_before) / max(seconds, 1e-9),
            unsaved=str(save_error or ""),
        )
        last = self.evaluations.results.get(int(state.iteration))
        if last is not None and save_error is None:  # of the final policy: as after `ppax train`
            record_evaluation(trained, last)
        return trained

    def _all_done(self, state: TrainState) -> bool:
        return int(state.iteration) >= self.total_iterations

    def _open_loggers(self, state: TrainState) -> RunLoggers:
        loggers = [*self.user_loggers]
        if self.console is not None:
            self.console.begin(int(state.iteration))
            loggers.append(self.console)
        run = logged_run(self.agent, self.env, self.run, self.path, state)
        opened = RunLoggers(self.path, loggers, int(state.iteration), self.run.log.parts, run)
        self.user_loggers = []  # which `opened` closes
        return opened

    def _untrained(self, program: Any, state: TrainState) -> TrainedChunk:
        """Return the chunk before the first iteration: `state`, and a log row with NaN for the metrics of training."""
        return TrainedChunk(state, untrained_row(program.metric_names), 0.0, None, 0.0)

    def _evaluated(self, chunk: TrainedChunk) -> TrainedChunk:
        """Return the chunk with an evaluation's columns in its log row: NaN if none is due or an environment failed."""
        if not chunk.row:
            return chunk
        try:
            return chunk._replace(row=chunk.row | self.evaluations.columns(chunk.state, chunk.row))
        except EnvError as error:
            return chunk._replace(row=chunk.row | self.evaluations.blank, error=error)

    def _run_chunk(self, program: Any, state: TrainState, seconds_before: float) -> TrainedChunk:
        """Run the iterations up to the next log row, and return the state after them, with their row, as a chunk.

        `seconds_before` is the training time of the run so far. An environment that fails ends the chunk early: the
        chunk then has its error, and its row is {} if no iteration was completed.
        """
        done, steps_before = int(state.iteration), counter.to_int(state.env_steps)
        count = next_row(done, self.intervals, self.evaluations.next_after(done)) - done
        begin, error, metrics = time.perf_counter(), None, None
        try:
            state, metrics = program(self.agent, self.env, state, count, self.total_iterations)
        except EnvError as env_error:
            error = env_error
            state, metrics = error.reached or (state, None)
        row = {} if metrics is None else {name: float(x) for name, x in jax.device_get(metrics).items()}
        seconds, env_steps = time.perf_counter() - begin, counter.to_int(state.env_steps)
        grad_norm = row.get("grad_norm", math.nan)
        if int(state.iteration) == done:
            return TrainedChunk(state, {}, grad_norm, error, seconds)
        # a host loop may stop inside a chunk: the state has the iterations that are done
        iteration = int(state.iteration)
        own = measured(
            seconds,
            iteration - done,
            env_steps - steps_before,
            seconds_before,
            program.compile_seconds,
            program.collect_seconds,
        )
        row = {"iteration": iteration, "env_steps": env_steps} | row | own
        return TrainedChunk(state, row, grad_norm, error, seconds)

    def _raise_faults(self, chunk: TrainedChunk) -> None:
        """Raise EnvError if an environment failed in `chunk`, NumericalError if values of an iteration were not finite.

        Before that, the chunk's state is saved, if the run has a directory: the state after its last completed
        iteration with finite values.
        """
        if isinstance(chunk.error, NotFiniteValue):  # as in a compiled environment
            self._raise_not_finite(chunk.state, chunk.error)
        if chunk.error is not None:
            self.saver.rescue(chunk.state)
            self.monitor.record(self.path, chunk.state, "environment", error=str(chunk.error))
            raise chunk.error
        if not math.isfinite(chunk.grad_norm):
            self._raise_not_finite(chunk.state)

    def _record_end(self, state: TrainState) -> None:
        """Write to stopped.json why the run ended: all iterations are done, a stop condition is met, or a signal came.

        If all is done, warns of each metric of the settings `stop` and `best` that never had a value.
        """
        for sentence in self.monitor.metrics_without_values() if self._all_done(state) else ():
            warnings.warn(sentence, stacklevel=3)
        self.monitor.record(self.path, state, "done" if self._all_done(state) else "signal")

    def _raise_interrupted(self, state: TrainState, save_error: OSError | None, history: list[Row]) -> None:
        """Raise the error of the last save, `save_error`, if there is one, else Interrupted with the command to resume.

        For a run without directory no Interrupted is raised, and `train` returns its result; but if `history`, its log
        rows, is empty, KeyboardInterrupt is raised.
        """
        if save_error is not None:
            raise save_error
        if processes.agreed(self.path is not None):
            line = (
                python_objects.resume_line(config.read(self.path / RUN_FILE), self.path)
                if self.path
                else "ppax resume RUN"
            )
            steps = state.num_steps * self.env.num_streams  # of an iteration, as a resumed run counts them
            done = f"{int(state.iteration) * steps:,} of {self.total_iterations * steps:,} steps"
            raise Interrupted(f"stopped after {done}; resume with: {line}")
        if not history:  # interrupted during compilation: no result to return
            raise KeyboardInterrupt

    def _result(self, state: TrainState, history: list[Row], stopped: str) -> TrainedRun:
        return TrainedRun(
            self.agent,
            self.env,
            processes.whole(state),
            history,
            self.path,
            stopped=stopped,
            best=self.monitor.best,
            evaluations=self.evaluations.results,
            eval_settings=self.run.eval,
            seed=self.run.seed,
        )

    def _raise_not_finite(self, state: TrainState, error: NotFiniteValue | None = None) -> NoReturn:
        """Save `state`, the one before the iteration whose values were not finite, and raise NumericalError.

        `error` is the exception by which an environment on the host reported such a value during the rollout, and
        becomes the cause of NumericalError. None: the iteration was computed to its end and then discarded.
        """
        self.saver.rescue(state)
        self.monitor.record(self.path, state, "fault")
        where = NETWORK if error is None else f"{error}; {check_line(self.env)}"
        if backend_of(self.env).repeatable:
            # device_put and not NumPy: the state contains typed keys
            on_device = jax.device_put(processes.whole(state), jax.local_devices()[0])
            where = locate(self.agent, self.env, on_device, self.total_iterations)
        said = f"iteration {int(state.iteration) + 1} is not finite: {where}"
        self.monitor.record(self.path, state, "fault", error=said)  # once more: to locate it may have failed
        raise NumericalError(f"{said}{self.saver.newest_checkpoint_note()}") from error

    def _save(self, state: TrainState, save: Callable[[TrainState], OSError | None]) -> OSError | None:
        """Save a state by calling `save(state)`, and return its error, or None if it succeeded.

        Raises NumericalError if `state` is not finite.
        """
        try:
            return save(state)
        except NotFinite as error:
            said = (
                f"after iteration {int(state.iteration)} the learner is not finite ({error}), though its gradients are"
            )
            remedy = "look for numbers beyond 1e18 in observations and rewards"
            self.monitor.record(self.path, state, "fault", error=f"{said}; {remedy}")
            kept = self.saver.newest_checkpoint_note()
            raise NumericalError(f"{said}: it was not saved{kept}; {remedy}") from error
