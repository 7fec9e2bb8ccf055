"""Critic protocol: from value-head outputs to V and a loss; and the critic's steps in an update."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.protocols import Critic, Network, Rescale
from ppax.core.types import Batch, Params, PyTree, Scalar


def rescaled(network: Network, params: Params, rescale: Rescale | None) -> Params:
    """Parameters with the value head changed by `rescale`; None: unchanged."""
    return params if rescale is None else network.rescale_value(params, *rescale)


def value_losses(critic: Critic, state: PyTree, value_outputs: Array, batch: Batch) -> Array:
    """Per-row losses of the critic, [N], from value outputs [N, num_values]."""
    return jax.vmap(critic.error, (None, 0, 0, 0))(state, value_outputs, batch.targets.value, batch.steps.value)


def clipped_value_loss(
    value: Array, target: Array, old_value: Array, value_clip: Scalar | None, huber_delta: Scalar | None
) -> Array:
    """Value loss 0.5 (V - R)^2, or Huber loss; with `value_clip` the larger loss of V and of V clipped to old V."""
    error = half_square(value - target, huber_delta)
    if value_clip is None:
        return error
    near = old_value + jnp.clip(value - old_value, -value_clip, value_clip)
    return jnp.maximum(error, half_square(near - target, huber_delta))


def half_square(error: Array, huber_delta: Scalar | None) -> Array:
    """Half the squared error, or with `huber_delta` the Huber loss."""
    if huber_delta is None:
        return 0.5 * error**2
    # Huber 1964: linear beyond delta, so that the gradient is bounded there but does not vanish
    inside = jnp.minimum(jnp.abs(error), huber_delta)
    return inside * (jnp.abs(error) - 0.5 * inside)
