"""Entropy target: an extension that learns the entropy coefficient, so that the policy's entropy stays near a target.

Haarnoja et al. 2018, section 5, https://arxiv.org/abs/1812.05905: gradient descent of log alpha on alpha (H - target).
As in implementations, the gradient with respect to log alpha is taken as H - target, without its factor alpha. Here
alpha is the weight of PPO's entropy bonus. One step of this descent is taken per update, on the mean entropy of the
update's gradient steps.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays.metrics import reduced
from ppax.core.types import ConfigError, ExtensionState, Key, LearnerState, Scalar, number, part
from ppax.ppo.extension import After, Extension, Learned

LARGEST = 14.0  # bound on the change of log ent_coef since the start: a factor of a million


@part
class EntropyTarget(Extension):
    """Entropy target: the agent's ent_coef rises while the policy's entropy is below the target, and falls while above.

    Haarnoja et al. 2018, https://arxiv.org/abs/1812.05905
    """

    target: Scalar = number("entropy in nats that ent_coef is adapted to", default=0.5)
    rate: Scalar = number(
        "change of log ent_coef in one update, for each nat between entropy and target", default=0.1, above=0.0
    )

    def check(self, agent: Any) -> None:
        """Raise ConfigError if the agent's ent_coef is 0: the extension multiplies ent_coef, which would stay 0."""
        if isinstance(agent.ent_coef, int | float) and agent.ent_coef == 0.0:
            raise ConfigError(
                "ent_coef = 0: entropy_target multiplies it; give the value to begin with, such as ent_coef = 0.01"
            )

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return the first state of the entropy target: the change of log ent_coef so far, which is 0."""
        return ExtensionState(jnp.float32(0.0))

    def begin(self, state: Array) -> Array:
        """Return the state inside an update, the change of log ent_coef, which stays the same until the update ends."""
        return state

    def adapt(self, agent: Any, inner: Array) -> Any:
        """Return the agent with its learned entropy coefficient; `inner` [] is the change of log ent_coef."""
        return dataclasses.replace(agent, ent_coef=agent.ent_coef * jnp.exp(inner))

    def after(self, agent: Any, learner: LearnerState, state: Array, inner: Array, learned: Learned) -> After:
        """Return the new change of log ent_coef, from the mean entropy of the update's gradient steps.

        PPO calls it once an update, after the gradient steps. The learner is returned as it is.
        """
        moved = jnp.clip(state + self.rate * (self.target - learned.metrics["entropy"]), -LARGEST, LARGEST)
        frozen = learned.metrics["actor_frozen"] > 0.0 if "actor_frozen" in learned.metrics else False  # CriticWarmup
        state = jnp.where(learned.history.acts.any() & ~jnp.asarray(frozen), moved, state)
        return After(learner, state, reduced("last", {"ent_coef": jnp.asarray(self.adapt(agent, state).ent_coef)}))
