"""Metrics of one update, such as the explained variance, for logging."""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.metrics import Summary, Table, merged, reduced, unpack
from ppax.arrays.sequences import masked_means, masked_std
from ppax.core.types import Batch, PyTree, Transition
from ppax.core.types import Update as Update
from ppax.devices import sharding
from ppax.ppo.batches import ALIKE


class History(NamedTuple):
    """Metrics of all gradient steps of an update, stacked to arrays [num_epochs, num_minibatches, ...]."""

    metrics: Summary
    learns: Array  # [...] whether the minibatch has a valid row
    acts: Array  # [...] whether it has a valid row with an allowed action


def update_metrics(batch: Batch, acting: Array, history: History) -> Table:
    """Return the scalar metrics of one update by name, each with its reduction over several updates (mean, max, ...).

    `batch` holds the rollout's rows [M, L], `acting` [M, L] says which of them the policy learns from, and `history`
    has the metrics of the gradient steps.
    """
    valid, value, target = batch.steps.valid, batch.steps.value, batch.targets.value
    steps, learns = history.metrics, history.learns[..., None]
    means = jnp.where(learns, steps.means, 0.0).sum((0, 1)) / jnp.maximum(learns.sum(dtype=jnp.float32), 1.0)
    tops = sharding.largest(jnp.stack([steps.tops.max((0, 1), initial=-jnp.inf), steps.tops[0, 0]]))
    whole = unpack(dataclasses.replace(steps, means=means, tops=tops[0]))
    first = dataclasses.replace(steps, means=steps.means[0, 0], tops=tops[1])
    # before the first gradient step the ratio must be 1; otherwise acting and learning disagree
    deviation = jnp.maximum(first.stored("ratio_max") - 1.0, 1.0 - first.stored("ratio_min"))
    of_first = reduced("max", {"ratio_first_max_dev": jnp.maximum(0.0, deviation)})
    some = history.acts.any()
    whole |= reduced("max", {"ratio_max": jnp.where(some, whole["ratio_max"], 1.0)})
    whole |= reduced("min", {"ratio_min": jnp.where(some, whole["ratio_min"], 1.0)})
    columns = jnp.stack([target, target - value, value, batch.steps.reward])
    average = masked_means(list(columns), valid)
    variances = masked_means(list((columns - average[:, None, None]) ** 2), valid)
    target_var, unexplained, reward = variances[0], variances[1], batch.steps.reward
    of_rollout: dict[str, Array] = {
        # 0 where targets are equal up to rounding, as advantages in `standardize`
        "explained_variance": jnp.where(target_var > (ALIKE * average[0]) ** 2, 1.0 - unexplained / target_var, 0.0),
        "advantage_std": masked_std(batch.targets.advantage, acting),
        "value_mean": average[2],
        "target_mean": average[0],
        "target_std": jnp.sqrt(target_var),
        "reward_mean": average[3],
        "reward_std": jnp.sqrt(variances[3]),
        "valid_fraction": valid.mean(dtype=jnp.float32),
    }
    known = valid.any()  # without a valid row the smallest and the largest reward are 0, as the means are
    lowest = reduced("min", {"reward_min": jnp.where(known, reward.min(where=valid, initial=jnp.inf), 0.0)})
    highest = reduced("max", {"reward_max": jnp.where(known, reward.max(where=valid, initial=-jnp.inf), 0.0)})
    ends, largest = ends_of_episodes(batch.steps), largest_observation(batch.steps.obs)
    return merged(whole, of_first, of_rollout, lowest, highest, ends, largest)


def ends_of_episodes(steps: Transition) -> Table:
    """Return the metrics `terminations` and `truncations`: counts of the steps [M, L] that ended episodes.

    A step with both flags is counted as a termination only.
    """
    cut = steps.truncated & ~steps.terminated
    ends = {"terminations": steps.terminated, "truncations": cut}
    return reduced("sum", {name: x.sum(dtype=jnp.float32) for name, x in ends.items()})


def largest_observation(obs: PyTree) -> Table:
    """Return the metric `obs_max`, the largest absolute entry of observations [M, L, ...]; {} without float arrays.

    Integer observations, such as pixels in bytes and categories, are left out. Invalid rows must be 0.
    """
    largest = [jnp.abs(x).max(initial=0.0) for x in jax.tree.leaves(obs) if jnp.issubdtype(x.dtype, jnp.floating)]
    return reduced("max", {"obs_max": functools.reduce(jnp.maximum, largest)}) if largest else Table({})
