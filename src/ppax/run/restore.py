"""State of a run: a new one, or that of its newest checkpoint, with agent and environment from its run file."""

from __future__ import annotations

import dataclasses
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ppax import config
from ppax.agents.metrics import annealed_numbers
from ppax.arrays import counter
from ppax.config import Run
from ppax.core import imports
from ppax.core.options import Option, check_value
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, Key, TrainState
from ppax.devices import processes
from ppax.devices.footprint import Footprint, footprint, require_room
from ppax.devices.platforms import rules
from ppax.devices.tracing import renewed
from ppax.envs import Env
from ppax.run import checkpoint, python_objects
from ppax.run import directory as run_dirs
from ppax.run.warm_start import WarmStart, prepare
from ppax.training.backends import backend_of
from ppax.training.loop import annealed_env, make_key, num_devices, place_state, start


def fresh_state(agent: Agent, env: Env, run: Run, key: Key | None = None) -> TrainState:
    """Return the training state of a new run before its first iteration; `key` None is that of the run's seed."""
    options = {"num_steps": run.num_steps, "iterations_per_env_reset": run.iterations_per_env_reset}
    key = make_key(run.seed) if key is None else key
    init = jax.jit(renewed(start), static_argnames=tuple(options), compiler_options=rules().run_once_options)
    state: TrainState = init(agent, env, key=key, **options)
    return state


def initial_state(agent: Agent, env: Env, run: Run, warm: WarmStart | None, key: Key | None = None) -> TrainState:
    """Return a run's state before its first iteration; `warm` (None: no warm start) gives weights of another run.

    `key` None is that of the run's seed.
    """
    state = fresh_state(agent, env, run, key)
    return state if warm is None else warm.apply(agent, env, state)


def state_shapes(agent: Agent, env: Env, run: Run) -> TrainState:
    """Return the shapes of a run's training state, without compilation; ConfigError for invalid sizes and numbers."""
    init = partial(start, agent, env, iterations_per_env_reset=run.iterations_per_env_reset)
    shapes: Any = jax.eval_shape(lambda key: init(num_steps=run.num_steps, key=key), jax.random.key(0))
    return shapes


def require_memory(agent: Agent, env: Env, shapes: TrainState) -> Footprint:
    """Return an estimate of the least memory that the run needs; `shapes` are those of its training state.

    Raises NotEnoughMemory if the machine or device has less, ConfigError for too many rows in a rollout: `num_steps`
    times streams, where a stream is one agent in one environment.
    """
    devices = num_devices(agent, env, shapes.num_steps)
    needed = footprint(shapes, devices, own_memory=jax.default_backend() != "cpu")
    require_room(needed, env.num_envs, shapes.num_steps * env.num_streams)
    return needed


