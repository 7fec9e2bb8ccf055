"""Minibatches of a rollout: functions that cut it into sequences, and standardise and weigh a minibatch's rows."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays import masks
from ppax.arrays.sequences import masked_mean, to_sequences, zero_rows
from ppax.core.types import Batch, Metrics, MinibatchIndices, PyTree, Targets, Transition
from ppax.devices import sharding
from ppax.ppo.losses import RowWeights


def next_values(steps: Transition, last_value: Array) -> Array:
    """Return V of the observation after each step of one stream (one agent in one environment), [T].

    That is V of the next row. After the last step of an episode the next row is the automatic reset, whose observation
    is the episode's final one (training/collection.py); where the environment on the host resets in the same step it
    is `final_value`. After the last step of the rollout it is `last_value` [].
    """
    value = jnp.concatenate([steps.value[1:], last_value[None]])
    return value if steps.final_value is None else jnp.where(steps.ended, steps.final_value, value)


def cut(steps: Transition, targets: Targets, length: int) -> Batch:
    """Return steps and targets [T, B] cut into sequences [M, L] of `length` steps, with zeros in invalid rows.

    If training uses several devices, the result has the sequences of all of them, on each.
    """
    starts = zero_rows(steps.valid[::length], steps.carry)
    steps = dataclasses.replace(steps, carry=())
    emptied = zero_rows(steps.valid, (steps, Targets(*jax.lax.stop_gradient(targets))))
    (steps, targets), carry = sharding.gather((to_sequences(emptied, length), to_sequences(starts, 1)))
    return Batch(dataclasses.replace(steps, carry=carry), targets)


class Minibatch(NamedTuple):
    """Inputs of one gradient step: m sequences of L steps with their targets and weights.

    `learns` says whether any row is valid: without one the gradient step is skipped. `acts` says whether the policy
    learns from any row. `metrics` are about the minibatch itself, such as that its advantages could not be
    standardised.
    """

    drawn: MinibatchIndices  # [m]
    valid: Array  # [m, L]
    targets: Targets  # [m, L] standardised and weighted
    weights: RowWeights | None  # [m, L]
    # [] whether any row is valid; if not, the step is skipped: momentum and weight decay would move parameters
    learns: Array
    acts: Array  # [] whether any valid row has an allowed action
    metrics: Metrics

    @property
    def index(self) -> Array:  # type: ignore[override]
        """Return the indices of the minibatch's sequences, [m], among the rollout's M sequences; index M is padding."""
        return self.drawn.index


class RowMasks(NamedTuple):
    """Two masks of the rows of a rollout or minibatch: rows that train the critic, and rows that train the policy."""

    valid: Array  # [M, L] rows of the critic
    acting: Any  # [M, L] rows of the policy (masks.acting); None: all valid rows

    @property
    def policy(self) -> Array:
        """Return the mask [M, L] of the rows that the policy learns from: valid rows in which some action is allowed.

        In the other valid rows, such as those of another player's turn, the agent does not act.
        """
        return self.valid if self.acting is None else self.acting


def row_masks(steps: Transition) -> RowMasks:
    """Return the masks of those rows of `steps` [M, L] that train the critic, and of those that train the policy."""
    return RowMasks(steps.valid, masks.acting(steps))


def make_minibatch(rows: RowMasks, normalize_advantage: str, targets: Targets, drawn: MinibatchIndices) -> Minibatch:
    """Return the minibatch of the sequences `drawn` [m], with its targets, and the weights of its rows in the loss.

    `rows` and `targets` are those of the whole rollout [M, L]. `normalize_advantage` says whether advantages are
    standardised over the "rollout", over the "minibatch", or not ("off"). If the sampler has given weights for
    advantages, advantages are then multiplied by them.
    """
    targets = standardize_over_rollout(targets, rows.policy, normalize_advantage)
    index, weight, advantage_weight = drawn
    chosen, valid = jax.tree.map(lambda x: x[index], targets), pick(rows.valid, index)
    acting = valid if rows.acting is None else pick(rows.acting, index)
    weight = None if weight is None else jnp.broadcast_to(weight[:, None], valid.shape)
    advantage, metrics = chosen.advantage, {}
    if normalize_advantage == "minibatch":
        metrics["advantage_norm_skipped"] = (acting.sum() < 2).astype(jnp.float32)
        advantage = standardize(advantage, acting, weight)
    if rows.acting is not None:
        advantage = jnp.where(acting, advantage, 0.0)
    if advantage_weight is not None:
        advantage = advantage * advantage_weight[:, None]
    weights = row_weights(rows, RowMasks(valid, None if rows.acting is None else acting), weight)
    return Minibatch(drawn, valid, chosen._replace(advantage=advantage), weights, valid.any(), acting.any(), metrics)


def row_weights(rollout: RowMasks, minibatch: RowMasks, importance: Array | None) -> RowWeights | None:
    """Return the weights of a minibatch's rows [m, L] in the loss; None where each valid row has the weight 1.

    `rollout` and `minibatch` are the row masks of the whole rollout and of this minibatch; `importance` [m, L] are the
    sampler's importance weights, None if all are 1.
    """
    if minibatch.acting is None:
        return None if importance is None else RowWeights(importance, importance, None)
    acting = minibatch.acting * _proportion(minibatch)
    if importance is None:
        return RowWeights(acting, None, acting)
    # The rollout's proportion: that of rows drawn by priority differs and would bias the policy loss
    return RowWeights(importance * minibatch.acting * _proportion(rollout), importance, acting)


def _proportion(rows: RowMasks) -> Array:
    """Return the factor for weights of rows, [], that turns a mean over valid rows into a mean over the policy's rows.

    It is the number of valid rows divided by the number of the policy's rows: valid rows whose action mask allows some
    action. All other rows must have weight 0.
    """
    valid, acting = (x.sum(dtype=jnp.float32) for x in (rows.valid, rows.acting))
    return valid / jnp.maximum(acting, 1.0)


ALIKE = 4e-6  # std / |mean| below which float32 advantages are equal: a mean of millions has a relative error of 1e-6


def standardize(advantage: Array, rows: Array, weight: Array | None = None) -> Array:
    """Return `advantage` [m, L], shifted and scaled to weighted mean 0 and std 1 over the entries where `rows` is True.

    With fewer than 2 such entries, advantages are unchanged. Equal advantages become 0: their std is only the rounding
    error of their mean. `rows` and `weight` are [m, L]; with `weight` None, all weights are 1.
    """

    def mean(x: Array) -> Array:
        if weight is None:
            return masked_mean(x, rows)
        return masked_mean(weight * x, rows) / jnp.maximum(masked_mean(weight, rows), 1e-30)

    average = mean(advantage)
    centred = advantage - average
    std = jnp.sqrt(mean(centred**2))
    scaled = centred / jnp.where(std > ALIKE * jnp.abs(average), std + 1e-8, jnp.inf)
    return jnp.where(rows.sum() < 2, advantage, scaled)


def standardize_over_rollout(targets: Targets, acting: Array, normalize_advantage: str) -> Targets:
    """Return targets [M, L] with advantages standardised over the whole rollout, if `normalize_advantage` is "rollout".

    Otherwise they are unchanged. The mean and std are those of the rows that the policy learns from, `acting` [M, L].
    """
    if normalize_advantage != "rollout":
        return targets
    return targets._replace(advantage=standardize(targets.advantage, acting))


def pick(valid: Array, index: Array) -> Array:
    """Return the masks [m, L] of the sequences `index` [m], from `valid` [M, L]; the index M is padding: all False."""
    return valid[index] & (index < valid.shape[0])[:, None]


def repeated(tree: PyTree, count: int) -> PyTree:
    """Return `tree` with each leaf repeated along a new leading axis of length `count`."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), tree)
