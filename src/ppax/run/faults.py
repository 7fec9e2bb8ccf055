"""Faults that end a run: where its first number that is not finite appeared, and the loss of another process."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.agents.precision import in_training
from ppax.core.options import flatten
from ppax.core.protocols import Agent
from ppax.core.types import TrainState
from ppax.devices import processes
from ppax.envs import Env, require_native
from ppax.run import python_objects
from ppax.run.result import ProcessLost
from ppax.storage.paths import command_line
from ppax.training.collection import collect
from ppax.training.finiteness import not_finite
from ppax.training.loop import LOOPS, annealed_env, iteration, iteration_inputs

NETWORK = (
    "its observations and rewards are finite, so it comes from the network: a value, a gradient or a weight; try a "
    "lower learning_rate, normalize_obs or normalize_reward"
)


LOST = (
    "another process of this run has ended or cannot be reached, and none can go on alone; the newest checkpoint can "
    "be resumed, on any number of processes"
)


@contextlib.contextmanager
def lost_processes() -> Iterator[None]:
    """Context that raises ProcessLost in place of JAX's error if another process of the program is gone.

    In a run of one process, JAX's errors pass unchanged.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if processes.count() == 1:
            raise
        raise ProcessLost(f"{LOST} ({str(error).splitlines()[0][:200]})") from error


def locate(agent: Agent, env: Env, state: TrainState, total_iterations: int) -> str:
    """Return a text on where the rollout collected from `state` has its first non-finite number.

    The text names field, environment and step. If the rollout is finite, the text says that the number comes from the
    network. The rollout is collected again, which compiles. With `jax_debug_nans` the iteration is repeated operation
    by operation, and JAX raises FloatingPointError at the first one whose result is NaN.
    """
    if jax.config.jax_debug_nans or jax.config.jax_debug_infs:  # type: ignore[attr-defined]
        with jax.disable_jit():
            iteration(agent, require_native(env, "locate", LOOPS), state, total_iterations)

    def collect_again(agent: Agent, state: TrainState, total: Array) -> Any:
        inputs = iteration_inputs(in_training(agent), state, total)  # with the products that training has
        now = annealed_env(env, state, total).env
        rollout = collect(inputs.agent, now, state.learner, state.actor, state.num_steps, inputs.collect_key).rollout
        return rollout.steps.obs, rollout.steps.reward, not_finite(env, rollout)

    obs, reward, wrong = jax.device_get(jax.jit(collect_again)(agent, state, jnp.int32(total_iterations)))
    bad = [(*np.argwhere(places)[0], field) for field, places in wrong.items() if places.any() and field != "value"]
    if not bad:
        return NETWORK
    t, column, field = min(bad, key=lambda one: one[0])
    each = wrong[field].shape[1] // env.num_envs
    fields = {f"observation{jax.tree_util.keystr(path)}": x for path, x in jax.tree_util.tree_leaves_with_path(obs)}
    x = (fields | {"reward": reward})[field][t, column]
    agent_of = f", agent {column % each}" if each > 1 else ""
    value = np.ravel(x)[np.argmax(~np.isfinite(np.ravel(x)))]
    return f"environment {column // each}{agent_of}, step {t}: its {field} is {value}; {check_line(env)}"


def check_line(env: Env) -> str:
    """Return a text with the command, or the call in Python, by which the user can check the environment of a run."""
    settings = env.settings
    if not settings.by_name:
        return "`ppax.check_env(env)` in Python checks the environment"
    params = flatten({"env_params": dict(settings.env_params)} if settings.env_params else {})
    given = [word for path, value in params for word in (f"--{path.replace('_', '-')}", _word(value))]
    trust = python_objects.trust_flags([{"env": settings.env, "env_params": dict(settings.env_params)}])
    return f"`{command_line(['ppax', 'check-env', settings.env, *given])}{trust}` checks the environment"


def _word(value: Any) -> str:
    """Return a value of an environment's parameter as one word of a command line: text as it is, others as JSON."""
    return value if isinstance(value, str) else json.dumps(value)
