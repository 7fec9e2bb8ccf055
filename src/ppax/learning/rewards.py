"""Rewards that an update learns from: those of the environment, scaled and spread, and the intrinsic ones."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.advantages import spread_rewards
from ppax.arrays.metrics import Table
from ppax.learning import normalization
from ppax.program import sharding
from ppax.protocols import IntrinsicRewards
from ppax.types import ConfigError, LearnerState, Metrics, Rollout, Scalar, Transition

INTRINSIC = 2**32 - 3  # folded into a learner's key for the intrinsic reward
PHASE = 2**32 - 5  # the same for the auxiliary phase


class Rewarded(NamedTuple):
    """Learner with updated statistics of rewards, and the steps with the rewards that are learned from."""

    learner: LearnerState
    steps: Transition  # [T, B]


def learned(learner: LearnerState, rollout: Rollout, spread_decay: Scalar | None, intrinsic: Array | None) -> Rewarded:
    """Scale rewards if the learner has statistics of them, spread them, then add the `intrinsic` ones [T, B]."""
    steps = rollout.steps
    if learner.reward_stats is not None:
        learner, steps = normalization.normalize_rewards(learner, rollout)
    if spread_decay is not None:
        reward = jax.vmap(spread_rewards, (1, None, 1), 1)(steps.reward, spread_decay, steps.ended)
        steps = dataclasses.replace(steps, reward=reward)
    if intrinsic is not None:
        steps = dataclasses.replace(steps, reward=steps.reward + intrinsic)
    return Rewarded(learner, steps)


def with_intrinsic(metrics: Table, intrinsic: IntrinsicRewards, valid: Array) -> Table:
    """Add the mean intrinsic reward of the steps where `valid` [T, B], on all devices, and the part's own metrics.

    Raises ConfigError where the name of one is taken.
    """
    if intrinsic.reward is None:
        return metrics
    total, count = sharding.total((jnp.where(valid, intrinsic.reward, 0.0).sum(), valid.sum(dtype=jnp.float32)))
    own: Metrics = {"intrinsic_reward": total / jnp.maximum(count, 1.0)}
    taken = [name for name in intrinsic.metrics if name in metrics or name in own]
    if taken:
        raise ConfigError(f"intrinsic: the metric {taken[0]!r} exists already; give that of your part another name")
    return metrics | own | dict(intrinsic.metrics)
