"""Discovered policy optimisation (DPO): a meta-learned drift function replaces the clip. Lu et al. 2022,
https://arxiv.org/abs/2210.05639

Drift function of section 5; `w` is the paper's r.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ppax.losses import base
from ppax.types import Batch, LossOutput, Scalar, number, part


@part
class DPO:
    """Discovered policy optimisation (DPO). Lu et al. 2022, https://arxiv.org/abs/2210.05639

    -mean (w A - drift) + vf_coef * mean value_error - ent_coef * mean entropy, where
    drift = relu(x - scale tanh(x / scale)), with x = (w - 1) A, scale = alpha for A >= 0,
    and x = log(w) A, scale = beta for A < 0.
    """

    alpha: Scalar = number("drift scale for A >= 0: soft upper bound of (w - 1) A", default=2.0, above=0.0)
    beta: Scalar = number("drift scale for A < 0: soft upper bound of log(w) A", default=0.6, above=0.0)
    vf_coef: Scalar = number("value coefficient: weight of the value loss", default=0.5, low=0.0)
    ent_coef: Scalar = number("entropy coefficient: weight of the entropy bonus", default=0.0, low=0.0)

    def __call__(self, distribution: Any, value_error: Array, batch: Batch) -> LossOutput:
        """Loss of rows [N]; the metric `policy_loss` includes the drift."""
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = base.bounded_log_ratio(distribution.log_prob(steps.action), steps)
        good, ratio = advantage >= 0.0, jnp.exp(log_ratio)
        scale = jnp.where(good, self.alpha, self.beta)
        x = jnp.where(good, jnp.expm1(log_ratio), log_ratio) * advantage
        drift = jax.nn.relu(x - scale * jnp.tanh(x / scale))
        rows = base.Rows(
            policy=drift - ratio * advantage,
            value=value_error,
            entropy=distribution.entropy(),
            log_ratio=log_ratio,
        )
        return base.objective(rows, batch, self.vf_coef, self.ent_coef)
