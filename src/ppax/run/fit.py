"""`fit` and `resume`: recorded training runs with logs, checkpoints, stop conditions and signals (loop.py)."""

from __future__ import annotations

import dataclasses
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppax import config
from ppax.agents.precision import decide_dtype
from ppax.agents.self_play import Pool
from ppax.checks import require_sound
from ppax.config import BestSettings, EvalSettings, FilmSettings, InitFrom, Log, Run, group_tables
from ppax.config.run_settings import chosen
from ppax.core.options import Config, check_numbers, require_group_name
from ppax.core.protocols import Agent, Callback, Logger, StopCondition
from ppax.core.types import TrainState
from ppax.core.unknown_names import refusing_unknown
from ppax.devices import processes, sharding
from ppax.devices.footprint import Footprint, explaining_memory
from ppax.envs import Env, check_schedule
from ppax.loggers.files import rows_until
from ppax.policy.spec import spec_of
from ppax.run import python_objects
from ppax.run.conditions import sort_callbacks
from ppax.run.directory import ROWS, RunDirectory, require_named
from ppax.run.evaluations import Evaluations
from ppax.run.films import FilmRecorder
from ppax.run.loop import RunLoop
from ppax.run.monitor import RunMonitor
from ppax.run.provenance import in_saved_precision, record_start, saved_origin, warn_of_changes, with_saved_devices
from ppax.run.restore import (
    load_run,
    load_state,
    planned_iterations,
    require_memory,
    state_shapes,
    with_total_steps,
)
from ppax.run.result import TrainedRun
from ppax.run.saving import Saver, first_state
from ppax.run.signals import IN_MEMORY, ON_DISK, stop_on_signals
from ppax.run.warm_start import WarmStart, prepare, settings_and_object
from ppax.storage.cache import kept_programs
from ppax.storage.paths import absolute, to_directory, to_path
from ppax.training.arguments import (
    require_agent,
    require_arguments,
    require_env,
    require_overlap,
    warn_of_single_rows,
    warn_of_units,
)
from ppax.training.backends import backend_of
from ppax.training.host import for_overlap
from ppax.training.loop import make_key


@refusing_unknown
def fit(
    agent: Agent,
    env: Env,
    total_steps: int = 500_000,
    seed: int = 0,
    run_dir: str | Path | None = None,
    num_steps: int = 128,
    log: Log | None = None,
    callbacks: Sequence[Callback | Logger | StopCondition] = (),
    *,
    stop: str | None = None,
    best: BestSettings | None = None,
    evaluation: EvalSettings | None = None,
    film: FilmSettings | None = None,
    iterations_per_env_reset: int | None = None,
    overlap: int = 0,
    init_from: InitFrom | str | Path | TrainedRun | TrainState | None = None,
    overwrite: bool = False,
) -> TrainedRun:
    """Train `agent` on `env` for `total_steps` steps, rounded up to whole rollouts, and return the trained run.

    `total_steps` counts the steps of every agent in every environment, in rollouts of `num_steps` steps each. Autoreset
    steps count too, so the number of iterations is known in advance; `env_steps` in rows and results leaves them out.

    With `run_dir`, configuration, metrics and checkpoints are written there, as `log` says; SIGTERM, SIGHUP or Ctrl-C
    then saves the run and raises Interrupted, and `resume` continues it. Where the directory holds a trained run
    already, `overwrite` renames it, and a warning says how; else ConfigError. Without `run_dir` the first Ctrl-C ends
    the run after the current chunk and returns the result so far. Compiled programs are cached (storage/cache.py).

    `callbacks` are called with (state, row) at every log row; returning True ends the run. An object with `log(row)`
    and `close()` is an additional logger, one of `ppax.stop` a stop condition. A callback that keeps the state must
    copy it: the next chunk reuses its memory (buffer donation). `stop` is a stop condition as text, `best` the metric
    by which the best policy is kept; unlike callbacks, both are part of the run file. `evaluation` evaluates during
    training, `film` writes films. Every `iterations_per_env_reset` iterations (None: never) all episodes are truncated
    and all environments reset. With `overlap` = 1 host environments are stepped during updates, by a policy one update
    old. `init_from` is a run whose weights and statistics this one starts from.

    Raises ConfigError, before anything compiles, for settings that cannot work, as a learner of `init_from` that does
    not fit; NotEnoughMemory; NumericalError when rollout, gradient or weights are not finite; EnvError when an
    environment on the host fails.
    """
    require_env(env)
    require_agent(agent)
    settings, given = settings_and_object(init_from)
    fields = env.settings.run_fields() | {"num_steps": num_steps, "total_steps": total_steps, "seed": seed}
    fields |= {"iterations_per_env_reset": iterations_per_env_reset, "agents": agent.sharing, "init_from": settings}
    fields |= {"stop": stop, "self_play": agent.pool or Pool(), "overlap": overlap}
    fields |= chosen(best=best, log=log, evaluation=evaluation, film=film)
    run = config.in_iterations(Run(**fields), num_steps * env.num_streams)
    return fit_run(agent, env, run, run_dir, callbacks, given=given, overwrite=overwrite)


