"""What a human wants to see of one update."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp

from ppax.metrics import Summary, Table, reduced, unpack
from ppax.sequences import masked_means
from ppax.types import Batch, LearnerState


class Update(NamedTuple):
    """The learner after an update, and what happened."""

    learner: LearnerState
    metrics: Table


def update_metrics(batch: Batch, history: Summary) -> Table:
    """Scalars of one update; `history` has one entry a gradient step, [num_epochs, num_minibatches, ...]."""
    valid, value, target = batch.steps.valid, batch.steps.value, batch.targets.value
    means, tops = history.means.mean((0, 1)), history.tops.max((0, 1), initial=-jnp.inf)
    whole = unpack(dataclasses.replace(history, means=means, tops=tops))
    if {"ratio_max", "ratio_min"} <= set(history):
        first = dataclasses.replace(history, means=history.means[0, 0], tops=history.tops[0, 0])
        # before the first gradient step the ratio must be 1, or acting and learning saw different things
        deviation = jnp.maximum(first["ratio_max"] - 1.0, 1.0 - first["ratio_min"])
        whole |= reduced("max", {"ratio_first_max_dev": jnp.maximum(0.0, deviation)})
    columns = jnp.stack([target, target - value, batch.targets.advantage, value, batch.steps.reward])
    average = masked_means(list(columns), valid)
    variances = masked_means(list((columns - average[:, None, None]) ** 2), valid)
    target_var, unexplained = variances[0], variances[1]
    return whole | {
        # 0 where targets do not vary: there is nothing to explain
        "explained_variance": jnp.where(target_var > 0.0, 1.0 - unexplained / target_var, 0.0),
        "advantage_std": jnp.sqrt(variances[2]),
        "value_mean": average[3],
        "target_mean": average[0],
        "target_std": jnp.sqrt(target_var),
        "reward_mean": average[4],
        "valid_fraction": valid.mean(dtype=jnp.float32),
    }
