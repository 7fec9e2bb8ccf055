"""Model of the next step, of extensions that predict it: dense layers from the features and the action of a step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.core.protocols import Network
from ppax.core.types import ConfigError, Key, Params, PyTree
from ppax.distributions import Categorical, Factorised, Joint
from ppax.networks.layers import dense, init_dense, init_layers, layers
from ppax.ppo.extension import Rows
from ppax.ppo.forward import in_float32, step_shapes

ACTIVATION = "relu"


def init_model(
    network: Network, observation_space: spaces.Space, hidden: tuple[int, ...], outputs: int, key: Key
) -> Params:
    """Parameters of the hidden layers and the linear layer after them, for the features of `network`."""
    shapes_key, hidden_key, last_key = jax.random.split(key, 3)
    _, *step = step_shapes(network, observation_space, shapes_key)
    size = jax.eval_shape(inputs_of, *step).shape[0]
    return init_layers(hidden_key, size, hidden) | init_dense(last_key, (size, *hidden)[-1], outputs, 1.0)


def predicted(hidden: tuple[int, ...], rows: Rows) -> Array:
    """Outputs of the model for rows [N]."""
    inputs = jax.vmap(inputs_of)(rows.policy.features, rows.policy.distribution, rows.batch.steps.action)
    return jax.vmap(lambda x: dense(rows.params, layers(rows.params, x, hidden, ACTIVATION)))(inputs)


def inputs_of(features: PyTree, distribution: Any, action: PyTree) -> Array:
    """Input of the model for one step: all features and the action, as one vector."""
    return jnp.concatenate([flat(features), action_vector(distribution, action)])


def action_vector(distribution: Any, action: PyTree) -> Array:
    """One action as a vector: numbers as the environment gets them, choices one-hot.

    ConfigError for choices of a distribution that ppax does not know.
    """
    if isinstance(distribution, Joint):
        parts = distribution.components
        names = parts if isinstance(parts, dict) else range(len(parts))
        return jnp.concatenate([action_vector(parts[name], action[name]) for name in names])  # type: ignore[index]
    component = distribution.component if isinstance(distribution, Factorised) else distribution
    if isinstance(component, Categorical):
        return jax.nn.one_hot(action, component.logits.shape[-1]).reshape(-1)
    received = jax.lax.stop_gradient(distribution.env_action(action))
    if not all(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(received)):
        raise ConfigError(
            f"extensions: the number of choices of a {type(distribution).__name__} is not known; a prediction is for "
            "the distributions of ppax, or actions of floating-point numbers"
        )
    return flat(received)


def flat(tree: PyTree) -> Array:
    """All leaves of one step as one vector."""
    return jnp.concatenate([x.reshape(-1) for x in jax.tree.leaves(in_float32(tree))])
