"""Surrogate objective with a KL penalty instead of the clip. Schulman et al. 2017, eq. 8,
https://arxiv.org/abs/1707.06347

The divergence is estimated from the stored log-probabilities (k3), which works for every distribution. The extension
KLControl may adapt the coefficient.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ppax.core.protocols import PolicyTerms
from ppax.core.types import Batch, Scalar, number, part
from ppax.ppo.losses import base


@part
class KLPenalty:
    """Surrogate loss with a KL penalty. Schulman et al. 2017, eq. 8, https://arxiv.org/abs/1707.06347

    kl_coef * KL(old || new) - w A of each row.
    """

    kl_coef: Scalar = number("KL penalty coefficient: weight of KL(old || new)", default=1.0, low=0.0)

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return loss and log-ratio of each row, [N]; the metric `policy_loss` includes the penalty."""
        log_ratio = base.bounded_log_ratio(distribution.log_prob(batch.steps.action), batch.steps)
        loss = self.kl_coef * base.k3(log_ratio) - jnp.exp(log_ratio) * batch.targets.advantage  # eq. 8, negated
        return PolicyTerms(loss, log_ratio)
