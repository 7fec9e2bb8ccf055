"""The clipped surrogate objective. Schulman et al. 2017, https://arxiv.org/abs/1707.06347

Eq. 7 and 9 there; `w` is the paper's probability ratio r_t(theta).
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.sequences import masked_means
from ppax.types import Batch, LossOutput, Scalar, number, part

LOG_RATIO_BOUND = 20.0  # exp(20) is far outside any clip; it keeps a runaway ratio finite in float32


@part
class ClippedSurrogate:
    """-mean min(w A, clip(w, 1 - eps, 1 + eps) A) + vf_coef * 0.5 mean (V - R)^2 - ent_coef * mean entropy."""

    clip_eps: Scalar = number("how far the ratio may move before its gradient stops", default=0.2, above=0.0)
    vf_coef: Scalar = number("weight of the value loss", default=0.5, low=0.0)
    ent_coef: Scalar = number("weight of the entropy bonus", default=0.0, low=0.0)

    def __call__(self, distribution: Any, value: Array, batch: Batch) -> LossOutput:
        """Loss of rows [N]; `batch.targets.advantage` comes normalised."""
        steps, targets = batch.steps, batch.targets
        valid = steps.valid
        log_ratio = jnp.clip(distribution.log_prob(steps.action) - steps.log_prob, -LOG_RATIO_BOUND, LOG_RATIO_BOUND)
        ratio = jnp.exp(log_ratio)
        clipped = jnp.clip(ratio, 1.0 - self.clip_eps, 1.0 + self.clip_eps)
        surrogate = jnp.minimum(ratio * targets.advantage, clipped * targets.advantage)  # eq. 7
        # k3, http://joschu.net/blog/kl-approx.html: unbiased, never negative, little variance
        kl, outside = jnp.expm1(log_ratio) - log_ratio, jnp.abs(ratio - 1.0) > self.clip_eps
        columns = (-surrogate, 0.5 * (value - targets.value) ** 2, distribution.entropy(), kl, outside)
        policy_loss, value_loss, entropy, approx_kl, clip_fraction = masked_means(columns, valid)
        loss = policy_loss + self.vf_coef * value_loss - self.ent_coef * entropy  # eq. 9, negated
        return LossOutput(
            loss,
            {
                "loss": loss,
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "entropy": entropy,
                "approx_kl": approx_kl,
                "clip_fraction": clip_fraction,
                "ratio_max": jnp.max(ratio, where=valid, initial=0.0),
                "ratio_min": jnp.min(ratio, where=valid, initial=jnp.inf),
            },
        )
