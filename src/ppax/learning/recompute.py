"""Recompute values, probability ratios and targets from the current parameters.

Before each epoch over whole streams, or before each minibatch over its sequences (`PPO.recompute`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.advantages import CanonicalVTrace, VTrace
from ppax.arrays.sequences import to_pairs, to_rows, to_sequences, zero_rows
from ppax.learning import batches
from ppax.learning.extension import Chain
from ppax.losses.base import bounded_log_ratio
from ppax.program import sharding
from ppax.protocols import Advantage
from ppax.types import Batch, ConfigError, LearnerState, Targets, Transition


def check_ratios(advantage: Advantage, recompute: str) -> None:
    """Raise ConfigError for V-trace, of either form, with recompute = "never": all ratios would be 1."""
    instead = {VTrace: ("vtrace", "gae (GAE)"), CanonicalVTrace: ("vtrace_canonical", "td_lambda (TDLambda)")}
    if recompute == "never" and type(advantage) in instead:
        name, other = instead[type(advantage)]
        raise ConfigError(
            f'advantage {name} with recompute = "never": every ratio is 1 and corrects nothing; set recompute = '
            f'"minibatch" or "epoch", or use {other}'
        )


class TargetInputs(NamedTuple):
    """Inputs of recomputed targets, in addition to the steps."""

    reward: Array  # [M, L] that is learned from
    end_value: Array  # [M] stored V of the observation after each sequence


def with_inputs(
    batch: Batch, steps: Transition, reward: Array, next_value: Array, length: int
) -> tuple[Batch, TargetInputs]:
    """Return `batch` with the observations that recomputed targets read, and their inputs from `reward` [T, B]."""
    # Keep the final observation of a truncated episode: its row is invalid, but its value is bootstrapped from
    bootstraps = steps.truncated & ~steps.terminated
    observed = steps.valid | jnp.concatenate([jnp.zeros_like(bootstraps[:1]), bootstraps[:-1]])
    reward = zero_rows(steps.valid, reward)
    sequences = to_sequences((zero_rows(observed, steps.obs), reward, next_value), length)
    obs, reward, next_value = sharding.gather(sequences)
    return batch._replace(steps=dataclasses.replace(batch.steps, obs=obs)), TargetInputs(reward, next_value[:, -1])


def recomputed_targets(
    agent: Any, extensions: Chain, learner: LearnerState, steps: Transition, inputs: TargetInputs
) -> Targets:
    """Targets [M, L] of sequences, from V and log-probabilities of the current parameters.

    The bootstrap value after a sequence's end is the stored one.
    """
    steps, (reward, end_value) = sharding.own((steps, inputs))
    value, log_prob = agent.evaluate_actions(learner, steps)
    ratio = jnp.exp(bounded_log_ratio(log_prob, steps))
    current = dataclasses.replace(steps, value=value, reward=reward)
    next_value = jax.vmap(batches.next_values)(current, end_value)
    targets = jax.vmap(agent.advantage, (0, 0, None, 0))(current, next_value, agent.gamma, ratio)
    return sharding.gather(zero_rows(steps.valid, extensions.targets(Targets(*targets), steps)))


def over_rollout(
    recomputed: Callable[[LearnerState, Transition, TargetInputs], Targets],
    learner: LearnerState,
    steps: Transition,
    inputs: TargetInputs,
    num_steps: int,
) -> Targets:
    """Recompute all targets [M, L], over the whole rollout of each stream; L divides `num_steps`."""
    length = steps.valid.shape[1]
    pieces = num_steps // length
    # join consecutive sequences of the same stream
    carry = jax.tree.map(lambda x: x[::pieces], steps.carry)
    joined = to_rows((dataclasses.replace(steps, carry=()), inputs.reward))
    whole, reward = to_pairs(joined, num_steps)
    whole = dataclasses.replace(whole, carry=carry)
    targets = recomputed(learner, whole, TargetInputs(reward, inputs.end_value[pieces - 1 :: pieces]))
    return to_pairs(to_rows(targets), length)
