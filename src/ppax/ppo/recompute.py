"""Recompute parts: when an update computes values, probability ratios and targets again from current parameters.

The choices are never, before each epoch over whole streams, or before each minibatch over its sequences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import to_pairs, to_rows, to_sequences, zero_rows
from ppax.core.protocols import Advantage
from ppax.core.types import Batch, ConfigError, LearnerState, MinibatchIndices, Params, Targets, Transition, part
from ppax.devices import sharding
from ppax.ppo import batches
from ppax.ppo.advantages import CanonicalVTrace, VTrace
from ppax.ppo.extension import Chain
from ppax.ppo.losses import bounded_log_ratio

State = TypeVar("State", bound=Any)


class RecomputeInputs(NamedTuple):
    """Rewards of sequences and V after each sequence: what recomputing targets needs besides the sequences' steps."""

    reward: Array  # [M, L] that is learned from
    end_value: Array  # [M] stored V of the observation after each sequence


class Recomputation(NamedTuple):
    """Data and functions to compute an update's advantages and value targets again from current parameters."""

    agent: Any  # PPO
    extensions: Chain
    learner: LearnerState
    steps: Transition  # [M, L]
    inputs: RecomputeInputs | None  # None: nothing is recomputed
    make_minibatch: Callable[[Targets, MinibatchIndices], batches.Minibatch]
    num_steps: int  # of the rollout

    def of(self, params: Params, index: Array) -> Targets:
        """Return the targets [m, L] of the sequences with the indices `index` [m], computed with parameters `params`.

        Two values are not computed again, but are those stored at collection: V of the observation after each sequence,
        and V of the final observation of episodes in environments on the host that reset within a step.
        """
        chosen = jax.tree.map(lambda x: x[index], (self.steps, self.inputs))
        return self._estimate(params, *chosen)

    def over_rollout(self, params: Params) -> Targets:
        """Return the targets [M, L] of all sequences from the parameters `params`, estimated over whole streams.

        A stream is a rollout's steps of one agent in one environment. L must divide the number of steps of the rollout.
        """
        steps, inputs = self.steps, self.inputs
        assert inputs is not None
        length = steps.valid.shape[1]
        pieces = self.num_steps // length
        # join consecutive sequences of the same stream
        carry = jax.tree.map(lambda x: x[::pieces], steps.carry)
        joined = to_rows((dataclasses.replace(steps, carry=()), inputs.reward))
        whole, reward = to_pairs(joined, self.num_steps)
        whole = dataclasses.replace(whole, carry=carry)
        targets = self._estimate(params, whole, RecomputeInputs(reward, inputs.end_value[pieces - 1 :: pieces]))
        return to_pairs(to_rows(targets), length)

    def _estimate(self, params: Params, steps: Transition, inputs: RecomputeInputs) -> Targets:
        steps, (reward, end_value) = sharding.own((steps, inputs))
        value, log_prob = self.agent.evaluate_actions(self.learner._replace(params=params), steps)
        ratio = jnp.exp(bounded_log_ratio(log_prob, steps))
        current = dataclasses.replace(steps, value=value, reward=reward)
        next_value = jax.vmap(batches.next_values)(current, end_value)
        targets = jax.vmap(self.agent.advantage, (0, 0, None, 0))(current, next_value, self.agent.gamma, ratio)
        return sharding.gather(zero_rows(steps.valid, self.extensions.targets(Targets(*targets), steps)))


class Recompute:
    """Base class of the parts for PPO's slot `recompute`; by default its methods recompute nothing.

    The subclasses `Epoch` and `Minibatch`, which recompute, override its methods.
    """

    whole_streams: ClassVar[bool] = False  # whether a sequence is by default a stream's whole rollout

    def check(self, advantage: Advantage) -> None:
        """Raise ConfigError if the advantage estimator cannot be used with this part; the base class accepts all."""

    def inputs(
        self, batch: Batch, steps: Transition, reward: Array, next_value: Array, length: int
    ) -> tuple[Batch, RecomputeInputs | None]:
        """Return the batch of sequences [M, L] and what else a recomputation of targets needs; here `batch` and None.

        `steps`, `reward` and `next_value` (V of the observation after each step), [T, B], are those of the whole
        rollout, from which `batch` was cut into sequences of `length` steps.
        """
        return batch, None

    def before_epoch(self, recomputation: Recomputation, state: State) -> State:
        """Return the state of the gradient steps (`ppo.DescentState`) with the next epoch's targets; here unchanged."""
        return state

    def before_step(
        self, recomputation: Recomputation, state: State, minibatch: batches.Minibatch
    ) -> tuple[State, batches.Minibatch]:
        """Return state and minibatch of a gradient step with recomputed targets; here both unchanged.

        The state, a `ppo.DescentState`, is that of the gradient steps of an update.
        """
        return state, minibatch


