"""Reward spreading: an extension in which each reward counts for earlier steps of its episode, too.

A step's share of a reward decreases geometrically with the number of steps between them.
"""

from __future__ import annotations

from typing import Any

import jax
from jax import Array

from ppax.core.types import PyTree, Rollout, Scalar, number, part
from ppax.ppo.advantages import spread_rewards
from ppax.ppo.extension import Before, Extension


@part
class RewardSpreading(Extension):
    """Reward spreading: r'_t = r_t + decay r'_{t+1} within an episode and a rollout, in place of the reward r_t.

    It changes the objective: each reward counts up to 1 / (1 - decay) times.
    """

    decay: Scalar = number(
        "share of a reward that the step before the reward's step gets", default=0.5, low=0.0, high=1.0
    )

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return the rewards [T, B], each spread over the steps before it in its episode and rollout."""
        spread = jax.vmap(spread_rewards, (1, None, 1), 1)(reward, self.decay, rollout.steps.ended)
        return Before(state, spread)