def fit_run(
    agent: Agent,
    env: Env,
    run: Run,
    run_dir: str | Path | Iterable[Path] | None = None,
    callbacks: Sequence[Callback | Logger | StopCondition] = (),
    say: Callable[[str], None] = lambda text: None,
    given: TrainedRun | TrainState | None = None,
    overwrite: bool = False,
) -> TrainedRun:
    """Train `agent` on `env` with the settings of `run`, and return the trained run.

    Of several paths `run_dir`, the first that does not exist yet is used. `say` gets lines for the user, before
    anything compiles. `given`, an object in memory, takes the place of the run to start from that `run.init_from.run`
    names. `callbacks` and `overwrite` are those of `fit`.
    """
    require_named(run_dir, overwrite)
    run, run_dir, callbacks = _own_share(run, run_dir, callbacks)
    with ExitStack() as stack:
        checked = stack.enter_context(checking(agent, env, run, run_dir, callbacks, given, say))
        warn_of_settings(checked.agent, env, run)
        monitor, shapes, warm = checked.monitor, checked.shapes, checked.warm
        directory = None
        if run_dir is not None:
            source = None if run.init_from.run else given
            objects = python_objects.objects(checked.agent, env, checked.run_config, callbacks, source)
            policy = spec_of(checked.agent, env, shapes.actor.action_mask, {}).to_data()
            directory = stack.enter_context(_new_directory(run_dir, checked.run_config, objects, policy, overwrite))
        stop_requested = stack.enter_context(stop_on_signals(_signals(directory)))
        stack.enter_context(kept_programs())
        stack.enter_context(explaining_memory(checked.memory))
        agent = for_overlap(checked.agent, env, run.num_steps, run.overlap)
        origin = record_start(directory, "fit", agent, env, run, {} if warm is None else warm.record())
        saver = Saver(directory, monitor, run.log, origin)
        loop = RunLoop(agent, env, run, saver, checked.loggers, monitor, checked.evaluations, stop_requested)
        stack.enter_context(closing(loop))
        with ThreadPoolExecutor(1) as executor:  # compile `start` and `train` at the same time
            # the user's context is one of this thread: also that of the key, whose implementation it may choose
            disabled = jax.disable_jit(jax.config.jax_disable_jit)  # type: ignore[attr-defined]
            state = executor.submit(disabled(first_state), agent, env, run, warm, saver, make_key(run.seed))
            program = loop.compile(shapes)
        return loop.train(state.result(), program)


class Checked(NamedTuple):
    """Agent and settings of a run that have passed the checks before training, with objects that the checks have made.

    The training uses these objects, such as the run's evaluations and the learner of a warm start.
    """

    agent: Agent  # with its precision decided
    run_config: Config
    loggers: Sequence[Logger]  # among the callbacks
    monitor: RunMonitor
    shapes: TrainState
    memory: Footprint  # lower bound
    warm: WarmStart | None
    evaluations: Evaluations


