"""Clipped surrogate objective. Schulman et al. 2017, https://arxiv.org/abs/1707.06347

Eq. 7 and 9 there; `w` is the paper's probability ratio r_t(theta). Dual clip: Ye et al. 2020, eq. 6,
https://arxiv.org/abs/1912.09729
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.losses import base
from ppax.types import Batch, LossOutput, Scalar, number, part


@part
class ClippedSurrogate:
    """PPO's clipped surrogate loss. Schulman et al. 2017, https://arxiv.org/abs/1707.06347

    -mean min(w A, clip(w, 1 - eps, 1 + eps) A) + vf_coef * mean value_error - ent_coef * mean entropy.
    """

    clip_eps: Scalar = number("clip range of the probability ratio: [1 - this, 1 + this]", default=0.2, above=0.0)
    vf_coef: Scalar = number("value coefficient: weight of the value loss", default=0.5, low=0.0)
    ent_coef: Scalar = number("entropy coefficient: weight of the entropy bonus", default=0.0, low=0.0)
    dual_clip: Scalar | None = number(
        "dual clip: upper bound of the probability ratio where A < 0; none: off", default=None, above=1.0
    )

    def __call__(self, distribution: Any, value_error: Array, batch: Batch) -> LossOutput:
        """Loss of rows [N]; `batch.targets.advantage` is already standardised."""
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = base.bounded_log_ratio(distribution.log_prob(steps.action), steps)
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1.0 - self.clip_eps, 1.0 + self.clip_eps)
        surrogate = jnp.minimum(ratio * advantage, clipped * advantage)  # eq. 7
        if self.dual_clip is not None:
            surrogate = jnp.where(advantage < 0.0, jnp.maximum(surrogate, self.dual_clip * advantage), surrogate)
        rows = base.Rows(
            policy=-surrogate,
            value=value_error,
            entropy=distribution.entropy(),
            log_ratio=log_ratio,
        )
        outside = jnp.abs(ratio - 1.0) > self.clip_eps
        return base.objective(rows, batch, self.vf_coef, self.ent_coef, clip_fraction=outside)  # eq. 9, negated
