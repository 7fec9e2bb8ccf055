"""A rollout made ready to learn from: cut into sequences, rows that do not count emptied."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import masked_mean, to_pairs, to_rows, to_sequences, zero_rows
from ppax.losses.base import RowWeights
from ppax.program import sharding
from ppax.types import Metrics, MinibatchIndices, Targets, Transition

ALIKE = 4e-6  # std over |mean| up to which numbers in float32 are one: a mean of millions is off by 1e-6 of itself


class TargetInputs(NamedTuple):
    """What else is needed to estimate targets again."""

    reward: Array  # [M, L] as targets are made of it: scaled, spread
    end_value: Array  # [M] the rollout's V of what comes after each sequence


class Experience(NamedTuple):
    """The sequences of a rollout, on every device those of all."""

    steps: Transition  # [M, L]
    targets: Targets  # [M, L] by the values of the rollout
    source: Any  # Source, or None: targets will not be estimated again


def following(steps: Transition, last_value: Array) -> Array:
    """V of the observation after each step [T] of one stream; `last_value` [] is that after the last one."""
    value = jnp.concatenate([steps.value[1:], last_value[None]])
    return value if steps.final_value is None else jnp.where(steps.ended, steps.final_value, value)


def cut(steps: Transition, targets: Targets, length: int) -> Experience:
    """Sequences of `length` steps from steps [T, B]; rows that do not count become zero."""
    starts = zero_rows(steps.valid[::length], steps.carry)
    steps = dataclasses.replace(steps, carry=())
    emptied = zero_rows(steps.valid, (steps, Targets(*jax.lax.stop_gradient(targets))))
    (steps, targets), carry = sharding.gather((to_sequences(emptied, length), to_sequences(starts, 1)))
    return Experience(dataclasses.replace(steps, carry=carry), targets, None)


def cut_with_source(steps: Transition, targets: Targets, reward: Array, next_value: Array, length: int) -> Experience:
    """`cut`, for targets that are estimated again, from `reward` and `next_value` [T, B]."""
    experience = cut(steps, targets, length)
    # The last observation of a truncated episode does not count, but its value does
    bootstraps = steps.truncated & ~steps.terminated
    seen = steps.valid | jnp.concatenate([jnp.zeros_like(bootstraps[:1]), bootstraps[:-1]])
    known = to_sequences((zero_rows(seen, steps.obs), zero_rows(steps.valid, reward), next_value), length)
    obs, reward, next_value = sharding.gather(known)
    return Experience(
        dataclasses.replace(experience.steps, obs=obs), experience.targets, TargetInputs(reward, next_value[:, -1])
    )


def join(steps: Transition, source: TargetInputs, length: int) -> tuple[Transition, TargetInputs]:
    """Sequences [M, L], L dividing `length`, put together again to longer ones of the same streams."""
    pieces = length // source.reward.shape[1]
    carry = jax.tree.map(lambda x: x[::pieces], steps.carry)
    steps, reward = to_pairs(to_rows((dataclasses.replace(steps, carry=()), source.reward)), length)
    return dataclasses.replace(steps, carry=carry), TargetInputs(reward, source.end_value[pieces - 1 :: pieces])


def pick(valid: Array, index: Array) -> Array:
    """`valid` [M, L] of sequences `index` [m]; M, one beyond the last, is an empty place, of which nothing counts."""
    return valid[index] & (index < valid.shape[0])[:, None]


def over_rollout(targets: Targets, acting: Array, normalize_advantage: str) -> Targets:
    """Targets [M, L] of the whole rollout, standardised where that is asked of all advantages together."""
    if normalize_advantage != "rollout":
        return targets
    return targets._replace(advantage=standardize(targets.advantage, acting))


class Minibatch(NamedTuple):
    """What a gradient step is made from."""

    index: Array  # type: ignore[assignment]  # [m] of its sequences
    valid: Array  # [m, L]
    targets: Targets  # [m, L] as the loss sees them
    weights: RowWeights | None  # [m, L]
    # [] whether any row is valid; else no step, for momentum and weight decay move parameters without any gradient
    learns: Array
    acts: Array  # [] whether an action could be chosen in any of them
    metrics: Metrics


class Counted(NamedTuple):
    """Rows that the critic and the policy learn from."""

    valid: Array  # [M, L]
    acting: Any  # [M, L] masks.acting, or None: all valid rows

    @property
    def choices(self) -> Array:
        """[M, L] rows in which an action could be chosen."""
        return self.valid if self.acting is None else self.acting


def choose(rows: Counted, normalize_advantage: str, targets: Targets, drawn: MinibatchIndices) -> Minibatch:
    """The sequences drawn from rows and targets [M, L], their advantages standardised and weighted.

    Over the whole minibatch, before it is taken in chunks.
    """
    targets = over_rollout(targets, rows.choices, normalize_advantage)
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
    weights = row_weights(rows, Counted(valid, None if rows.acting is None else acting), weight)
    return Minibatch(index, valid, chosen._replace(advantage=advantage), weights, valid.any(), acting.any(), metrics)


def row_weights(rollout: Counted, minibatch: Counted, importance: Array | None) -> RowWeights | None:
    """Weights of the rows [m, L] of a minibatch; `importance` [m, L] is that of each row, None: 1."""
    if minibatch.acting is None:
        return None if importance is None else RowWeights(importance, importance, None)
    acting = minibatch.acting * _proportion(minibatch)
    if importance is None:
        return RowWeights(acting, None, acting)
    # By the rollout's proportion: in rows drawn by priority it is another one, and the policy's loss would be biased
    return RowWeights(importance * minibatch.acting * _proportion(rollout), importance, acting)


def _proportion(rows: Counted) -> Array:
    """Valid rows over those in which an action could be chosen, []."""
    valid, acting = (x.sum(dtype=jnp.float32) for x in (rows.valid, rows.acting))
    return valid / jnp.maximum(acting, 1.0)


def standardize(advantage: Array, rows: Array, weight: Array | None = None) -> Array:
    """To mean 0 and population std 1 over the entries where `rows`, by their weights; left alone where they are < 2.

    Where they are all alike they become 0: their std is nothing but the rounding of their mean.
    """

    def mean(x: Array) -> Array:
        if weight is None:
            return masked_mean(x, rows)
        return masked_mean(weight * x, rows) / jnp.maximum(masked_mean(weight, rows), 1e-30)

    middle = mean(advantage)
    centred = advantage - middle
    std = jnp.sqrt(mean(centred**2))
    scaled = centred / jnp.where(std > ALIKE * jnp.abs(middle), std + 1e-8, jnp.inf)
    return jnp.where(rows.sum() < 2, advantage, scaled)
