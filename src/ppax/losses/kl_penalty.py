"""Surrogate objective with a KL penalty instead of the clip. Schulman et al. 2017, eq. 8,
https://arxiv.org/abs/1707.06347

The divergence is estimated from the stored log-probabilities (k3), which works for every distribution. `PPO.kl` may
adapt the coefficient.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.losses import base
from ppax.types import Batch, LossOutput, Scalar, number, part


@part
class KLPenalty:
    """Surrogate loss with a KL penalty. Schulman et al. 2017, eq. 8, https://arxiv.org/abs/1707.06347

    -mean w A + kl_coef * KL(old || new) + vf_coef * mean value_error - ent_coef * mean entropy.
    """

    kl_coef: Scalar = number("KL penalty coefficient: weight of KL(old || new)", default=1.0, low=0.0)
    vf_coef: Scalar = number("value coefficient: weight of the value loss", default=0.5, low=0.0)
    ent_coef: Scalar = number("entropy coefficient: weight of the entropy bonus", default=0.0, low=0.0)

    def __call__(self, distribution: Any, value_error: Array, batch: Batch) -> LossOutput:
        """Loss of rows [N]; the metric `policy_loss` includes the penalty."""
        steps = batch.steps
        log_ratio = base.bounded_log_ratio(distribution.log_prob(steps.action), steps)
        rows = base.Rows(
            policy=self.kl_coef * base.k3(log_ratio) - jnp.exp(log_ratio) * batch.targets.advantage,  # eq. 8, negated
            value=value_error,
            entropy=distribution.entropy(),
            log_ratio=log_ratio,
        )
        return base.objective(rows, batch, self.vf_coef, self.ent_coef)
