"""Clipped surrogate objective. Schulman et al. 2017, https://arxiv.org/abs/1707.06347

Eq. 7 there; `w` is the paper's probability ratio r_t(theta). Dual clip: Ye et al. 2020, eq. 6,
https://arxiv.org/abs/1912.09729
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ppax.core.protocols import PolicyTerms
from ppax.core.types import Batch, Scalar, number, part
from ppax.ppo.losses import base


@part
class ClippedSurrogate:
    """PPO's clipped surrogate loss. Schulman et al. 2017, https://arxiv.org/abs/1707.06347

    -min(w A, clip(w, 1 - eps, 1 + eps) A) of each row.
    """

    clip_eps: Scalar = number("clip range of the probability ratio: [1 - this, 1 + this]", default=0.2, above=0.0)
    dual_clip: Scalar | None = number(
        "dual clip: upper bound of the probability ratio where A < 0; none: off", default=None, above=1.0
    )

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return loss and log-ratio of each row, [N]; metric `clip_fraction`: share of ratios out of clip range."""
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = base.bounded_log_ratio(distribution.log_prob(steps.action), steps)
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1.0 - self.clip_eps, 1.0 + self.clip_eps)
        surrogate = jnp.minimum(ratio * advantage, clipped * advantage)  # eq. 7
        if self.dual_clip is not None:
            surrogate = jnp.where(advantage < 0.0, jnp.maximum(surrogate, self.dual_clip * advantage), surrogate)
        outside = jnp.abs(ratio - 1.0) > self.clip_eps
        return PolicyTerms(-surrogate, log_ratio, {"clip_fraction": outside})
