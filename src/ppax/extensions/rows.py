"""Networks that read one observation each, and their training on the rows of a rollout by an optimiser of their own.

A network is the encoder of the agent's own one, drawn again, with layers after it; a memory is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.core.protocols import Network
from ppax.core.types import Key, LossOutput, Params, PyTree
from ppax.devices import sharding
from ppax.devices.layout import Program, only_if
from ppax.networks.layers import dense, init_dense, init_layers, layers
from ppax.ppo.forward import example_of, in_float32
from ppax.ppo.gradients import mean_gradient
from ppax.ppo.minibatches import permutation


class Training(NamedTuple):
    """Carry of the scan over gradient steps."""

    vector: Array  # [P] parameters
    opt_state: PyTree


class Fitted(NamedTuple):
    """Result of `fit`."""

    params: Params
    opt_state: PyTree
    loss: Array  # [] mean over the gradient steps


def size(network: Network, params: Params, observation_space: spaces.Space) -> int:
    """Number of features that the encoder gives for an observation of the space."""
    shape = jax.eval_shape(lambda: encoded(network, params, example_of(observation_space))).shape
    return int(shape[0])


def init_head(key: Key, size: int, hidden: tuple[int, ...], outputs: int) -> Params:
    """Initial parameters of the hidden layers and the linear layer after an encoder with `size` features."""
    hidden_key, last_key = jax.random.split(key)
    return init_layers(hidden_key, size, hidden) | init_dense(last_key, (size, *hidden)[-1], outputs, 1.0)


def outputs(network: Network, params: Params, hidden: tuple[int, ...], obs: PyTree) -> Array:
    """Outputs of encoder, hidden layers and linear layer for one observation."""
    features = encoded(network, params["encoder"], obs)
    return dense(params["head"], layers(params["head"], features, hidden, "relu"))


def encoded(network: Network, params: Params, obs: PyTree) -> Array:
    """Features of one observation, as one vector."""
    return jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(in_float32(network.encode(params, obs)))])


def mapped(function: Callable[[PyTree], Array], obs: PyTree) -> Array:
    """Return `function` of each of the rows [N] of observations, in chunks that fit the processor's cache."""
    chunk, number = at_once(obs), jax.tree.leaves(obs)[0].shape[0]
    results: Array = jax.vmap(function)(obs) if number <= chunk else jax.lax.map(function, obs, batch_size=chunk)
    return results


def at_once(obs: PyTree) -> int:
    """Number of the rows [N] of observations whose activations fit the processor's cache."""
    return Program().rows(1, "float32", jax.tree.map(lambda x: x[:, None], obs))


def epochs(key: Key, rows: int, num_epochs: int, num_minibatches: int) -> Array:
    """Draw indices [num_epochs * num_minibatches, n] of all rows, once in each epoch; index `rows` is padding."""
    return jnp.concatenate([minibatches(one, rows, num_minibatches) for one in jax.random.split(key, num_epochs)])


def minibatches(key: Key, rows: int, number: int) -> Array:
    """Draw indices [number, n] of all rows once; index `rows` is padding."""
    size, parts = -(-rows // number), sharding.num_parts()
    order = jnp.pad(permutation(key, rows), (0, size * number - rows), constant_values=rows)
    shares = order.reshape(number, size)
    return jnp.pad(shares, ((0, 0), (0, -size % parts)), constant_values=rows)  # padded to a multiple of the devices


def fit(
    row_losses: Callable[[Params, Array], Array],
    optimizer: optax.GradientTransformation,
    params: Params,
    opt_state: PyTree,
    valid: Array,
    index: Array,
    chunk_rows: int,
) -> Fitted:
    """Take a gradient step on each minibatch of `index` [steps, n]: on the mean of its `row_losses` where `valid` [N].

    `row_losses(params, index)` returns those of the rows `index`. A minibatch without a valid row changes nothing.
    """
    vector, to_params = ravel_pytree(params)

    def loss(params: Params, index: Array, valid: Array) -> LossOutput:
        losses = row_losses(params, index)
        mean = jnp.where(valid[:, 0], losses, 0.0).sum() / jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)
        return LossOutput(mean, {"loss": mean})

    def step(before: Training, index: Array) -> tuple[Training, Any]:
        chosen = valid[index] & (index < valid.shape[0])
        gradient, metrics = mean_gradient(loss, to_params(before.vector), index, chosen[:, None], chunk_rows)

        def descend() -> Training:
            updates, opt_state = optimizer.update(gradient, before.opt_state)
            return Training(before.vector + updates, opt_state)

        learned = metrics["loss"], chosen.any()
        return only_if(chosen.any(), descend, before), learned

    trained, (losses, some) = jax.lax.scan(step, Training(vector, opt_state), index)
    mean = jnp.where(some, losses, 0.0).sum() / jnp.maximum(some.sum(), 1)
    return Fitted(to_params(trained.vector), trained.opt_state, mean)
