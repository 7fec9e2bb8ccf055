"""Reward spreading: add a share of later rewards to the steps before them. JaxDEM calls it DRIP."""

from __future__ import annotations

from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.core.types import Scalar


def spread_rewards(reward: Array, decay: Scalar, ended: Array) -> Array:
    """Spread rewards [T] of one stream: r'_t = r_t + decay (1 - ended_t) r'_{t+1}; decay 0 changes nothing.

    This changes the objective: each reward counts up to 1 / (1 - decay) times. Rewards spread within one rollout only.
    """
    return discounted_sum(reward, decay, ended)