@contextmanager
def checking(
    agent: Agent,
    env: Env,
    run: Run,
    run_dir: object,
    callbacks: Sequence[Callback | Logger | StopCondition] = (),
    given: TrainedRun | TrainState | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[Checked]:
    """Context with the checked settings of a run; nothing is compiled or written, and its end closes the evaluations.

    Raises what `fit` raises for settings that cannot work. `given` (a run in memory to start from) and `say` (gets
    lines for the user) are those of `fit_run`.
    """
    require_valid(agent, env)
    agent = decide_dtype(agent, "" if backend_of(env).repeatable else "float32")  # host programs round no products
    run_config = config.describe_run(agent, env, run)
    loggers, conditions = sort_callbacks(callbacks)
    monitor = RunMonitor(run, conditions)
    check_plan(agent, env, run, run_dir)
    shapes = state_shapes(agent, env, run)
    needed = require_memory(agent, env, shapes)
    say(f"memory, at least: {needed}")
    warm = prepare(agent, shapes, run.init_from, given, say)
    with Evaluations(agent, env, run, shapes) as evaluations:
        monitor.check(agent, env, shapes, evaluations.blank)
        yield Checked(agent, run_config, loggers, monitor, shapes, needed, warm, evaluations)


@refusing_unknown
def resume(
    run_dir: str | Path,
    agent: Agent | None = None,
    env: Env | None = None,
    callbacks: Sequence[Callback | Logger | StopCondition] = (),
    console: bool | None = None,
    *,
    total_steps: int | None = None,
) -> TrainedRun:
    """Continue the run in `run_dir` from its newest intact checkpoint, and return the trained run.

    On a CPU, with a compiled environment and unchanged devices and versions, the resumed run's weights equal those of
    an uninterrupted run bit for bit. A run made from user-defined parts needs them again: pass the same `agent` and
    `env`. If they differ from those recorded, they are used, with a warning that names the differences. `callbacks` are
    those of `fit`. `console` overrides `log.console` of the run. `total_steps` is a new length of the run, recorded in
    its run file; a finished run goes on. Schedules then take their progress from the new length, with a warning where
    that changes a number. Raises ConfigError where there is no run, another process uses it, or it has done more than
    `total_steps` steps already; CheckpointError where no checkpoint can be loaded.
    """
    return resume_run(run_dir, agent, env, callbacks, console, total_steps)


def resume_run(
    run_dir: str | Path,
    agent: Agent | None = None,
    env: Env | None = None,
    callbacks: Sequence[Callback | Logger | StopCondition] = (),
    console: bool | None = None,
    total_steps: int | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> TrainedRun:
    """Continue a run as `resume` does, and return it; `say` gets lines for the user, before anything compiles."""
    with ExitStack() as stack:
        path = absolute(to_path(run_dir, "run_dir"))
        directory = stack.enter_context(RunDirectory.open(path)) if processes.leads() else None
        stop_requested = stack.enter_context(stop_on_signals(ON_DISK))
        stack.enter_context(kept_programs())
        saved = saved_origin(path)
        sharding.use_cpu_devices(saved.devices)
        given = agent is not None or env is not None
        agent, env, run = load_run(path, agent, env, training=True)
        agent = in_saved_precision(path, agent)
        passed = config.Built(agent, env, run) if given else None
        agent = with_saved_devices(saved.devices, agent, env, run)
        if console is not None:
            run = dataclasses.replace(run, log=dataclasses.replace(run.log, console=console))
        run, _, callbacks = _own_share(run, path, callbacks)
        loggers, conditions = sort_callbacks(callbacks)
        monitor, shapes = RunMonitor(run, conditions), state_shapes(agent, env, run)
        stack.enter_context(explaining_memory(require_memory(agent, env, shapes)))
        state, before = load_state(path, agent, env, run), run.total_steps
        run = with_total_steps(agent, env, run, state, total_steps, saved.total_steps)
        evaluations = stack.enter_context(Evaluations(agent, env, run, shapes))
        monitor.check(agent, env, shapes, evaluations.blank)
        monitor.restore(path, int(state.iteration), shapes)
        evaluations.learn(rows_until(path / ROWS, int(state.iteration)))
        check_recording(agent, env, run, path)
        lengthened = directory.lengthen(before, run.total_steps) if directory else {}
        origin = record_start(directory, "resume", agent, env, run, lengthened)
        warn_of_changes(path, saved, origin, passed)
        saver = Saver(directory, monitor, run.log, origin)
        loop = stack.enter_context(
            closing(RunLoop(agent, env, run, saver, loggers, monitor, evaluations, stop_requested))
        )
        done, total, steps = int(state.iteration), loop.total_iterations, run.num_steps * env.num_streams
        if done < total:
            begun = f"{done * steps:,} of {total * steps:,} steps are done"
            say(f"continues with iteration {done + 1:,} of {total:,}: {begun}")
        return loop.train(state)


def _signals(directory: RunDirectory | None) -> Sequence[signal.Signals]:
    """Return the signals that stop a run: all that end processes, or Ctrl-C alone for a run without a directory.

    Where several processes train one run, those other than the leader have no directory either, but get all signals.
    """
    return ON_DISK if directory or not processes.leads() else IN_MEMORY


def _own_share(run: Run, run_dir: Any, callbacks: Sequence[Any]) -> tuple[Run, Any, Sequence[Any]]:
    """Return the settings, directory and callbacks with which this process takes part in the run.

    Of several processes that train one run, only the leader has a directory and callbacks; the others have None and ().
    """
    return (run, run_dir, callbacks) if processes.leads() else (run.following(), None, ())


def require_valid(agent: Agent, env: Env) -> None:
    """Raise ConfigError if `agent` is no agent, or `env` no environment that follows the protocol."""
    require_env(env)
    for group, _ in env.sizes:  # the environment may have named its groups
        require_group_name(group)
    processes.require_compiled(env.name, backend_of(env).repeatable)
    require_sound(env)  # first: an environment that no network can read fits no network
    require_arguments(agent, env)


def warn_of_settings(agent: Agent, env: Env, run: Run) -> None:
    """Warn of settings that have no effect or rarely do what is meant."""
    if env.num_agents == 1 and agent.sharing == group_tables.INDEPENDENT:
        warnings.warn(f'agents = "independent" changes nothing: {env.name} has one agent; leave it out', stacklevel=4)
    warn_of_single_rows(agent, env, run.num_steps)
    warn_of_units(agent, env)


def check_plan(agent: Agent, env: Env, run: Run, run_dir: object) -> None:
    """Raise ConfigError or ImportError for settings of a run that cannot work together.

    Checked are the agent's numbers, the run's length, overlap and schedules, and its loggers and films.
    """
    agent.check()
    check_numbers(agent)
    config.require_within(run, planned_iterations(env, run))
    require_overlap(agent, env, run.overlap, run.iterations_per_env_reset)
    check_schedule(env)
    jax.eval_shape(agent.annealed, jnp.float32(0.0), jnp.float32(0.0))
    check_recording(agent, env, run, run_dir)


def check_recording(agent: Agent, env: Env, run: Run, run_dir: object) -> None:
    """Raise ImportError or ConfigError for loggers and films of a run that cannot be made.

    `run_dir` is None where the run has no directory.
    """
    for logger in run.log.parts:
        logger.require(run_dir)
    FilmRecorder(agent, env, run).check(run_dir)


def _new_directory(
    run_dir: str | Path | Iterable[Path],
    run_config: Config,
    objects: list[str],
    policy: dict[str, Any],
    overwrite: bool,
) -> RunDirectory:
    """Return the run directory, created with the configuration and the names of the `objects` that no file can hold.

    Of several paths `run_dir`, the first that does not exist yet is used. `policy` is the specification of the run's
    policy, as plain data, and `overwrite` moves an earlier run aside.
    """
    run_config |= {config.OBJECTS: objects} if objects else {}
    config.to_toml(run_config)  # raises ConfigError before there is a directory
    if isinstance(run_dir, str) or not isinstance(run_dir, Iterable):
        run_dir = to_directory(run_dir, "run_dir")
    return RunDirectory.create(run_dir, run_config, policy, overwrite)
