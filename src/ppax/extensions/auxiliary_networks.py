"""Networks of extensions, such as RND's predictor: from one observation to outputs, trained on a rollout's rows.

Such a network has an encoder like that of the agent's own network, with parameters of its own, and layers after it, but
no memory. It has an optimiser of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

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


def init_network(
    network: Network,
    observation_space: spaces.Space,
    encoder: Params,
    hidden: tuple[int, ...],
    outputs: int,
    key: Key,
) -> Params:
    """Return initial parameters of an extension's own network: `encoder` as it is given, and random layers after it.

    `encoder` has the parameters, which the caller has drawn, of an encoder like the agent's: `encode` of the agent's
    `network` takes them. Hidden layers of the widths `hidden` follow, then a linear layer with `outputs` outputs.
    """
    features = jax.eval_shape(lambda: as_vector(network.encode(encoder, example_of(observation_space))))
    hidden_key, last_key = jax.random.split(key)
    size = features.shape[0]
    head = init_layers(hidden_key, size, hidden) | init_dense(last_key, (size, *hidden)[-1], outputs, 1.0)
    return {"encoder": encoder, "head": head}


def network_outputs(network: Network, params: Params, hidden: tuple[int, ...], obs: PyTree) -> Array:
    """Return the outputs [n] of an extension's network for one observation: encoder, hidden layers and linear layer.

    `network` is the agent's; its method `encode` is used with the encoder's parameters in `params`, which are as
    `init_network` returns them.
    """
    features = as_vector(network.encode(params["encoder"], obs))
    return dense(params["head"], layers(params["head"], features, hidden, "relu"))


def as_vector(tree: PyTree) -> Array:
    """Return all arrays of `tree`, which belong to one step, joined to one float32 vector."""
    return jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(in_float32(tree))])


def map_rows(function: Callable[[PyTree], Array], obs: PyTree) -> Array:
    """Return the results of `function` for each row of the observations [N, ...], stacked along a first axis N.

    Rows are computed in chunks of `rows_at_once`.
    """
    chunk, number = rows_at_once(obs), jax.tree.leaves(obs)[0].shape[0]
    results: Array = jax.vmap(function)(obs) if number <= chunk else jax.lax.map(function, obs, batch_size=chunk)
    return results


def rows_at_once(obs: PyTree) -> int:
    """Return how many rows of the observations [N, ...] a network reads at once, so that activations fit the cache.

    On accelerators, which need no such chunks, the number is limited by memory alone.
    """
    return Program().rows(1, "float32", jax.tree.map(lambda x: x[:, None], obs))


class TrainedNetwork(NamedTuple):
    """Result of `train_network`: parameters and optimiser state after training, and the loss.

    The loss is the mean over the gradient steps.
    """

    params: Params
    opt_state: PyTree
    loss: Array  # [] mean over the gradient steps


def train_network(
    row_losses: Callable[[Params, PyTree, Array], Array],
    optimizer: optax.GradientTransformation,
    params: Params,
    opt_state: PyTree,
    obs: PyTree,
    valid: Array,
    num_epochs: int,
    num_minibatches: int,
    key: Key,
) -> TrainedNetwork:
    """Return a network's parameters after training on the mean of `row_losses` over the rows [N] that are `valid`.

    Training takes `num_epochs` epochs of `num_minibatches` gradient steps. `row_losses(params, obs, index)` returns the
    losses of a minibatch's rows: `index` are the rows' indices among the N rows, and `obs` their observations. A
    minibatch without a valid row changes nothing.
    """
    vector, to_params = ravel_pytree(params)
    epochs = jax.random.split(key, num_epochs)
    batches = jnp.concatenate([minibatches(one, valid.shape[0], num_minibatches) for one in epochs])
    chunk_rows = rows_at_once(obs)

    def loss(params: Params, index: Array, valid: Array) -> LossOutput:
        losses = row_losses(params, jax.tree.map(lambda x: x[index], obs), index)
        mean = jnp.where(valid[:, 0], losses, 0.0).sum() / jnp.maximum(valid.sum(dtype=jnp.float32), 1.0)
        return LossOutput(mean, {"loss": mean})

    def step(before: tuple[Array, PyTree], index: Array) -> tuple[tuple[Array, PyTree], tuple[Array, Array]]:
        vector, opt_state = before
        chosen = valid[index] & (index < valid.shape[0])
        gradient, metrics = mean_gradient(loss, to_params(vector), index, chosen[:, None], chunk_rows)

        def descend() -> tuple[Array, PyTree]:
            updates, changed = optimizer.update(gradient, opt_state)
            return vector + updates, changed

        return only_if(chosen.any(), descend, before), (metrics["loss"], chosen.any())

    (vector, opt_state), (losses, some) = jax.lax.scan(step, (vector, opt_state), batches)
    mean = jnp.where(some, losses, 0.0).sum() / jnp.maximum(some.sum(), 1)
    return TrainedNetwork(to_params(vector), opt_state, mean)


def minibatches(key: Key, rows: int, number: int) -> Array:
    """Return the minibatches of one epoch as indices of rows, [number, n]; each of the `rows` rows is in one of them.

    The order is random. Entries equal to `rows`, one past the last index, are padding, where `number` does not divide
    `rows` or the devices do not divide a minibatch.
    """
    size, parts = -(-rows // number), sharding.num_parts()
    order = jnp.pad(permutation(key, rows), (0, size * number - rows), constant_values=rows)
    shares = order.reshape(number, size)
    return jnp.pad(shares, ((0, 0), (0, -size % parts)), constant_values=rows)  # padded to a multiple of the devices
