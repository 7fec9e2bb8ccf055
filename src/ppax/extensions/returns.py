"""Scale of intrinsic rewards: the running standard deviation of their discounted sum.

Burda et al. 2018, section 2.4, https://arxiv.org/abs/1810.12894
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.types import Scalar, Transition
from ppax.devices import sharding
from ppax.ppo.normalization import RunningStats, update_stats

LEAST_VARIANCE = 1e-12  # lower bound of the variance: near-zero rewards of a perfect predictor are not scaled up


class Scaled(NamedTuple):
    """Scaled rewards, and the state after them."""

    reward: Array  # [T, B]
    stats: RunningStats  # of the discounted sums
    trace: Array  # [B] discounted sum of each stream's rewards so far


def scaled(
    stats: RunningStats, trace: Array, reward: Array, steps: Transition, gamma: Scalar, episodic: bool
) -> Scaled:
    """Divide `reward` [T, B] by the standard deviation of its discounted sum so far, these steps included.

    `trace` [B] is the sum before these steps; only if `episodic` it begins anew with an episode, also with one that
    follows a reset between two rollouts. Steps that are not valid have no reward and are left out.
    """
    sums = jax.vmap(discounted_so_far, (0, 1, 1, 1, None, None), (0, 1))
    trace, traces = sums(trace, reward, steps.valid, steps.first, gamma, episodic)
    stats = update_stats(stats, *sharding.gather((traces, steps.valid), axis=1))
    variance = jnp.maximum(stats.var.high, LEAST_VARIANCE)
    return Scaled(jnp.where(steps.valid, reward * jax.lax.rsqrt(variance), 0.0), stats, trace)


def discounted_so_far(
    trace: Array, reward: Array, valid: Array, first: Array, gamma: Scalar, episodic: bool
) -> tuple[Array, Array]:
    """Return the next `trace` [], and the discounted sums [T] of one stream's rewards, continued from `trace` []."""

    def step(before: Array, row: tuple[Array, Array, Array]) -> tuple[Array, Array]:
        reward_t, valid_t, first_t = row
        before = jnp.where(first_t & episodic, 0.0, before)
        after = jnp.where(valid_t, gamma * before + reward_t, before)
        return after, after

    return jax.lax.scan(step, trace, (reward, valid, first))


def mean_reward(reward: Array, valid: Array) -> Array:
    """Mean reward of the steps where `valid` [T, B], on all devices."""
    total, count = sharding.total((jnp.where(valid, reward, 0.0).sum(), valid.sum(dtype=jnp.float32)))
    mean: Array = total / jnp.maximum(count, 1.0)
    return mean
