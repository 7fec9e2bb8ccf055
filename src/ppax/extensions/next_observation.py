"""Prediction of the next observation from the features of a step and its action.

Oh et al. 2015, https://arxiv.org/abs/1507.08750; as an auxiliary task, as those of Jaderberg et al. 2017,
https://arxiv.org/abs/1611.05397. One step ahead; the squared error over all numbers of the observation.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.core.types import ConfigError, ExtensionState, Key, PyTree, Rollout, Scalar, number, part, static
from ppax.extensions.prediction import init_model, predicted
from ppax.ppo.extension import Before, Extension, Rows, Terms
from ppax.ppo.following import Following, following_in_episode
from ppax.ppo.forward import example_of


@part
class NextObservation(Extension):
    """Prediction of the next observation from features and action. Oh et al. 2015, https://arxiv.org/abs/1507.08750

    coef * mean squared error over the numbers of the observation, as the network gets them; bytes in units of 255,
    categories left out.
    """

    coef: Scalar = number("weight of the mean squared error of the predicted observation", default=0.5, low=0.0)
    hidden: tuple[int, ...] = static("widths of the predictor's hidden layers", default=(64,), low=1)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return the predictor's parameters; ConfigError for observations of categories alone."""
        example = example_of(observation_space)
        outputs = sum(x.size for x in numbers(example, example))
        if not outputs:
            raise ConfigError(
                f"next_observation predicts numbers, and {observation_space} has categories only; use self_prediction"
            )
        return ExtensionState(params=init_model(agent.network, observation_space, self.hidden, outputs, key))

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Find the observation after each step [T, B]."""
        return Before(state, reward, following_in_episode(rollout))

    def terms(self, rows: Rows) -> Terms:
        """Terms of rows [N]; 0 where the next observation is not known."""
        after: Following = rows.extras
        leaves = numbers(after.obs, rows.inputs(after.obs))
        target = jnp.concatenate([x.reshape(x.shape[0], -1) for x in leaves], axis=1)
        error = jnp.square(predicted(self.hidden, rows) - target).mean(axis=1)
        return Terms({"next_observation_loss": self.coef * jnp.where(after.known, error, 0.0)})


def numbers(obs: PyTree, inputs: PyTree) -> list[Array]:
    """Entries of an observation that are numbers, floating point or bytes, as they are in `inputs`; bytes / 255.

    The space decides, not the network's inputs: normalisation turns categories into floating point.
    """
    pairs = zip(jax.tree.leaves(obs), jax.tree.leaves(inputs), strict=True)
    found = [y for x, y in pairs if x.dtype == jnp.uint8 or jnp.issubdtype(x.dtype, jnp.floating)]
    return [y / 255 if y.dtype == jnp.uint8 else y for y in found]
