"""Buffers of the rollouts that auxiliary phases keep, allocated in the learner before the first iteration."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from ppax.learning.exploration import remembered
from ppax.protocols import Agent, KeepingPhase
from ppax.types import Key, PyTree, Rollout, TrainState, Transition


def with_buffers(agent: Agent, state: TrainState) -> TrainState:
    """Return `state` with zeros for what only an update adds to the learner; unchanged if no phase keeps rollouts."""
    phases = [learner.phase for learner, _ in agent.learners(state.actor.first.shape[0])]
    if not any(isinstance(phase, KeepingPhase) and phase.keeps for phase in phases):
        return state
    # shapes come from a whole update: how a rollout is split among learners is known to the agent alone
    after = jax.eval_shape(lambda key: agent.update(state.learner, _rollout(agent, state), key), jax.random.key(0))
    present = dict(jax.tree_util.tree_leaves_with_path(state.learner))

    def one(path: Any, shape: Any) -> Any:
        return present[path] if path in present else jnp.zeros(shape.shape, shape.dtype)

    return dataclasses.replace(state, learner=jax.tree_util.tree_map_with_path(one, after.learner))


def _rollout(agent: Agent, state: TrainState) -> Rollout:
    """Rollout of the right shapes, in which every step is the current one."""
    actor, length = state.actor, agent.sequence_length(state.num_steps)

    def stacked(tree: PyTree, count: int = state.num_steps) -> PyTree:
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), tree)

    def action(key: Key) -> PyTree:
        return agent.act(state.learner, actor.carry, actor.obs, actor.first, actor.action_mask, key).action

    number, flag = stacked(actor.reward_trace), stacked(actor.first)
    steps = Transition(
        obs=stacked(actor.obs),
        action=stacked(action(jax.random.key(0))),
        log_prob=number,
        value=number,
        reward=number,
        terminated=flag,
        truncated=flag,
        first=flag,
        valid=flag,
        carry=stacked(remembered(actor.carry), state.num_steps // length),
        action_mask=stacked(actor.action_mask),
    )
    return Rollout(steps, actor.reward_trace, number, actor.obs, actor.intrinsic, actor.auxiliary)
