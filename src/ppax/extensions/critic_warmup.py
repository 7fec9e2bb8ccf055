"""Critic warm-up: an extension with which, during the first steps, the critic learns while the actor does not change.

It is for an actor that comes from elsewhere, such as the student of a teacher or a warm start, with a critic that does
not know the values V of this actor's policy yet: the first policy gradients would be of wrong advantages.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.core.types import ConfigError, ExtensionState, Key, PyTree, Rollout, Scalar, number, part
from ppax.devices import sharding
from ppax.extensions.kl_control import Stopped
from ppax.extensions.ppg import PPG
from ppax.ppo.extension import Before, Extension
from ppax.ppo.optimizers import ActorCritic

ENOUGH = 2**30  # steps from which on they are not counted any more


@part
class CriticWarmup(Extension):
    """Critic warm-up: in the first `steps` environment steps only the critic learns; the actor's weights do not change.

    It needs the optimiser `actor_critic`, which has separate steps for actor and critic. During the warm-up the actor's
    optimiser takes no step, and its state (moments, step count) does not change. Schedules of the agent's numbers, such
    as the learning rate, run on during the warm-up.
    """

    steps: Scalar = number(
        "environment steps of this agent in which the critic alone learns, with the optimizer actor_critic",
        default=0.0,
        low=0.0,
    )

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return the state before the first step, (number of steps so far, whether the actor is frozen): 0 and False.

        Raises ConfigError where one optimiser takes the steps of actor and critic together, and for the extension PPG,
        whose phases train the actor, too.
        """
        if any(isinstance(one, PPG) for one in agent.extensions):
            raise ConfigError(
                "critic_warmup: a phase of the extension ppg would change the actor during the warm-up; leave one of "
                "the two out"
            )
        if not isinstance(agent.optimizer, ActorCritic):
            raise ConfigError(
                f"critic_warmup: {type(agent.optimizer).__name__} takes the steps of actor and critic together; give "
                'each its own, [agent.optimizer] part = "actor_critic" (ppax.optimizers.ActorCritic)'
            )
        return ExtensionState((jnp.int32(0), jnp.bool_(False)))

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return the new state: the number of steps with this rollout's, and whether this update freezes the actor.

        The actor is frozen if the steps before this rollout are fewer than `steps`. Rewards are returned as they are.
        """
        counted, _ = state
        frozen = counted < self.steps
        valid = sharding.gather(rollout.steps.valid, axis=1)
        after = jnp.where(counted < ENOUGH, counted + valid.sum(dtype=jnp.int32), counted)
        return Before((after, frozen), reward, metrics={"actor_frozen": frozen.astype(jnp.float32)})

    def begin(self, state: PyTree) -> Array:
        """Return whether the actor is frozen in this update, []."""
        frozen: Array = state[1]
        return frozen

    def adapt(self, agent: Any, inner: Array) -> Any:
        """Return the agent with an optimiser of the actor that changes nothing while the actor is frozen."""
        optimizer = dataclasses.replace(agent.optimizer, actor=Stopped(agent.optimizer.actor, inner))
        return dataclasses.replace(agent, optimizer=optimizer)
