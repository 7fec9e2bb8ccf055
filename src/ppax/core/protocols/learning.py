"""Protocols of the parts of PPO's objective and of its gradient steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from jax import Array

from ppax.core.types import Batch, Key, MinibatchIndices, Params, Scalar, Targets, Transition


class Advantage(Protocol):
    """Advantage estimator protocol: advantages and value targets of one stream."""

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] from steps [T], V of each next observation [T] and `ratio` [T].

        `ratio` is the probability of each action under the current policy over that under the policy that acted;
        None: 1.
        """


class PolicyTerms(NamedTuple):
    """Per-row terms of a policy objective, all [N]."""

    loss: Array  # minimised; its mean is the metric `policy_loss`
    log_ratio: Array  # log of the probability ratio, current policy over the policy that acted
    metrics: Mapping[str, Array] = {}  # further diagnostics, logged by name


class Loss(Protocol):
    """Loss protocol: policy objective of each row. Value and entropy terms are added in `losses.base.total_loss`."""

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Terms of rows [N] from the current policy's distribution and the batch; its advantages are standardised.

        Rows are neither masked nor weighted here: `losses.base.total_loss` takes the means.
        """


class LossGradient(NamedTuple):
    """Gradient of a minibatch's loss, all terms included, and metrics by name, [] each."""

    vector: Array  # [P] in the order of `jax.flatten_util.ravel_pytree(params)`
    metrics: Mapping[str, Array] = {}  # logged as means over gradient steps, or as `arrays.metrics.reduced` declares


class GradientRule(Protocol):
    """Gradient protocol: gradient of a gradient step, from that of the minibatch's loss at any parameters."""

    def __call__(
        self, gradient: LossGradient, gradient_at: Callable[[Params], LossGradient], params: Params
    ) -> LossGradient:
        """Gradient [P] for the optimiser, before clipping, and further metrics; those of `gradient` are logged anyway.

        `gradient` is that of the loss at `params`, `gradient_at` computes it at other parameters: a forward and a
        backward pass over the whole minibatch, also with several devices and with gradient accumulation.
        """


class Minibatches(Protocol):
    """Minibatch protocol: draw the sequences of every gradient step of an epoch."""

    @property
    def num_minibatches(self) -> int:
        """Gradient steps in one epoch."""

    def size(self, sequences: int) -> int:
        """Sequences in each minibatch, padding included, from a rollout of `sequences`; ConfigError if impossible."""

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Draw indices [num_minibatches, size] of sequences from a batch [M, L]; index M is padding."""


class Optimizer(Protocol):
    """Optimiser protocol: learning rate -> optax.GradientTransformation."""

    @property
    def elementwise(self) -> bool:
        """Whether the optimiser works on the flattened parameter vector; otherwise it gets the parameter tree."""

    def __call__(self, learning_rate: Scalar) -> Any:
        """Transformation for one learning rate."""


Schedule = Callable[[Any, Array, Array], Any]  # (agent, progress in [0, 1], env-steps so far) -> agent
