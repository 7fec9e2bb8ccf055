"""Clipped surrogate with rollback (PPO-RB): beyond the clip range its slope is reversed instead of 0.

Wang, He and Tan 2019, "Truly Proximal Policy Optimization", https://arxiv.org/abs/1903.07940: the function
F^RB; `w` is the paper's r_t. Its offsets, which make the function continuous, are (1 + alpha)(1 -+ eps).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ppax.core.protocols import PolicyTerms
from ppax.core.types import Batch, Scalar, number, part
from ppax.ppo.losses import base


@part
class Rollback:
    """Clipped surrogate with rollback. Wang et al. 2019, https://arxiv.org/abs/1903.07940

    -min(w A, F(w) A) of each row, where F(w) = w within [1 - eps, 1 + eps], and beyond an end e of it
    (1 + alpha) e - alpha w.
    """

    clip_eps: Scalar = number("clip range of the probability ratio: [1 - this, 1 + this]", default=0.2, above=0.0)
    slope: Scalar = number("alpha: slope back to the clip range; 0: the clipped surrogate", default=0.3, low=0.0)

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return loss and log-ratio of each row, [N]; metric `clip_fraction`: share of ratios out of clip range."""
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = base.bounded_log_ratio(distribution.log_prob(steps.action), steps)
        ratio = jnp.exp(log_ratio)
        end = jnp.clip(ratio, 1.0 - self.clip_eps, 1.0 + self.clip_eps)  # the ratio itself within the range
        back = end + self.slope * (end - ratio)
        surrogate = jnp.minimum(ratio * advantage, back * advantage)
        return PolicyTerms(-surrogate, log_ratio, {"clip_fraction": jnp.abs(ratio - 1.0) > self.clip_eps})
