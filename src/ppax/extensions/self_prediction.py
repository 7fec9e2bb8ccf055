"""Self-prediction: the features of the next observation, predicted from those of a step and its action.

Schwarzer et al. 2021, https://arxiv.org/abs/2007.05929

Eq. 5 there: the negative cosine similarity, here with 1 added. Differences: one step ahead (the paper's K = 5), and the
target is the current encoder behind a stop-gradient, as in the paper with tau = 0, without projections.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.core.types import ExtensionState, Key, PyTree, Rollout, Scalar, number, part, static
from ppax.extensions.prediction import init_model, predicted
from ppax.ppo.extension import Before, Extension, Rows, Terms
from ppax.ppo.following import Following, following_in_episode
from ppax.ppo.forward import step_shapes

LEAST = 1e-12  # added to squared lengths: the features of a row may all be 0


@part
class SelfPrediction(Extension):
    """Prediction of the next observation's features from features and action. Schwarzer et al. 2021,
    https://arxiv.org/abs/2007.05929

    coef * (1 - cosine of prediction and target), mean over the torsos; no gradient passes through the target.
    """

    coef: Scalar = number("weight of the distance between predicted and next features", default=0.5, low=0.0)
    hidden: tuple[int, ...] = static("widths of the predictor's hidden layers", default=(64,), low=1)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return the predictor's parameters."""
        shapes_key, model_key = jax.random.split(key)
        features = step_shapes(agent.network, observation_space, shapes_key).encoded
        outputs = sum(math.prod(x.shape) for x in jax.tree.leaves(features))
        return ExtensionState(params=init_model(agent.network, observation_space, self.hidden, outputs, model_key))

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Find the observation after each step [T, B]."""
        return Before(state, reward, following_in_episode(rollout))

    def terms(self, rows: Rows) -> Terms:
        """Terms of rows [N]; 0 where the next observation is not known."""
        after: Following = rows.extras
        targets = jax.lax.stop_gradient(jax.tree.leaves(rows.encode(after.obs)))
        targets = [x.reshape(x.shape[0], -1) for x in targets]
        ends = list(itertools.accumulate(x.shape[1] for x in targets))
        guesses = jnp.split(predicted(self.hidden, rows), ends[:-1], axis=1)
        distances = [1.0 - cosine(x, y) for x, y in zip(guesses, targets, strict=True)]
        distance = jnp.where(after.known, jnp.stack(distances).mean(axis=0), 0.0)
        return Terms({"self_prediction_loss": self.coef * distance})


def cosine(x: Array, y: Array) -> Array:
    """Cosine similarity of rows [N, n]."""
    squares = (jnp.square(x).sum(axis=1) + LEAST) * (jnp.square(y).sum(axis=1) + LEAST)
    return (x * y).sum(axis=1) * jax.lax.rsqrt(squares)
