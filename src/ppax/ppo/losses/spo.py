"""Simple policy optimisation (SPO): a quadratic penalty on the probability ratio replaces the clip. Xie et al. 2025
(ICML), https://arxiv.org/abs/2401.16025

The paper's objective; `w` is its r_t(theta).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ppax.core.protocols import PolicyTerms
from ppax.core.types import Batch, Scalar, number, part
from ppax.ppo.losses import base


@part
class SPO:
    """Simple policy optimisation (SPO). Xie et al. 2025, https://arxiv.org/abs/2401.16025

    |A| (w - 1)^2 / (2 eps) - w A of each row: the optimum is at w = 1 + eps for A > 0 and 1 - eps for A < 0, and beyond
    it the gradient leads back.
    """

    clip_eps: Scalar = number("distance of the probability ratio from 1 at the optimum", default=0.2, above=0.0)

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return loss and log-ratio of each row, [N]; metric `clip_fraction`: share of ratios beyond the optima."""
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = base.bounded_log_ratio(distribution.log_prob(steps.action), steps)
        ratio = jnp.exp(log_ratio)
        penalty = jnp.abs(advantage) * (ratio - 1.0) ** 2 / (2.0 * self.clip_eps)
        return PolicyTerms(
            penalty - ratio * advantage, log_ratio, {"clip_fraction": jnp.abs(ratio - 1.0) > self.clip_eps}
        )
