"""A rollout made ready to learn from: cut into sequences, rows that do not count emptied."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax import masks, parallel
from ppax.sequences import masked_mean, masked_std, to_pairs, to_rows, to_sequences, zero_rows
from ppax.types import Drawn, Metrics, Targets, Transition


class Source(NamedTuple):
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
    return value if steps.cut_value is None else jnp.where(steps.ended, steps.cut_value, value)


def cut(steps: Transition, targets: Targets, length: int) -> Experience:
    """Sequences of `length` steps from steps [T, B]; rows that do not count become zero.

    A step in which nothing could be chosen stays as it is, for memory and targets to see, but is no longer valid.
    """
    starts = zero_rows(steps.valid[::length], steps.carry)
    steps = dataclasses.replace(steps, carry=())
    emptied = zero_rows(steps.valid, (steps, Targets(*jax.lax.stop_gradient(targets))))
    (steps, targets), carry = parallel.gather((to_sequences(emptied, length), to_sequences(starts, 1)))
    return Experience(masks.without_idle(dataclasses.replace(steps, carry=carry)), targets, None)


def cut_with_source(steps: Transition, targets: Targets, reward: Array, next_value: Array, length: int) -> Experience:
    """`cut`, for targets that are estimated again, from `reward` and `next_value` [T, B]."""
    experience = cut(steps, targets, length)
    # The last observation of a truncated episode does not count, but its value does
    bootstraps = steps.truncated & ~steps.terminated
    seen = steps.valid | jnp.concatenate([jnp.zeros_like(bootstraps[:1]), bootstraps[:-1]])
    known = to_sequences((zero_rows(seen, steps.obs), zero_rows(steps.valid, reward), next_value), length)
    obs, reward, next_value = parallel.gather(known)
    return Experience(
        dataclasses.replace(experience.steps, obs=obs), experience.targets, Source(reward, next_value[:, -1])
    )


def join(steps: Transition, source: Source, length: int) -> tuple[Transition, Source]:
    """Sequences [M, L], L dividing `length`, put together again to longer ones of the same streams."""
    pieces = length // source.reward.shape[1]
    carry = jax.tree.map(lambda x: x[::pieces], steps.carry)
    steps, reward = to_pairs(to_rows((dataclasses.replace(steps, carry=()), source.reward)), length)
    return dataclasses.replace(steps, carry=carry), Source(reward, source.end_value[pieces - 1 :: pieces])


def pick(valid: Array, index: Array) -> Array:
    """`valid` [M, L] of sequences `index` [m]; M, one beyond the last, is an empty place, of which nothing counts."""
    return valid[index] & (index < valid.shape[0])[:, None]


def over_rollout(targets: Targets, valid: Array, normalize_advantage: str) -> Targets:
    """Targets [M, L] of the whole rollout, standardised where that is asked of all advantages together."""
    if normalize_advantage != "rollout":
        return targets
    return targets._replace(advantage=standardize(targets.advantage, valid))


class Minibatch(NamedTuple):
    """What a gradient step is made from."""

    index: Array  # type: ignore[assignment]  # [m] of its sequences
    valid: Array  # [m, L]
    targets: Targets  # [m, L] as the loss sees them
    metrics: Metrics


def choose(targets: Targets, valid: Array, normalize_advantage: str, drawn: Drawn) -> Minibatch:
    """The sequences drawn from targets and valid [M, L], their advantages standardised and weighted."""
    index, weight = drawn
    chosen, valid = jax.tree.map(lambda x: x[index], targets), pick(valid, index)
    advantage, metrics = chosen.advantage, {}
    if normalize_advantage == "minibatch":
        metrics["advantage_norm_skipped"] = (valid.sum() < 2).astype(jnp.float32)
        advantage = standardize(advantage, valid)
    if weight is not None:
        advantage = advantage * weight[:, None]
    return Minibatch(index, valid, chosen._replace(advantage=advantage), metrics)


def standardize(advantage: Array, valid: Array) -> Array:
    """To mean 0 and population std 1 over the valid entries; left alone where fewer than two are valid."""
    centred = advantage - masked_mean(advantage, valid)
    scaled = centred / (masked_std(advantage, valid) + 1e-8)
    return jnp.where(valid.sum() < 2, advantage, scaled)
