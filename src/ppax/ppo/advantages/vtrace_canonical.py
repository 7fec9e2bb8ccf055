"""V-trace. Espeholt et al. 2018, https://arxiv.org/abs/1802.01561

Eq. 1 and section 4.2, with lambda as in remark 2. Termination and truncation as in GAE: `next_value`, V of the true
next observation, is the bootstrap value after the last step of an episode or of the rollout.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.core.types import Scalar, Targets, Transition, number, part


@part
class CanonicalVTrace:
    """V-trace (IMPALA). Espeholt et al. 2018, https://arxiv.org/abs/1802.01561

    v_t = V_t + sum of gamma^k (prod c) delta_{t+k};  advantage rho_t (r_t + gamma v_{t+1} - V_t).
    """

    trace_lambda: Scalar = number(
        "V-trace lambda, a factor on c: 0: one-step targets; 1: as in the paper", default=1.0, low=0.0, high=1.0
    )
    rho_clip: Scalar = number(
        "rho clip: upper bound of the probability ratio that weights a step, rho = min(w, this)", default=1.0, above=0.0
    )
    c_clip: Scalar = number(
        "c clip: upper bound of the probability ratio that weights the trace, c = min(w, this)", default=1.0, above=0.0
    )

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] of one stream; `ratio` [T] is w: action probability, current policy over the one that acted."""
        w = jnp.ones_like(steps.reward) if ratio is None else ratio
        rho, c = jnp.minimum(w, self.rho_clip), self.trace_lambda * jnp.minimum(w, self.c_clip)
        bootstrap = jnp.where(steps.terminated, 0.0, next_value)
        delta = rho * (steps.reward + gamma * bootstrap - steps.value)
        value = steps.value + discounted_sum(delta, gamma * c, steps.ended)  # eq. 1, v
        # v of the next step within the same episode and rollout, else the bootstrap value
        next_target = jnp.where(steps.ended, bootstrap, jnp.concatenate([value[1:], bootstrap[-1:]]))
        return Targets(rho * (steps.reward + gamma * next_target - steps.value), value)
