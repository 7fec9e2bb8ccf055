"""Collection of single rollouts from host environments, for checks; training fuses collection with the update."""

from __future__ import annotations

import dataclasses

import jax

from ppax.envs import HostEnv
from ppax.host.resets import reset_if_needed
from ppax.host.tensors import collector_of
from ppax.host.training import collected_from, value_of
from ppax.protocols import Agent
from ppax.types import ActorState, Gathered, Key, LearnerState, TrainState


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
        state = dataclasses.replace(self._state, learner=learner, actor=actor)
        return Gathered(actor, self._collected(agent, state, rollout))
