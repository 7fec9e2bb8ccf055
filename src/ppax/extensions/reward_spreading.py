"""Reward spreading: each reward also counts, geometrically less, for the steps before it within its episode."""

from __future__ import annotations

from typing import Any

import jax
from jax import Array

from ppax.core.types import PyTree, Rollout, Scalar, number, part
from ppax.ppo.advantages import spread_rewards
from ppax.ppo.extension import Before, Extension


@part
class RewardSpreading(Extension):
    """Reward spreading: r'_t = r_t + decay r'_{t+1} within an episode and a rollout. It changes the objective."""

    decay: Scalar = number("share of a reward that the step before it gets", default=0.5, low=0.0, high=1.0)

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Spread the rewards [T, B]."""
        spread = jax.vmap(spread_rewards, (1, None, 1), 1)(reward, self.decay, rollout.steps.ended)
        return Before(state, spread)
