"""Discovered policy optimisation (DPO): a meta-learned drift function replaces the clip. Lu et al. 2022,
https://arxiv.org/abs/2210.05639

Drift function of section 5; `w` is the paper's r.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ppax.core.protocols import PolicyTerms
from ppax.core.types import Batch, Scalar, number, part
from ppax.ppo.losses import base


@part
class DPO:
    """Discovered policy optimisation (DPO). Lu et al. 2022, https://arxiv.org/abs/2210.05639

    drift - w A of each row, where drift = relu(x - scale tanh(x / scale)), with x = (w - 1) A, scale = alpha
    for A >= 0, and x = log(w) A, scale = beta for A < 0.
    """

    alpha: Scalar = number("drift scale for A >= 0: soft upper bound of (w - 1) A", default=2.0, above=0.0)
    beta: Scalar = number("drift scale for A < 0: soft upper bound of log(w) A", default=0.6, above=0.0)

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return loss and log-ratio of each row, [N]; the metric `policy_loss` includes the drift."""
        steps, advantage = batch.steps, batch.targets.advantage
        log_ratio = base.bounded_log_ratio(distribution.log_prob(steps.action), steps)
        good, ratio = advantage >= 0.0, jnp.exp(log_ratio)
        scale = jnp.where(good, self.alpha, self.beta)
        x = jnp.where(good, jnp.expm1(log_ratio), log_ratio) * advantage
        # relu of the difference, gated by x, which has its sign: the difference is only rounding near 0, and as gate
        # it made gradients of XLA's fused CPU program wrong by several percent (tests/losses/test_gradients.py)
        drift = jnp.where(x > 0.0, x - scale * jnp.tanh(x / scale), 0.0)
        return PolicyTerms(drift - ratio * advantage, log_ratio)
