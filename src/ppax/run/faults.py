"""Rollouts that are not finite: found before anything is learned from them, and located by a replay."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.agents.multi_agent import Agent
from ppax.collection import collect
from ppax.envs.vector import VectorEnv
from ppax.training import iteration_inputs, not_finite
from ppax.types import TrainState

NETWORK = (
    "its observations and rewards are finite, so the network made it: a value, a gradient or a weight is not; try a "
    "lower learning_rate, normalize_obs or normalize_reward"
)


def locate(agent: Agent, env: VectorEnv, state: TrainState, total_iterations: int) -> str:
    """Field, environment and step of the first number that is not finite in the rollout that `state` begins with.

    A sentence for a message; the rollout is collected again, which compiles.
    """

    def again(agent: Agent, state: TrainState, total: Array) -> Any:
        now = iteration_inputs(agent, state, total)
        rollout = collect(now.agent, env, state.learner, state.actor, state.num_steps, now.collect_key).rollout
        return rollout.steps.obs, rollout.steps.reward, not_finite(env, rollout)

    obs, reward, wrong = jax.device_get(jax.jit(again)(agent, state, jnp.int32(total_iterations)))
    found = [(*np.argwhere(places)[0], field) for field, places in wrong.items() if places.any() and field != "value"]
    if not found:
        return NETWORK
    t, column, field = min(found, key=lambda one: one[0])
    each = wrong[field].shape[1] // env.num_envs
    named = {f"observation{jax.tree_util.keystr(path)}": x for path, x in jax.tree_util.tree_leaves_with_path(obs)}
    x = (named | {"reward": reward})[field][t, column]
    agent_of = f", agent {column % each}" if each > 1 else ""
    value = np.ravel(x)[np.argmax(~np.isfinite(np.ravel(x)))]
    place = f"environment {column // each}{agent_of}, step {t}: its {field} is {value}"
    return f"{place}; `ppax check-env {env.name or 'NAME'}` looks for the cause"