def planned_iterations(env: Env, run: Run) -> int:
    """Return the number of iterations of a run: `total_steps` divided by the steps of a rollout, rounded up.

    Raises ConfigError if there are more than 2^31 - 1.
    """
    steps = run.num_steps * env.num_streams
    total = -(-run.total_steps // steps)
    if total >= 2**31:
        raise ConfigError(
            f"total_steps = {run.total_steps:,}: must be at most {steps * (2**31 - 1):,}, 2^31 - 1 rollouts"
        )
    return total


def load_run(run_dir: Path, agent: Agent | None = None, env: Env | None = None, training: bool = False) -> config.Built:
    """Return agent, environment and settings of the run in `run_dir`, built from its run file.

    `agent` and `env`, if not None, are taken in place of those of the run file. Raises Untrusted if the run needs code,
    or a path or address outside of the directory, that the user does not trust. Code of loggers is only needed with
    `training`.
    """
    checkpoint.require_format(run_dir)
    run_config = run_dirs.read_run_config(run_dir)
    call = python_objects.RESUME if training else python_objects.EVALUATE
    python_objects.require_passed(run_config, agent, env, str(run_dir), call)
    run_config = python_objects.recorded(run_config)
    passed = {"agent": agent is not None, "groups": agent is not None, "env": env is not None}
    passed["schedule"] = env is not None and env.settings.schedule is not None
    paths = config.import_paths(run_config)
    imports.require_trusted({place: paths[place] for place in paths if not passed.get(place.partition(".")[0], False)})
    settings = config.settings(run_config)
    with imports.trusting(within=[run_dir]):
        if training:
            config.require_asked_options(run_config, "log")
        env = config.build_env(run_config) if env is None else config.configured(env, run_config)
        processes.require_compiled(env.name, backend_of(env).repeatable)
        settings = config.in_iterations(settings, settings.num_steps * env.num_streams)
        if agent is None:
            agent = config.build_agent(run_config, env, settings.self_play)
    return config.Built(agent, env, settings)


def load_state(run_dir: Path, agent: Agent, env: Env, run: Run, fresh: bool = True) -> TrainState:
    """Return the newest intact training state of a run; if there is no checkpoint yet and `fresh`, the initial state.

    Raises CheckpointError where no checkpoint can be loaded.
    """
    shapes, run_id = state_shapes(agent, env, run), run_dirs.read_about(run_dir).get("id")

    def read(path: Path) -> TrainState:
        state = checkpoint.load(path, shapes, run_id)
        names = checkpoint.non_finite_leaves(state)
        if names:
            raise checkpoint.DamagedCheckpoint(f"{path} is not finite: {', '.join(names)}")
        return state

    state, skipped = checkpoint.newest(run_dir / run_dirs.CHECKPOINTS, read)
    for sentence in skipped:
        warnings.warn(f"skipped a damaged checkpoint: {sentence}", stacklevel=2)
    if state is None and (skipped or not fresh):
        raise checkpoint.CheckpointError(f"{run_dir} has no checkpoint that can be loaded")
    if state is None:
        run_config = run_dirs.read_run_config(run_dir)
        if any(place.startswith(python_objects.SOURCE) for place in config.objects_of(run_config)):
            raise checkpoint.CheckpointError(
                f"{run_dir} has no checkpoint, and it started from an object in memory (init_from): start it again in "
                "Python"
            )
        with imports.trusting(within=[run_dir]):
            config.require_asked_options(run_config, "init_from")
        return initial_state(agent, env, run, prepare(agent, shapes, run.init_from))
    return place_state(agent, env, state)


def with_total_steps(
    agent: Agent, env: Env, run: Run, state: TrainState, total_steps: int | None, saved: int | None = None
) -> Run:
    """Return the settings `run` with the length `total_steps` (None: unchanged, that of the run file).

    Warns if schedules of agent and environment then have other values than with the earlier length: `saved`, recorded
    with the checkpoint (None: that of the run file). Raises ConfigError for fewer steps than `state` has done.
    """
    first = run if saved is None else dataclasses.replace(run, total_steps=saved)
    if total_steps is None:
        longer = run
    else:
        check_value(Option("total_steps", int, limits={"low": 1}), total_steps)
        longer = dataclasses.replace(run, total_steps=total_steps)
    if longer.total_steps == first.total_steps:
        return longer
    done, before, after = int(state.iteration), planned_iterations(env, first), planned_iterations(env, longer)
    if after < done and total_steps is None:
        return longer  # all is done
    if after < done:
        steps = done * run.num_steps * env.num_streams
        raise ConfigError(f"total_steps = {total_steps:,}: {steps:,} are done already; nearest valid value: {steps}")
    was, now = (_scheduled_numbers(agent, env, state, total) for total in (before, after))
    changed = [f"{path} from {float(was[path]):g} to {float(now[path]):g}" for path in now if was[path] != now[path]]
    if changed:
        warnings.warn(
            f"total_steps was {first.total_steps:,} and is {longer.total_steps:,}: progress goes from "
            f"{done / before:.0%} to {done / after:.0%}, and with it the schedules: {', '.join(changed)}",
            stacklevel=3,
        )
    return longer


def _scheduled_numbers(agent: Agent, env: Env, state: TrainState, total: int) -> dict[str, jax.Array]:
    """Return, by path, the numbers [] that schedules set at the iteration of `state` in a run of `total` iterations."""
    progress = jnp.float32(int(state.iteration) / total)
    numbers = annealed_numbers(agent, progress, counter.to_float(state.env_steps))
    return numbers if env.settings.schedule is None else numbers | dict(annealed_env(env, state, total).numbers)
