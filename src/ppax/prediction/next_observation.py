"""Prediction of the next observation from the features of a step and its action.

Oh et al. 2015, https://arxiv.org/abs/1507.08750; as an auxiliary task, as those of Jaderberg et al. 2017,
https://arxiv.org/abs/1611.05397. One step ahead; the squared error over all numbers of the observation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.learning.following import Following, following_in_episode
from ppax.learning.forward import example_of
from ppax.prediction import model
from ppax.protocols import AuxiliaryTerms, Network
from ppax.types import Batch, ConfigError, Key, Params, PyTree, Rollout, Scalar, number, part, static


@part
class NextObservation:
    """Prediction of the next observation from features and action. Oh et al. 2015, https://arxiv.org/abs/1507.08750

    coef * mean squared error over the numbers of the observation, as the network gets them; bytes in units of 255,
    categories left out.
    """

    coef: Scalar = number("weight of the mean squared error of the predicted observation", default=0.5, low=0.0)
    hidden: tuple[int, ...] = static("widths of the predictor's hidden layers", default=(64,), low=1)

    def init(self, network: Network, observation_space: spaces.Space, key: Key) -> Params:
        """Return the predictor's parameters; ConfigError for observations of categories alone."""
        example = example_of(observation_space)
        outputs = sum(x.size for x in numbers(example, example))
        if not outputs:
            raise ConfigError(
                f"auxiliary: next_observation predicts numbers, and {observation_space} has categories only; "
                "use self_prediction"
            )
        return model.init_model(network, observation_space, self.hidden, outputs, key)

    def inputs(self, rollout: Rollout) -> Following:
        """Return the observation after each step [T, B]."""
        return following_in_episode(rollout)

    def __call__(self, params: Params, features: PyTree, batch: Batch) -> AuxiliaryTerms:
        """Terms of rows [N]; 0 where the next observation is not known."""
        after: Following = batch.steps.auxiliary
        leaves = numbers(after.obs, batch.again.inputs(after.obs))
        target = jnp.concatenate([x.reshape(x.shape[0], -1) for x in leaves], axis=1)
        error = jnp.square(model.predicted(params["auxiliary"], self.hidden, features, batch) - target).mean(axis=1)
        return AuxiliaryTerms({"next_observation_loss": self.coef * jnp.where(after.known, error, 0.0)})


def numbers(obs: PyTree, inputs: PyTree) -> list[Array]:
    """Entries of an observation that are numbers, floating point or bytes, as they are in `inputs`; bytes / 255.

    The space decides, not the network's inputs: normalisation turns categories into floating point.
    """
    pairs = zip(jax.tree.leaves(obs), jax.tree.leaves(inputs), strict=True)
    found = [y for x, y in pairs if x.dtype == jnp.uint8 or jnp.issubdtype(x.dtype, jnp.floating)]
    return [y / 255 if y.dtype == jnp.uint8 else y for y in found]
