"""A surrogate with a penalty on the KL divergence instead of a clip. Schulman et al. 2017, eq. 8,
https://arxiv.org/abs/1707.06347

The divergence is estimated from the stored log-probabilities (k3), which suits every distribution. `PPO.kl` may adapt
the coefficient.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax import terms
from ppax.types import Batch, LossOutput, Scalar, number, part


@part
class KLPenalty:
    """-mean w A + kl_coef * KL(old || new) + vf_coef * 0.5 mean (V - R)^2 - ent_coef * mean entropy."""

    kl_coef: Scalar = number("weight of the divergence from the policy that acted", default=1.0, low=0.0)
    vf_coef: Scalar = number("weight of the value loss", default=0.5, low=0.0)
    ent_coef: Scalar = number("weight of the entropy bonus", default=0.0, low=0.0)
    value_clip: Scalar | None = number(
        "how far V may move from the old V, in units of V, before its gradient stops", default=None, above=0.0
    )
    huber_delta: Scalar | None = number("V's error beyond which its loss is linear", default=None, above=0.0)

    def __call__(self, distribution: Any, value: Array, batch: Batch) -> LossOutput:
        """Loss of rows [N]; the metric `policy_loss` includes the penalty."""
        steps = batch.steps
        log_ratio = terms.bounded_log_ratio(distribution.log_prob(steps.action), steps)
        rows = terms.Rows(
            policy=self.kl_coef * terms.k3(log_ratio) - jnp.exp(log_ratio) * batch.targets.advantage,  # eq. 8, negated
            value=terms.value_error(value, batch, self.value_clip, self.huber_delta),
            entropy=distribution.entropy(),
            log_ratio=log_ratio,
        )
        return terms.objective(rows, steps.valid, self.vf_coef, self.ent_coef)
