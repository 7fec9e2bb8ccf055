"""No policy objective: extensions alone teach the policy."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from ppax.core.protocols import PolicyTerms
from ppax.core.types import Batch, part
from ppax.ppo.losses import base


@part
class NoPolicyLoss:
    """No policy objective, in the place of PPO's: for imitation alone. Value and entropy terms stay."""

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return a loss of 0 and the log-ratio of each row, [N], of which the diagnostics are made."""
        log_ratio = base.bounded_log_ratio(distribution.log_prob(batch.steps.action), batch.steps)
        return PolicyTerms(jnp.zeros_like(log_ratio), log_ratio)
