"""V-trace as in PufferLib and JaxDEM: GAE with steps and trace weighted by clipped probability ratios.

https://github.com/PufferAI/PufferLib, https://github.com/cdelv/JaxDEM; the clipped ratios are those of Espeholt et al.
2018, https://arxiv.org/abs/1802.01561. If all ratios are 1 and the clips at least 1, it equals GAE bit for bit.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.core.types import Scalar, Targets, Transition, number, part


@part
class VTrace:
    """V-trace as in PufferLib and JaxDEM: off-policy corrected GAE. Ratios: https://arxiv.org/abs/1802.01561

    delta_t = rho_t (r_t + gamma V'_t - V_t);  A_t = delta_t + gamma lambda c_t (1 - ended_t) A_{t+1}.
    """

    gae_lambda: Scalar = number(
        "GAE lambda: 0: one-step advantage, least variance; 1: full return, least bias", default=0.95, low=0.0, high=1.0
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
        bootstrap = jnp.where(steps.terminated, 0.0, next_value)
        delta = jnp.minimum(w, self.rho_clip) * (steps.reward + gamma * bootstrap - steps.value)
        advantage = discounted_sum(delta, gamma * self.gae_lambda * jnp.minimum(w, self.c_clip), steps.ended)
        return Targets(advantage, advantage + steps.value)
