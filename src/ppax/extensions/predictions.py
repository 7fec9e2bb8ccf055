"""Extensions that train a prediction as an auxiliary task: of the next observation, or of its features."""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.arrays.entries import each_array
from ppax.core.protocols import Network
from ppax.core.types import ConfigError, ExtensionState, Key, Params, PyTree, Rollout, Scalar, number, part, static
from ppax.distributions import Categorical, Factorised, Joint
from ppax.extensions.auxiliary_networks import as_vector
from ppax.extensions.next_observations import Following, following_in_episode
from ppax.networks.layers import dense, init_dense, init_layers, layers
from ppax.ppo.extension import Before, Extension, Rows, Terms, name_of
from ppax.ppo.forward import example_of, step_shapes

ACTIVATION = "relu"
LEAST = 1e-12  # added to squared lengths: the features of a row may all be 0


@part
class NextObservation(Extension):
    """Prediction of the next observation from features and action. Oh et al. 2015, https://arxiv.org/abs/1507.08750

    One step ahead, as an auxiliary task like those of Jaderberg et al. 2017, https://arxiv.org/abs/1611.05397. The term
    of the loss is coef * mean squared error over the elements of the observation, as the network gets them; bytes are
    in units of 255, and categories are left out.
    """

    coef: Scalar = number("weight of the mean squared error of the predicted observation", default=0.5, low=0.0)
    hidden: tuple[int, ...] = static("widths of the predictor's hidden layers", default=(64,), low=1)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return the next-observation predictor's random parameters, and which arrays of an observation it predicts.

        Raises ConfigError if all observations are categories.
        """
        numbers = numbers_of(observation_space)
        outputs = sum(x.size for x in number_leaves(numbers, example_of(observation_space)))
        if not outputs:
            raise ConfigError(
                f"next_observation predicts numbers, and {observation_space} has categories only; use self_prediction"
            )
        return ExtensionState(numbers, init_model(agent.network, observation_space, self.hidden, outputs, key))

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return the observation after each step [T, B] of a rollout, as inputs of `terms`; rewards are unchanged."""
        return Before(state, reward, following_in_episode(rollout))

    def terms(self, rows: Rows) -> Terms:
        """Return coef * the error of the predicted next observation for each row, [N]; 0 where that is not known."""
        after: Following = rows.extras
        leaves = number_leaves(rows.learner.extensions[name_of(self)].state, rows.inputs(after.obs))
        target = jnp.concatenate([x.reshape(x.shape[0], -1) for x in leaves], axis=1)
        error = jnp.square(predicted(self.hidden, rows) - target).mean(axis=1)
        return Terms({"next_observation_loss": self.coef * jnp.where(after.known, error, 0.0)})


@part
class Numbers:
    """Arrays of an observation that are numbers, not categories, by their places among its leaves as a JAX tree."""

    places: tuple[int, ...] = static(default=())


def numbers_of(space: spaces.Space) -> Numbers:
    """Return which arrays of an observation of `space` are numbers: those of a Box, whatever their dtype."""
    are_numbers = jax.tree.leaves(each_array(space, lambda one: isinstance(one, spaces.Box)))
    return Numbers(tuple(i for i, is_number in enumerate(are_numbers) if is_number))


def number_leaves(numbers: Numbers, inputs: PyTree) -> list[Array]:
    """Return those arrays of `inputs`, an observation as the network gets it, that are `numbers`, as float32.

    Bytes are divided by 255.
    """
    leaves = jax.tree.leaves(inputs)
    found = [leaves[place] for place in numbers.places]
    return [y / 255 if y.dtype == jnp.uint8 else y.astype(jnp.float32) for y in found]


@part
class SelfPrediction(Extension):
    """Prediction of the next observation's features from features and action.

    Schwarzer et al. 2021, https://arxiv.org/abs/2007.05929. The term of the loss is coef * (1 - cosine of prediction
    and target), a mean over the networks of actor and critic: eq. 5 of the paper plus 1. Targets are features of the
    current encoder behind a stop-gradient, as in the paper's variant tau = 0, which has no moving average of the
    encoder. Unlike in the paper, prediction is one step ahead, not K = 5, and there are no projections. A network of
    one module that returns (policy, value) has no other features than these outputs, which are then predicted.
    """

    coef: Scalar = number("weight of the distance between predicted and next features", default=0.5, low=0.0)
    hidden: tuple[int, ...] = static("widths of the predictor's hidden layers", default=(64,), low=1)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return the feature predictor's random parameters, for the features of the agent's network."""
        shapes_key, model_key = jax.random.split(key)
        features = step_shapes(agent.network, observation_space, shapes_key).encoded
        outputs = sum(math.prod(x.shape) for x in jax.tree.leaves(features))
        return ExtensionState(params=init_model(agent.network, observation_space, self.hidden, outputs, model_key))

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return the observation after each step [T, B] of a rollout, as inputs of `terms`; rewards are unchanged."""
        return Before(state, reward, following_in_episode(rollout))

    def terms(self, rows: Rows) -> Terms:
        """Return coef * the error of the predicted next features for each row, [N]; 0 where these are not known."""
        after: Following = rows.extras
        targets = jax.lax.stop_gradient(jax.tree.leaves(rows.encode(after.obs)))
        targets = [x.reshape(x.shape[0], -1) for x in targets]
        ends = list(itertools.accumulate(x.shape[1] for x in targets))
        guesses = jnp.split(predicted(self.hidden, rows), ends[:-1], axis=1)
        distances = [1.0 - cosine(x, y) for x, y in zip(guesses, targets, strict=True)]
        distance = jnp.where(after.known, jnp.stack(distances).mean(axis=0), 0.0)
        return Terms({"self_prediction_loss": self.coef * distance})


def cosine(x: Array, y: Array) -> Array:
    """Return the cosine similarity [N] of each row of `x` [N, n] and the same row of `y`."""
    squares = (jnp.square(x).sum(axis=1) + LEAST) * (jnp.square(y).sum(axis=1) + LEAST)
    return (x * y).sum(axis=1) * jax.lax.rsqrt(squares)


def init_model(
    network: Network, observation_space: spaces.Space, hidden: tuple[int, ...], outputs: int, key: Key
) -> Params:
    """Return random parameters of a predictor: hidden layers, and a linear layer with `outputs` outputs.

    Its input is a vector of the features of `network` and an action.
    """
    shapes_key, hidden_key, last_key = jax.random.split(key, 3)
    _, *step = step_shapes(network, observation_space, shapes_key)
    size = jax.eval_shape(inputs_of, *step).shape[0]
    return init_layers(hidden_key, size, hidden) | init_dense(last_key, (size, *hidden)[-1], outputs, 1.0)


def predicted(hidden: tuple[int, ...], rows: Rows) -> Array:
    """Return the predictor's outputs for the rows [N] of a minibatch, from the rows' features and actions.

    `hidden` are the widths of its hidden layers.
    """
    inputs = jax.vmap(inputs_of)(rows.policy.features, rows.policy.distribution, rows.batch.steps.action)
    return jax.vmap(lambda x: dense(rows.params, layers(rows.params, x, hidden, ACTIVATION)))(inputs)


def inputs_of(features: PyTree, distribution: Any, action: PyTree) -> Array:
    """Return the predictor's input for one step: all features and the action, as one vector."""
    return jnp.concatenate([as_vector(features), action_vector(distribution, action)])


def action_vector(distribution: Any, action: PyTree) -> Array:
    """Return one action as a vector: numbers as the environment gets them, discrete choices one-hot.

    Raises ConfigError for discrete actions of a user's own distribution, whose number of choices is not known.
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
    return as_vector(received)
