"""V-trace. Espeholt et al. 2018, https://arxiv.org/abs/1802.01561

Eq. 1 and section 4.2 there, with lambda as in its remark 2. Two kinds of end, as in GAE: our `next_value` is V of the
true next observation, which is what is used where no later step of the same episode was seen.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.types import Scalar, Targets, Transition, number, part


@part
class CanonicalVTrace:
    """v_t = V_t + sum of gamma^k (prod c) delta_{t+k};  advantage rho_t (r_t + gamma v_{t+1} - V_t)."""

    trace_lambda: Scalar = number("scales c: 0: one-step targets; 1: as in the paper", default=1.0, low=0.0, high=1.0)
    rho_clip: Scalar = number("largest ratio that weighs a step: rho = min(w, this)", default=1.0, above=0.0)
    c_clip: Scalar = number("largest ratio that weighs the trace: c = min(w, this)", default=1.0, above=0.0)

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] of one stream; `ratio` [T] is w, the action's probability now over that when it was taken."""
        w = jnp.ones_like(steps.reward) if ratio is None else ratio
        rho, c = jnp.minimum(w, self.rho_clip), self.trace_lambda * jnp.minimum(w, self.c_clip)
        beyond = jnp.where(steps.terminated, 0.0, next_value)
        delta = rho * (steps.reward + gamma * beyond - steps.value)
        value = steps.value + discounted_sum(delta, gamma * c, steps.ended)  # eq. 1, v
        # v of the next step where it is of the same episode and rollout, else V of the true next observation
        next_target = jnp.where(steps.ended, beyond, jnp.concatenate([value[1:], beyond[-1:]]))
        return Targets(rho * (steps.reward + gamma * next_target - steps.value), value)
