"""Delayed-reward spreading: a late reward is shared with the steps that led to it. JaxDEM calls it DRIP."""

from __future__ import annotations

from jax import Array

from ppax.arrays.sequences import discounted_sum
from ppax.types import Scalar


def spread_rewards(reward: Array, decay: Scalar, ended: Array) -> Array:
    """r'_t = r_t + decay (1 - ended_t) r'_{t+1}, one stream [T]; decay 0 changes nothing.

    What it changes is the objective: each reward then counts up to 1 / (1 - decay) times. The sum starts anew with
    every rollout, so rewards spread over the steps of one rollout only.
    """
    return discounted_sum(reward, decay, ended)
