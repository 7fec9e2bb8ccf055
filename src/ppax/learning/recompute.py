"""Recompute values, probability ratios and targets from the current parameters.

Before each epoch over whole streams, or before each minibatch over its sequences (`PPO.recompute`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.advantages import CanonicalVTrace, VTrace
from ppax.arrays.sequences import to_pairs, to_rows, to_sequences, zero_rows
from ppax.learning import batches
from ppax.learning.descent import Step, UpdateData, UpdateState
from ppax.learning.rewards import with_advantage
from ppax.losses.base import bounded_log_ratio
from ppax.program import sharding
from ppax.protocols import Advantage
from ppax.types import ConfigError, LearnerState, MinibatchIndices, Params, Scalar, Targets, Transition


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

    reward: Array  # [M, L] after normalisation and reward spreading
    end_value: Array  # [M] stored V of the observation after each sequence
    intrinsic: Array | None = None  # [M, L] advantage of intrinsic rewards, added to that of `reward`


def cut_with_inputs(
    steps: Transition,
    targets: Targets,
    reward: Array,
    next_value: Array,
    length: int,
    intrinsic: Array | None = None,
) -> batches.Experience:
    """`batches.cut`, with the inputs of recomputed targets: `reward`, `next_value` and `intrinsic` [T, B]."""
    experience = batches.cut(steps, targets, length)
    # Keep the final observation of a truncated episode: its row is invalid, but its value is bootstrapped from
    bootstraps = steps.truncated & ~steps.terminated
    observed = steps.valid | jnp.concatenate([jnp.zeros_like(bootstraps[:1]), bootstraps[:-1]])
    reward, intrinsic = zero_rows(steps.valid, (reward, intrinsic))
    sequences = to_sequences((zero_rows(observed, steps.obs), reward, next_value, intrinsic), length)
    obs, reward, next_value, intrinsic = sharding.gather(sequences)
    return experience._replace(
        steps=dataclasses.replace(experience.steps, obs=obs),
        inputs=TargetInputs(reward, next_value[:, -1], intrinsic),
    )


def recomputed_targets(
    evaluate_actions: Callable[[LearnerState, Transition], tuple[Array, Array]],
    advantage: Advantage,
    gamma: Scalar,
    learner: LearnerState,
    steps: Transition,
    inputs: TargetInputs,
) -> Targets:
    """Targets [M, L] of sequences, from V and log-probabilities of the current parameters (`evaluate_actions`).

    The bootstrap value after a sequence's end is the stored one.
    """
    steps, (reward, end_value, intrinsic) = sharding.own((steps, inputs))
    value, log_prob = evaluate_actions(learner, steps)
    ratio = jnp.exp(bounded_log_ratio(log_prob, steps))
    current = dataclasses.replace(steps, value=value, reward=reward)
    next_value = jax.vmap(batches.next_values)(current, end_value)
    targets = jax.vmap(advantage, (0, 0, None, 0))(current, next_value, gamma, ratio)
    return sharding.gather(zero_rows(steps.valid, with_advantage(Targets(*targets), intrinsic)))


Recomputed = Callable[[LearnerState, Transition, TargetInputs], Targets]  # `recomputed_targets` of one agent


def before_epoch(recomputed: Recomputed, data: UpdateData, params: Params) -> Targets:
    """Recompute all targets [M, L], over the whole rollout of each stream."""
    steps, _, inputs = data.experience
    targets = recomputed(data.learner._replace(params=params), *join(steps, inputs, data.num_steps))
    return to_pairs(to_rows(targets), steps.valid.shape[1])


def before_step(
    recomputed: Recomputed,
    make_minibatch: Callable[[Targets, MinibatchIndices], batches.Minibatch],
    gradient_step: Callable[[UpdateData, UpdateState, batches.Minibatch], Step],
    data: UpdateData,
    state: UpdateState,
    drawn: MinibatchIndices,
) -> Step:
    """Recompute the targets of the sequences `drawn`, then take a gradient step on the minibatch of these sequences."""
    steps, _, inputs = data.experience
    sequences = jax.tree.map(lambda x: x[drawn.index], (steps, inputs))
    fresh = recomputed(data.learner._replace(params=state.params), *sequences)
    targets = jax.tree.map(lambda x, new: x.at[drawn.index].set(new), state.targets, fresh)
    return gradient_step(data, state._replace(targets=targets), make_minibatch(targets, drawn))


def join(steps: Transition, inputs: TargetInputs, length: int) -> tuple[Transition, TargetInputs]:
    """Join consecutive sequences [M, L] of the same stream into longer ones of `length` steps; L divides `length`."""
    pieces = length // inputs.reward.shape[1]
    carry = jax.tree.map(lambda x: x[::pieces], steps.carry)
    joined = to_rows((dataclasses.replace(steps, carry=()), inputs.reward, inputs.intrinsic))
    steps, reward, intrinsic = to_pairs(joined, length)
    return dataclasses.replace(steps, carry=carry), TargetInputs(
        reward, inputs.end_value[pieces - 1 :: pieces], intrinsic
    )
