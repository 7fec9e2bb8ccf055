"""What the numbers that a network's critic ends in stand for: the protocol of a critic, and its part in an update."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import Array

from ppax.types import Batch, LearnerState, Metrics, Network, Params, PyTree, Scalar


class Rescale(NamedTuple):
    """A change of the critic's last layer: its numbers become scale * numbers + shift."""

    scale: Scalar  # []
    shift: Scalar  # [] or [num_values]


class Adapted(NamedTuple):
    """What a critic keeps now, and how the network's last layer must change for it; None: not at all."""

    state: PyTree
    rescale: Rescale | None


class Critic(Protocol):
    """V of one observation in the network's numbers [num_values], and the loss from which they are learned."""

    @property
    def num_values(self) -> int:
        """Numbers that the network's critic ends in."""

    def init(self) -> Adapted:
        """What a learner keeps at the start, () where nothing; ConfigError where the critic's own numbers cannot be."""

    def value(self, state: PyTree, numbers: Array) -> Array:
        """V []."""

    def error(self, state: PyTree, numbers: Array, target: Array, old_value: Array) -> Array:
        """What is descended for one row; `old_value` is V when the action was taken, `target` its goal now."""

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """After a rollout with these targets [M, L], before its gradient steps; V of every observation stays."""

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """What a human wants to see of one update."""


def rescaled(network: Network, params: Params, rescale: Rescale | None) -> Params:
    """Parameters with the last layer of the critic changed."""
    return params if rescale is None else network.rescale_value(params, *rescale)


def adapt(critic: Critic, network: Network, learner: LearnerState, targets: Array, valid: Array) -> LearnerState:
    """The learner once its critic has seen a rollout's targets [M, L]; policy and V are what they were."""
    state, rescale = critic.update(learner.critic, targets, valid)
    return learner._replace(params=rescaled(network, learner.params, rescale), critic=state)


def value_losses(critic: Critic, state: PyTree, numbers: Array, batch: Batch) -> Array:
    """The loss of each row [N] of numbers [N, num_values]."""
    return jax.vmap(critic.error, (None, 0, 0, 0))(state, numbers, batch.targets.value, batch.steps.value)


def clipped_value_loss(
    value: Array, target: Array, old_value: Array, value_clip: Scalar | None, huber_delta: Scalar | None
) -> Array:
    """0.5 (V - R)^2, or Huber's loss; with `value_clip` the worse of V and of V clipped around the old value."""
    error = _half_square(value - target, huber_delta)
    if value_clip is None:
        return error
    near = old_value + jnp.clip(value - old_value, -value_clip, value_clip)
    return jnp.maximum(error, _half_square(near - target, huber_delta))


def _half_square(error: Array, huber_delta: Scalar | None) -> Array:
    if huber_delta is None:
        return 0.5 * error**2
    # Huber 1964: a straight line beyond delta, so that the gradient is bounded there and never 0
    inside = jnp.minimum(jnp.abs(error), huber_delta)
    return inside * (jnp.abs(error) - 0.5 * inside)