@part
class Never(Recompute):
    """No recomputation: all epochs learn from values and targets of the policy that acted, as in Schulman et al. 2017,
    https://arxiv.org/abs/1707.06347
    """

    def check(self, advantage: Advantage) -> None:
        """Raise ConfigError for VTrace and CanonicalVTrace: if nothing is recomputed, all their ratios are 1."""
        instead = {VTrace: ("vtrace", "gae (GAE)"), CanonicalVTrace: ("vtrace_canonical", "td_lambda (TDLambda)")}
        if type(advantage) in instead:
            name, other = instead[type(advantage)]
            raise ConfigError(
                f"advantage {name} with recompute never: every ratio is 1 and corrects nothing; write recompute.part = "
                f'"minibatch" or "epoch" (ppax.recompute.Minibatch() or Epoch()), or use {other}'
            )


@part
class Epoch(Recompute):
    """Recompute values, ratios and targets before each epoch, over each stream's whole rollout.

    A stream is one agent in one environment.
    """

    def inputs(
        self, batch: Batch, steps: Transition, reward: Array, next_value: Array, length: int
    ) -> tuple[Batch, RecomputeInputs | None]:
        """Return the batch with truncated episodes' final observations, and rewards [M, L] and end values [M].

        Recomputing targets needs all three. An end value is V of the observation after a sequence. `steps`, `reward`
        and `next_value` (V of the observation after each step) are [T, B], and are cut into M sequences of L = `length`
        steps. In `batch` all invalid rows are 0. This method restores the observation of the autoreset row after a
        truncated episode: it is the episode's final observation, whose V, recomputed, is the bootstrap value.
        """
        # Keep the final observation of a truncated episode: its row is invalid, but its value is bootstrapped from
        bootstraps = steps.truncated & ~steps.terminated
        observed = steps.valid | jnp.concatenate([jnp.zeros_like(bootstraps[:1]), bootstraps[:-1]])
        reward = zero_rows(steps.valid, reward)
        sequences = to_sequences((zero_rows(observed, steps.obs), reward, next_value), length)
        obs, reward, next_value = sharding.gather(sequences)
        return batch._replace(steps=dataclasses.replace(batch.steps, obs=obs)), RecomputeInputs(
            reward, next_value[:, -1]
        )

    def before_epoch(self, recomputation: Recomputation, state: State) -> State:
        """Return the state of the gradient steps (`ppo.DescentState`) with all targets recomputed.

        Targets are computed from the parameters before the epoch.
        """
        replaced: State = state._replace(targets=recomputation.over_rollout(state.trained))
        return replaced


@part
class Minibatch(Epoch):
    """Recompute values, ratios and targets of each minibatch's sequences just before its gradient step."""

    whole_streams: ClassVar[bool] = True

    def before_epoch(self, recomputation: Recomputation, state: State) -> State:
        """Return `state` as it is: targets are recomputed before each gradient step instead.

        Until then, each sequence keeps the targets of the last gradient step on it. `state` is that of the gradient
        steps (`ppo.DescentState`).
        """
        return state

    def before_step(
        self, recomputation: Recomputation, state: State, minibatch: batches.Minibatch
    ) -> tuple[State, batches.Minibatch]:
        """Return state and minibatch of a gradient step, with its targets recomputed from the current parameters.

        The state, a `ppo.DescentState`, is that of the gradient steps of an update; it holds the targets of all
        sequences.
        """
        index = minibatch.index
        fresh = recomputation.of(state.trained, index)
        targets = jax.tree.map(lambda x, new: x.at[index].set(new), state.targets, fresh)
        return state._replace(targets=targets), recomputation.make_minibatch(targets, minibatch.drawn)
