"""Normalisation of observations and rewards by a running mean and variance, accurate beyond 10^9 samples in float32.

Mean and variance are pairs of float32 (value and rounding error), the count is an exact pair of uint32. Batches are
merged by Chan et al. 1979 (parallel variance); moments are taken around the running mean, never as E[x^2] - E[x]^2.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays import counter
from ppax.core.types import LearnerState, PyTree, Rollout, Transition
from ppax.devices import sharding

CLIP = 10.0  # clip range of normalised observations and rewards, in standard deviations
EPSILON = 1e-8


class FloatPair(NamedTuple):
    """Compensated float32: a value and its rounding error, whose sum is more precise than either."""

    high: Array
    low: Array


class RunningStats(NamedTuple):
    """Running mean and variance of all samples so far, each of the shape of one sample; `count` is [2] uint32."""

    count: Array  # type: ignore[assignment]
    mean: FloatPair
    var: FloatPair  # population variance


def init_stats(shape: tuple[int, ...]) -> RunningStats:
    """Return the statistics of no samples of this shape: mean 0 and variance 1, which the first samples replace."""
    zeros = jnp.zeros(shape, jnp.float32)
    return RunningStats(counter.zero(), FloatPair(zeros, zeros), FloatPair(zeros + 1.0, zeros))


def add_compensated(pair: FloatPair, x: Array) -> FloatPair:
    """Return the pair plus `x`, with the new rounding error (Knuth's two-sum)."""
    total = pair.high + x
    back = total - pair.high
    low = pair.low + ((pair.high - (total - back)) + (x - back))
    high = total + low
    return FloatPair(high, low - (high - total))


def update_stats(stats: RunningStats, x: Array, valid: Array) -> RunningStats:
    """Return the statistics after further samples: those of `x` [..., *shape] where `valid` [...]."""
    axes = tuple(range(valid.ndim))
    weight = jnp.expand_dims(valid, tuple(range(valid.ndim, x.ndim)))
    seen = valid.sum(dtype=jnp.uint32)
    per_sample = 1.0 / jnp.maximum(seen.astype(jnp.float32), 1.0)

    def mean(y: Array) -> Array:
        return jnp.where(weight, y, 0.0).sum(axes) * per_sample

    x = x.astype(jnp.float32)
    centred = x - jnp.expand_dims(stats.mean.high, axes) - jnp.expand_dims(stats.mean.low, axes)
    shift = mean(centred)
    batch_var = mean((centred - jnp.expand_dims(shift, axes)) ** 2)
    count = counter.add(stats.count, seen)
    total = jnp.maximum(counter.to_float(count), 1.0)
    share, rest = seen.astype(jnp.float32) / total, counter.to_float(stats.count) / total
    var_step = share * ((batch_var - stats.var.high) - stats.var.low + rest * shift**2)
    return RunningStats(count, add_compensated(stats.mean, share * shift), add_compensated(stats.var, var_step))


class NoStats(NamedTuple):
    """Placeholder in the place of statistics for categorical observations, which are not normalised."""


def init_obs_stats(space: spaces.Space) -> PyTree:
    """Return the initial statistics of observations of `space`, one for each array, in the space's structure."""
    if isinstance(space, spaces.Dict):
        return {key: init_obs_stats(inner) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(init_obs_stats(inner) for inner in space.spaces)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return NoStats()
    return init_stats(space.shape or ())


def initial(space: spaces.Space, of_obs: bool, of_reward: bool) -> tuple[PyTree, PyTree]:
    """Return the initial statistics of observations, and those of discounted returns; None for what is not normalised.

    `of_obs` and `of_reward` say whether observations and rewards are normalised.
    """
    return init_obs_stats(space) if of_obs else None, init_stats(()) if of_reward else None


def is_stats(node: object) -> bool:
    """Return True for a tree node that holds the statistics of one array, at which `jax.tree.map` is to stop."""
    return isinstance(node, RunningStats | NoStats)


def with_obs_stats(learner: LearnerState, steps: Transition) -> LearnerState:
    """Return the learner with the valid observations of `steps` [M, L] merged into its statistics of observations.

    A learner without such statistics is returned as it is.
    """
    if learner.obs_stats is None:
        return learner
    return learner._replace(obs_stats=update_obs_stats(learner.obs_stats, steps.obs, steps.valid))


def update_obs_stats(stats: PyTree, obs: PyTree, valid: Array) -> PyTree:
    """Return the statistics after further observations: those of `obs` [..., *shape] where `valid` [...].

    `stats` has the structure of an observation.
    """

    def one(s: RunningStats | NoStats, x: Array) -> RunningStats | NoStats:
        return s if isinstance(s, NoStats) else update_stats(s, x, valid)

    return jax.tree.map(one, stats, obs, is_leaf=is_stats)


def normalize_obs(stats: PyTree, obs: PyTree, clip: float = CLIP) -> PyTree:
    """Return observations [..., *shape] standardised by `stats` and clipped to +-`clip` standard deviations.

    Categorical ones stay as they are.
    """

    def one(s: RunningStats | NoStats, x: Array) -> Array:
        if isinstance(s, NoStats):
            return x
        batch = tuple(range(x.ndim - s.mean.high.ndim))
        mean, low, var = (jnp.expand_dims(v, batch) for v in (s.mean.high, s.mean.low, s.var.high))
        return jnp.clip(((x - mean) - low) * jax.lax.rsqrt(var + EPSILON), -clip, clip)

    return jax.tree.map(one, stats, obs, is_leaf=is_stats)


class Rewarded(NamedTuple):
    """Learner with updated statistics of rewards, and the scaled rewards of a rollout."""

    learner: LearnerState
    reward: Array  # [T, B]


def normalize_rewards(learner: LearnerState, rollout: Rollout) -> Rewarded:
    """Return the learner with its reward statistics updated by a rollout, and the rollout's rewards [T, B], scaled.

    Rewards are divided by the standard deviation of the discounted return, without centring, and clipped at +-10. On
    several devices, the statistics are those of all. Without statistics, learner and rewards are unchanged.
    """
    steps = rollout.steps
    if learner.reward_stats is None:
        return Rewarded(learner, steps.reward)
    trace, valid = sharding.gather((rollout.reward_trace, steps.valid), axis=1)
    stats = update_stats(learner.reward_stats, trace, valid)
    scaled = steps.reward * jax.lax.rsqrt(stats.var.high + EPSILON)
    return Rewarded(learner._replace(reward_stats=stats), jnp.clip(scaled, -CLIP, CLIP))
