"""Train from the host: chunks of iterations in one compiled program, with progress, logs, checkpoints and signals."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ppax import config
from ppax.agents.arguments import require_arguments, require_env, warn_of_single_rows
from ppax.agents.multi_agent import Agent, pool_of, sharing_of
from ppax.arrays import counter
from ppax.arrays.metrics import Summary
from ppax.checks import require_sound
from ppax.config import BestSettings, Log, Run, group_tables
from ppax.envs import Env, EnvError, HostEnv, other_params, settings_of
from ppax.host import HostTraining
from ppax.loggers import Console, Csv, JsonLines, Logger, Row, TensorBoard, last_row, require_tensorboard
from ppax.program import compilation, sharding
from ppax.program.footprint import explained
from ppax.run import provenance, record
from ppax.run.directory import RunDirectory
from ppax.run.ending import STOPPED, Callback, RunMonitor
from ppax.run.faults import NETWORK, locate
from ppax.run.origin import Origin, as_begun, origin_of, saved_origin, say_changes
from ppax.run.restore import fresh_state, load_run, load_state, planned_iterations, require_memory, state_shapes
from ppax.run.result import Interrupted, NumericalError, TrainedRun
from ppax.run.saving import NotFinite, Saver
from ppax.run.signals import IN_MEMORY, ON_DISK, stop_on_signals
from ppax.storage.cache import kept_programs
from ppax.types import ConfigError, TrainState

ROWS_PER_RUN = 100  # log rows, where the run is long enough
CHUNK_STEPS = 2**18  # env-steps in a chunk at most, so a signal is answered within seconds
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
    best: BestSettings | None = None,
    iterations_per_env_reset: int | None = None,
) -> TrainedRun:
    """Train `agent` on `env` for `total_steps` steps, rounded up to whole rollouts.

    Counted is a step of every agent of all environments, those included that only reset an environment, so that the
    length of a run is known before it; `env_steps` in rows and results counts without these.

    With `run_dir`, the configuration, metrics and checkpoints go there, and SIGTERM or Ctrl-C ends the run resumable
    (raises Interrupted); without it the first Ctrl-C ends the run after the chunk that is running, and the run so far
    comes back. Compiled programs are kept in the user's cache directory (cache.py says how to change that).

    `callbacks` are called with (state, row) at every log row and end the run by returning True; an object with
    `log(row)` and `close()` is a further logger. A callback that keeps the state must copy it: its memory is used again
    by the next chunk. `stop` is a condition as text (conditions.py), `best` says by which metric to keep the best
    policy: unlike callbacks they belong to the run's configuration, and a resumed run goes on with them.
    `iterations_per_env_reset` is that of `start`.

    Raises ConfigError, before anything compiles, for numbers out of range or sizes that do not divide;
    NumericalError when rollout, gradient or weights are not finite; EnvError when an environment on the host fails.
    """
    require_env(env)
    plan: dict[str, Any] = settings_of(env) | {"num_steps": num_steps, "total_steps": total_steps, "seed": seed}
    plan |= {"iterations_per_env_reset": iterations_per_env_reset, "agents": sharing_of(agent)}
    run = Run(**plan, self_play=pool_of(agent), stop=stop, best=best or BestSettings(), log=log or Log())
    return fit_run(agent, env, run, run_dir, callbacks)


def fit_run(
    agent: Agent,
    env: Env,
    run: Run,
    run_dir: str | Path | Iterable[Path] | None = None,
    callbacks: Sequence[Callback | Logger] = (),
    say: Callable[[str], None] = lambda text: None,
) -> TrainedRun:
    """`fit` for a run given as one object; of several directories it takes the first that nothing has yet.

    `say` receives a sentence about the memory that the run takes, before anything compiles.
    """
    require_env(env)
    require_sound(env)  # first: an environment that no network can read fits no network
    require_arguments(agent, env)
    plan = config.describe_run(agent, env, run)
    ending = RunMonitor(run, callbacks)
    planned_iterations(env, run)
    other_params(env, run.eval.env_params)  # as far as evaluation may be away, what it needs must be there
    agent.check()
    if env.num_agents == 1 and sharing_of(agent) == group_tables.INDEPENDENT:
        warnings.warn(f'agents = "independent" changes nothing: {env.name} has one agent; leave it out', stacklevel=3)
    shapes = state_shapes(agent, env, run)
    needed = require_memory(agent, env, shapes)
    say(f"memory, at least: {needed}")
    warn_of_single_rows(agent, env, run.num_steps)
    ending.check(agent, env, shapes)
    # a schedule of a number that is not there
    jax.eval_shape(agent.annealed, jnp.float32(0.0), jnp.float32(0.0))
    if run.log.tensorboard:
        require_tensorboard()
        if run_dir is None:
            raise ConfigError(
                "log.tensorboard = true: event files stand in the run's directory, and there is none; "
                'pass run_dir="runs/mine", or set it to false'
            )
    with ExitStack() as stack:
        directory = None
        if run_dir is not None:
            marks = record.objects(agent, env, plan, callbacks)
            plan |= {config.OBJECTS: marks} if marks else {}
            paths = Path(run_dir) if isinstance(run_dir, str) else run_dir
            directory = stack.enter_context(RunDirectory.create(paths, plan))
        stop_asked = stack.enter_context(stop_on_signals(ON_DISK if directory else IN_MEMORY))
        stack.enter_context(kept_programs())
        stack.enter_context(explained(needed))
        loop = _Loop(agent, env, run, directory, callbacks, ending, stop_asked)
        loop.begin("fit")
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
        before = saved_origin(directory.path)
        sharding.use_cpu_devices(before.devices)
        agent, env, run = load_run(directory.path, agent, env)
        agent = as_begun(before, agent, env, run)
        if console is not None:
            run = dataclasses.replace(run, log=dataclasses.replace(run.log, console=console))
        ending, shapes = RunMonitor(run, callbacks), state_shapes(agent, env, run)
        stack.enter_context(explained(require_memory(agent, env, shapes)))
        state = load_state(directory.path, agent, env, run)
        ending.check(agent, env, shapes)
        ending.recall(directory.path, int(state.iteration), shapes)
        loop = _Loop(agent, env, run, directory, callbacks, ending, stop_asked)
        stack.callback(loop.close)
        say_changes(directory.path, before, loop.begin("resume"))
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
        ending: RunMonitor,
        stop: threading.Event,
    ):
        self.agent, self.env, self.run, self.directory = agent, env, run, directory
        self.ending, self.stop = ending, stop
        self.sinks: list[Any] = [c for c in callbacks if hasattr(c, "log")]
        self.total = planned_iterations(env, run)
        steps = run.num_steps * env.num_streams
        self.every = run.log.every or max(1, min(self.total // ROWS_PER_RUN, CHUNK_STEPS // steps))
        self.saver = Saver(directory, ending, run.log.checkpoint_seconds)
        self.console: Console | None = None

    def begin(self, verb: str) -> Origin | None:
        """Record in the run directory with what the run begins or goes on; what its checkpoints will say of it."""
        if self.directory is None:
            return None
        origin = self.saver.origin = origin_of(self.directory.path, self.agent, self.env, self.run)
        self.directory.record_start({"verb": verb, "devices": origin.devices} | provenance.here())
        return origin

    def compile(self, state: TrainState) -> Any:
        """The program of all chunks. The number of iterations is traced: the same bits whatever the chunks are."""
        if self.run.log.console:
            self.console = Console(self.total)  # now: a long silence looks like a program that hangs
        return compilation.compile(self.agent, self.env, state, self.stop)

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
        if isinstance(program, HostTraining) and self.run.log.every is None:
            program.chunk_seconds = self.run.log.checkpoint_seconds  # environments may be slow: saves are at log rows
        history: list[Row] = []
        if path is not None:
            (path / STOPPED).unlink(missing_ok=True)
        ended, done, first_step = False, int(state.iteration), counter.to_int(state.env_steps)
        started_at, train_seconds = time.time(), 0.0
        with ExitStack() as stack:
            loggers = self._loggers(stack, state)
            while not ended and done < self.total and not self.stop.is_set():
                count = min(self.every, self.total - done)
                begin, before, failed = time.perf_counter(), counter.to_int(state.env_steps), None
                try:
                    state, metrics = program(self.agent, self.env, state, count, self.total)
                except EnvError as error:
                    failed = error
                    state, metrics = error.reached or (state, None)
                row = {} if metrics is None else {name: float(x) for name, x in _wait(metrics).items()}
                seconds = time.perf_counter() - begin
                finished, done = done, int(state.iteration)  # a host loop may have stopped before
                env_steps = counter.to_int(state.env_steps)
                train_seconds += seconds
                timing = {
                    "steps_per_second": (env_steps - before) / seconds,
                    "seconds": self.seconds_before + train_seconds,
                }
                if done > finished:  # else none of its iterations was taken
                    history.append({"iteration": done, "env_steps": env_steps} | row | timing)
                    self._log(loggers, history[-1])
                if failed is not None:
                    self.saver.rescue(state)
                    self.ending.record(path, state, "environment")
                    raise failed
                self._check_finite(state, row)
                ended = self.ending.look(state, history[-1])
                self._save(state, self.saver.sometimes)
            unsaved = self._save(state, self.saver.last)
        for sentence in self.ending.unseen() if done == self.total else ():
            warnings.warn(sentence, stacklevel=2)
        self.ending.record(path, state, "done" if done == self.total else "signal")
        if done < self.total and not ended:
            if unsaved is not None:
                raise unsaved
            if self.directory is not None:
                where = f"resume with: ppax resume {self.directory.path}"
                raise Interrupted(f"stopped after {counter.to_int(state.env_steps):,} steps; {where}")
            if not history:  # it was still compiling: nothing to give back
                raise KeyboardInterrupt
            self.ending.why = "Ctrl-C; fit(..., run_dir=PATH) makes runs that can be resumed"
        times = (started_at, program.compile_seconds, train_seconds)
        trained = self._trained(state, history)
        if unsaved is not None:  # the run itself is not lost for it
            trained.unsaved = str(unsaved)
            warnings.warn(f"the last checkpoint could not be saved: {unsaved}", stacklevel=3)
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
            stack.callback(_close, logger)
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
        """NumericalError where an iteration was not taken; `state` is as it was before it, and worth keeping."""
        if math.isfinite(row["grad_norm"]):
            return
        self.saver.rescue(state)
        self.ending.record(self.directory.path if self.directory else None, state, "fault")
        where = NETWORK
        if not isinstance(self.env, HostEnv):  # where those have been looked at already
            here = jax.device_put(state, jax.local_devices()[0])  # keys, too, which NumPy does not have
            where = locate(self.agent, self.env, here, self.total)
        raise NumericalError(f"iteration {int(state.iteration) + 1} is not finite: {where}{self.saver.kept()}")

    def _save(self, state: TrainState, save: Callable[[TrainState], OSError | None]) -> OSError | None:
        """Save by `save`; NumericalError for a state that no run could go on from."""
        try:
            return save(state)
        except NotFinite as error:
            self.ending.record(self.directory.path if self.directory else None, state, "fault")
            raise NumericalError(
                f"after iteration {int(state.iteration)} the learner is not finite ({error}), though its gradients "
                f"are: it was not saved{self.saver.kept()}; look for numbers beyond 1e18 in observations and rewards"
            ) from error


def _close(logger: Logger) -> None:
    """Close a logger; one that fails, as a console whose terminal is closed, is only a warning."""
    try:
        logger.close()
    except Exception as error:
        warnings.warn(f"{type(logger).__name__} could not be closed: {error}", stacklevel=2)


def _wait(metrics: Summary) -> Summary:
    """Fetch metrics; waits in Python, so that a second signal is heard while a chunk runs."""
    begin, last = time.perf_counter(), jax.tree.leaves(metrics)[-1]
    while not last.is_ready():
        time.sleep(min(POLL_SHARE * (time.perf_counter() - begin) + 1e-4, POLL_SECONDS))
    return jax.device_get(metrics)
