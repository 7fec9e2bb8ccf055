"""Generalised advantage estimation. Schulman et al. 2016, https://arxiv.org/abs/1506.02438

Eq. 11 and 12, with termination and truncation. The paper's `V(s_{t+1})` is `next_value` here: V of the true next
observation, at the end of an episode that of its final observation.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.core.types import Scalar, Targets, Transition, number, part


@part
class GAE:
    """Generalised advantage estimation (GAE). Schulman et al. 2016, https://arxiv.org/abs/1506.02438

    delta_t = r_t + gamma (1 - terminated_t) V'_t - V_t,
    A_t = delta_t + gamma lambda (1 - ended_t) A_{t+1}.
    """

    gae_lambda: Scalar = number(
        "GAE lambda: 0: one-step advantage, least variance; 1: full return, least bias", default=0.95, low=0.0, high=1.0
    )

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] of one stream from steps [T] and V of each next observation [T]; `ratio` is unused."""
        bootstrap = jnp.where(steps.terminated, 0.0, next_value)
        delta = steps.reward + gamma * bootstrap - steps.value  # eq. 11
        advantage = discounted_sum(delta, gamma * self.gae_lambda, steps.ended)  # eq. 12
        return Targets(advantage, advantage + steps.value)
