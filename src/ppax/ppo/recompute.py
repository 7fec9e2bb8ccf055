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
    """Inputs of recomputed targets, in addition to the steps."""

    reward: Array  # [M, L] that is learned from
    end_value: Array  # [M] stored V of the observation after each sequence


class Recomputation(NamedTuple):
    """Targets of an update's sequences from current parameters, in place of those of the policy that acted."""

    agent: Any  # PPO
    extensions: Chain
    learner: LearnerState
    steps: Transition  # [M, L]
    inputs: RecomputeInputs | None  # None: nothing is recomputed
    make_minibatch: Callable[[Targets, MinibatchIndices], batches.Minibatch]
    num_steps: int  # of the rollout

    def of(self, params: Params, index: Array) -> Targets:
        """Targets [m, L] of the sequences `index` [m]; the bootstrap value after the end of each is the stored one."""
        chosen = jax.tree.map(lambda x: x[index], (self.steps, self.inputs))
        return self._estimate(params, *chosen)

    def over_rollout(self, params: Params) -> Targets:
        """All targets [M, L], estimated over the whole rollout of each stream; L divides its number of steps."""
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
    """Base class of the parts that say when to recompute. By default never; the two that do override what differs."""

    whole_streams: ClassVar[bool] = False  # whether a sequence is by default a stream's whole rollout

    def check(self, advantage: Advantage) -> None:
        """Raise ConfigError for an estimator that needs recomputed ratios, or none."""

    def inputs(
        self, batch: Batch, steps: Transition, reward: Array, next_value: Array, length: int
    ) -> tuple[Batch, RecomputeInputs | None]:
        """Sequences [M, L], and what recomputed targets need of steps, rewards and next values [T, B]."""
        return batch, None

    def before_epoch(self, recomputation: Recomputation, state: State) -> State:
        """State of the gradient steps (`ppo.DescentState`) with the targets of an epoch."""
        return state

    def before_step(
        self, recomputation: Recomputation, state: State, minibatch: batches.Minibatch
    ) -> tuple[State, batches.Minibatch]:
        """State and minibatch with the targets of a gradient step."""
        return state, minibatch


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

    def inputs(
        self, batch: Batch, steps: Transition, reward: Array, next_value: Array, length: int
    ) -> tuple[Batch, RecomputeInputs | None]:
        """Sequences [M, L] with the observations that recomputed targets read, and their other inputs."""
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
        """State with targets from the current parameters."""
        replaced: State = state._replace(targets=recomputation.over_rollout(state.trained))
        return replaced


@part
class Minibatch(Epoch):
    """Values, ratios and targets from the parameters before each gradient step, over the sequences of its minibatch."""

    whole_streams: ClassVar[bool] = True

    def before_epoch(self, recomputation: Recomputation, state: State) -> State:
        """State as it is: the targets of each sequence are those of the last gradient step on it."""
        return state

    def before_step(
        self, recomputation: Recomputation, state: State, minibatch: batches.Minibatch
    ) -> tuple[State, batches.Minibatch]:
        """State and minibatch with targets from the current parameters for the sequences of this minibatch."""
        index = minibatch.index
        fresh = recomputation.of(state.trained, index)
        targets = jax.tree.map(lambda x, new: x.at[index].set(new), state.targets, fresh)
        return state._replace(targets=targets), recomputation.make_minibatch(targets, minibatch.drawn)
