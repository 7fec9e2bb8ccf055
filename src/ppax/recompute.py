"""When to compute values, probability ratios and targets again from the current parameters: never, or before each epoch
over whole streams, or before each minibatch over its sequences.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, TypeVar

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
from ppax.types import Batch, ConfigError, LearnerState, MinibatchIndices, Params, Targets, Transition, part

State = TypeVar("State", bound=Any)
Make = Callable[[Targets, MinibatchIndices], batches.Minibatch]


class Inputs(NamedTuple):
    """Inputs of recomputed targets, in addition to the steps."""

    reward: Array  # [M, L] that is learned from
    end_value: Array  # [M] stored V of the observation after each sequence


class Sequences(NamedTuple):
    """Sequences of a rollout with targets from the stored values, and what recomputed targets need."""

    batch: Batch  # [M, L]
    inputs: Inputs | None


class Recomputation(NamedTuple):
    """Targets of an update's sequences from current parameters, not from those that acted."""

    agent: Any  # PPO
    extensions: Chain
    learner: LearnerState
    sequences: Sequences
    num_steps: int  # of the rollout

    def of(self, params: Params, index: Array) -> Targets:
        """Targets [m, L] of the sequences `index` [m]; the bootstrap value after the end of each is the stored one."""
        batch, inputs = self.sequences
        chosen = jax.tree.map(lambda x: x[index], (batch.steps, inputs))
        return self._estimate(params, *chosen)

    def over_rollout(self, params: Params) -> Targets:
        """All targets [M, L], estimated over the whole rollout of each stream; L divides its number of steps."""
        steps, inputs = self.sequences.batch.steps, self.sequences.inputs
        assert inputs is not None
        length = steps.valid.shape[1]
        pieces = self.num_steps // length
        # join consecutive sequences of the same stream
        carry = jax.tree.map(lambda x: x[::pieces], steps.carry)
        joined = to_rows((dataclasses.replace(steps, carry=()), inputs.reward))
        whole, reward = to_pairs(joined, self.num_steps)
        whole = dataclasses.replace(whole, carry=carry)
        targets = self._estimate(params, whole, Inputs(reward, inputs.end_value[pieces - 1 :: pieces]))
        return to_pairs(to_rows(targets), length)

    def _estimate(self, params: Params, steps: Transition, inputs: Inputs) -> Targets:
        steps, (reward, end_value) = sharding.own((steps, inputs))
        value, log_prob = self.agent.evaluate_actions(self.learner._replace(params=params), steps)
        ratio = jnp.exp(bounded_log_ratio(log_prob, steps))
        current = dataclasses.replace(steps, value=value, reward=reward)
        next_value = jax.vmap(batches.next_values)(current, end_value)
        targets = jax.vmap(self.agent.advantage, (0, 0, None, 0))(current, next_value, self.agent.gamma, ratio)
        return sharding.gather(zero_rows(steps.valid, self.extensions.targets(Targets(*targets), steps)))


class Recompute:
    """Base class of the parts that say when to recompute. By default never; the two that do override what differs."""

    whole_streams: ClassVar[bool] = False  # whether a sequence is by default a stream's whole rollout

    def check(self, advantage: Advantage) -> None:
        """Raise ConfigError for an estimator that needs recomputed ratios, or none."""

    def cut(self, steps: Transition, targets: Targets, reward: Array, next_value: Array, length: int) -> Sequences:
        """Cut steps and targets [T, B] into sequences [M, L]."""
        return Sequences(batches.cut(steps, targets, length), None)

    def begin(self, targets: Targets) -> Targets | None:
        """Targets [M, L] that change between gradient steps; None: none do."""
        return None

    def before_epoch(self, recomputation: Recomputation, state: Any) -> Targets:
        """Targets [M, L] of an epoch; `state` is that of the gradient steps (`ppo.DescentState`)."""
        return recomputation.sequences.batch.targets

    def minibatches(self, make: Make, targets: Targets, drawn: MinibatchIndices) -> Any:
        """Inputs of an epoch's gradient steps: all its minibatches, made at once, with fewer operations in the loop."""
        return jax.vmap(lambda one: make(targets, one))(drawn)

    def before_minibatch(self, recomputation: Recomputation, make: Make, state: State, drawn: Any) -> tuple[State, Any]:
        """State with the targets of a gradient step, and its minibatch (`batches.Minibatch`)."""
        return state, drawn


@part
class Never(Recompute):
    """All epochs learn from values and targets of the policy that acted, as in Schulman et al. 2017,
    https://arxiv.org/abs/1707.06347
    """

    def check(self, advantage: Advantage) -> None:
        """Raise ConfigError for V-trace, of either form: all ratios would be 1."""
        instead = {VTrace: ("vtrace", "gae (GAE)"), CanonicalVTrace: ("vtrace_canonical", "td_lambda (TDLambda)")}
        if type(advantage) in instead:
            name, other = instead[type(advantage)]
            raise ConfigError(
                f"advantage {name} with recompute never: every ratio is 1 and corrects nothing; write recompute.part = "
                f'"minibatch" or "epoch" (ppax.recompute.Minibatch() or Epoch()), or use {other}'
            )


@part
class Epoch(Recompute):
    """Values, ratios and targets from the parameters at the start of each epoch, over whole streams."""

    def cut(self, steps: Transition, targets: Targets, reward: Array, next_value: Array, length: int) -> Sequences:
        """Cut steps and targets [T, B], and the inputs of recomputed targets, into sequences [M, L]."""
        batch = batches.cut(steps, targets, length)
        # Keep the final observation of a truncated episode: its row is invalid, but its value is bootstrapped from
        bootstraps = steps.truncated & ~steps.terminated
        observed = steps.valid | jnp.concatenate([jnp.zeros_like(bootstraps[:1]), bootstraps[:-1]])
        reward = zero_rows(steps.valid, reward)
        sequences = to_sequences((zero_rows(observed, steps.obs), reward, next_value), length)
        obs, reward, next_value = sharding.gather(sequences)
        batch = batch._replace(steps=dataclasses.replace(batch.steps, obs=obs))
        return Sequences(batch, Inputs(reward, next_value[:, -1]))

    def before_epoch(self, recomputation: Recomputation, state: Any) -> Targets:
        """Targets [M, L] from the current parameters."""
        return recomputation.over_rollout(state.params)


@part
class Minibatch(Epoch):
    """Values, ratios and targets from the parameters before each gradient step, over the sequences of its minibatch."""

    whole_streams: ClassVar[bool] = True

    def begin(self, targets: Targets) -> Targets | None:
        """Targets [M, L] from the stored values."""
        return targets

    def before_epoch(self, recomputation: Recomputation, state: Any) -> Targets:
        """Targets [M, L], of each sequence as at the last gradient step on it."""
        targets: Targets = state.targets
        return targets

    def minibatches(self, make: Make, targets: Targets, drawn: MinibatchIndices) -> Any:
        """Inputs of an epoch's gradient steps: the indices of their sequences."""
        return drawn

    def before_minibatch(self, recomputation: Recomputation, make: Make, state: State, drawn: Any) -> tuple[State, Any]:
        """State with the targets of the sequences `drawn` computed again, and the minibatch of these sequences."""
        fresh = recomputation.of(state.params, drawn.index)
        targets = jax.tree.map(lambda x, new: x.at[drawn.index].set(new), state.targets, fresh)
        return state._replace(targets=targets), make(targets, drawn)
