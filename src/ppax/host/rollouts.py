"""Rollouts of host environments: conversion to those of `ppax.collect`, and a collector of single ones for checks."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.collection import Row, no_episodes, update_episode_stats, with_last_value
from ppax.envs import HostEnv
from ppax.host.collection import HostRollout
from ppax.host.policy import PolicyInputs
from ppax.host.resets import reset_if_needed
from ppax.host.tensors import collector_of
from ppax.protocols import Agent
from ppax.types import ActorState, Collected, Gathered, Key, LearnerState, TrainState, Transition


def value_of(agent: Agent, learner: LearnerState, inputs: PolicyInputs) -> Array:
    """Return V [e] of the observations of a batch."""
    return agent.policy(learner, *inputs).value


def collected_from(agent: Agent, learner: LearnerState, actor: ActorState, rollout: HostRollout) -> Collected:
    """Convert a rollout of the host, from `actor` on, to the result of `ppax.collect` with the `learner` that acted.

    These are values, log-probabilities and episode statistics.
    """
    before, after = (jax.tree.map(lambda x, cut=cut: x[cut], rollout[:3]) for cut in (slice(-1), -1))
    unknown = jnp.zeros(rollout.valid.shape, jnp.float32)
    stored: dict[str, Any] = {name: getattr(rollout, name) for name in ("action", "terminated", "valid", "final_value")}
    steps = Transition(
        obs=before[0],
        log_prob=unknown,
        value=unknown,
        reward=jnp.where(rollout.valid, rollout.reward, 0.0),  # rewards of invalid steps are undefined
        truncated=rollout.truncated & ~rollout.terminated,
        first=before[1],
        action_mask=before[2],
        carry=rollout.carry,
        **stored,
    )
    value, log_prob = agent.evaluate_rollout(learner, steps)
    steps = dataclasses.replace(steps, value=value, log_prob=log_prob)

    discount = agent.discount(actor.first.shape[0])

    def count(running: Any, step: Any) -> Any:
        return update_episode_stats(discount, running, *step)

    initial = actor, no_episodes(actor.first.shape[0])
    inputs = steps.reward, steps.ended, steps.valid, rollout.episode_stats
    (actor, episodes), traces = jax.lax.scan(count, initial, inputs)
    obs, first, mask = after
    ended_with: dict[str, Any] = {"env_state": rollout.env_state, "carry": rollout.last_carry}
    actor = actor._replace(obs=obs, first=first, action_mask=mask, **ended_with)
    over = steps.ended if rollout.episode_stats is None else rollout.episode_stats.over
    metrics = {name: jnp.where(over, x, 0.0) for name, x in rollout.metrics.items()}
    return with_last_value(agent, learner, (actor, episodes), Row(steps, traces, metrics))


class Rollouts:
    """Collector of rollouts: `state.num_steps` steps of all streams with the agent's policy."""

    def __init__(self, agent: Agent, env: HostEnv, state: TrainState):
        self._agent, self._env, self._state = agent, env, state
        self._policy, self._collect = collector_of(agent, env, state.learner)
        self._value, self._collected = jax.jit(value_of), jax.jit(collected_from)

    def __call__(self, learner: LearnerState, actor: ActorState, key: Key) -> Gathered:
        """Collect one rollout from `actor` on. Raises EnvError, after which the environments are closed."""
        agent, num_steps = self._agent, self._state.num_steps
        reset_key, act_key = jax.random.split(key)
        actor = reset_if_needed(agent, self._env, actor, reset_key)
        self._policy.begin(agent, learner, num_steps, act_key)
        length = agent.sequence_length(num_steps)
        rollout = self._collect(self._policy, self._value, self._env, actor, num_steps, length, (agent, learner))
        return Gathered(actor, self._collected(agent, learner, actor, rollout))
