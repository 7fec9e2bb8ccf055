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
from ppax.types import ConfigError, LearnerState, Metrics, Rollout, Scalar, Targets, Transition

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


def with_advantage(targets: Targets, advantage: Array | None) -> Targets:
    """Add the advantage of another stream of rewards; None: there is none. Value targets stay."""
    return targets if advantage is None else targets._replace(advantage=targets.advantage + advantage)


def mean_reward(reward: Array, valid: Array) -> Array:
    """Mean reward of the steps where `valid` [T, B], on all devices."""
    total, count = sharding.total((jnp.where(valid, reward, 0.0).sum(), valid.sum(dtype=jnp.float32)))
    mean: Array = total / jnp.maximum(count, 1.0)
    return mean


def with_intrinsic(metrics: Table, intrinsic: IntrinsicRewards, valid: Array) -> Table:
    """Add the mean intrinsic reward of the steps where `valid` [T, B], on all devices, and the part's own metrics.

    Raises ConfigError where the name of one is taken.
    """
    if intrinsic.reward is None and not intrinsic.metrics:
        return metrics
    own: Metrics = {} if intrinsic.reward is None else {"intrinsic_reward": mean_reward(intrinsic.reward, valid)}
    taken = [name for name in intrinsic.metrics if name in metrics or name in own]
    if taken:
        raise ConfigError(f"intrinsic: the metric {taken[0]!r} exists already; give that of your part another name")
    return metrics | own | dict(intrinsic.metrics)
