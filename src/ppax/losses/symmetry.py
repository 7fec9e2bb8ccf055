"""Symmetry: the policy mirrors its action in a mirrored state. Mittal et al. 2024, https://arxiv.org/abs/2403.04359

Section III there: data augmentation, the loss over mirrored transitions too, and the mirror loss of Yu et al. 2018,
https://arxiv.org/abs/1801.08093, eq. 4. A mirrored row keeps advantage, value target and the log-probability of the
action in the original: the policy that acted is taken to be symmetric.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.protocols import AuxiliaryTerms
from ppax.types import Batch, ConfigError, Params, PyTree, Scalar, number, part, static


@part
class Symmetry:
    """Symmetry by data augmentation and by a mirror loss, for vectors of observations. Mittal et al. 2024,
    https://arxiv.org/abs/2403.04359

    A mirror image is a list of signed places, counted from 1: [-2, 1] has minus the second element, then the first.
    Actions are vectors of a Box around 0, or one Discrete choice, whose image is a permutation. For networks without
    memory.
    """

    observation: tuple[int, ...] = static("mirror image of an observation: signed places, counted from 1", default=())
    action: tuple[int, ...] = static("mirror image of an action, in the same way; Discrete: of the choices", default=())
    augmentation_coef: Scalar | None = number(
        "weight of the loss over mirrored rows, added to that over the rows; none: off", default=1.0, low=0.0
    )
    mirror_coef: Scalar | None = number(
        "weight of the mirror loss: distance of mirrored rows' actions from the mirrored actions; none: off",
        default=None,
        low=0.0,
    )

    def __call__(self, params: Params, features: PyTree, batch: Batch) -> AuxiliaryTerms:
        """Terms of rows [N]; ConfigError where the images do not fit observations or actions."""
        mirrored, losses = self._mirrored(batch), {}
        if self.augmentation_coef is not None:
            losses["augmentation_loss"] = self.augmentation_coef * batch.again.losses(mirrored)
        if self.mirror_coef is not None:
            losses["mirror_loss"] = self.mirror_coef * self._distance(batch, mirrored)
        return AuxiliaryTerms(losses)

    def _mirrored(self, batch: Batch) -> Batch:
        """Mirror observations, actions and action masks of rows [N]."""
        steps = batch.steps
        _check(steps.obs, "observation", self.observation)
        if jax.tree.leaves(steps.carry):
            raise ConfigError("auxiliary: symmetry is for networks without memory, whose carry has no mirror image")
        if batch.weights is not None and batch.weights.value is not None:
            raise ConfigError("auxiliary: symmetry has no importance weights: use minibatch = shuffle")
        mask = None if steps.action_mask is None else steps.action_mask[:, _places(self.action)]
        obs, action = mirror(steps.obs, self.observation), self._mirror_action(steps.action)
        return batch._replace(steps=dataclasses.replace(steps, obs=obs, action=action, action_mask=mask))

    def _mirror_action(self, action: Array) -> Array:
        if jnp.issubdtype(action.dtype, jnp.floating):
            _check(action, "action", self.action)
            return mirror(action, self.action)
        if action.ndim != 1 or min(self.action, default=0) < 1:
            raise ConfigError(
                f"auxiliary.action = {list(self.action)}: one Discrete action takes a permutation of its choices"
            )
        # the image of choice a is the place where a stands: of [2, 3, 1] the second choice becomes the first
        return jnp.asarray(np.argsort(_places(self.action)))[action]

    def _distance(self, batch: Batch, mirrored: Batch) -> Array:
        """Mirror loss of rows [N]; no gradient passes through the original's actions."""
        own = batch.again.forward(batch.steps.obs, batch.steps.action_mask).distribution
        image = batch.again.forward(mirrored.steps.obs, mirrored.steps.action_mask).distribution
        if jnp.issubdtype(batch.steps.action.dtype, jnp.floating):
            wanted = jax.lax.stop_gradient(mirror(own.mode(), self.action))
            return jnp.square(image.mode() - wanted).mean(axis=-1)
        wanted = jax.lax.stop_gradient(_log_probs(own, range(len(self.action)), batch))
        reached = _log_probs(image, np.argsort(_places(self.action)).tolist(), batch)
        return (jnp.exp(wanted) * (wanted - reached)).sum(axis=0)


def _log_probs(distribution: Any, choices: Sequence[int], batch: Batch) -> Array:
    """Log-probabilities [n, N] of each of the `choices` in each row."""
    shape = batch.steps.valid.shape
    return jnp.stack([distribution.log_prob(jnp.full(shape, choice)) for choice in choices])


def mirror(x: Array, image: tuple[int, ...]) -> Array:
    """Mirror image of vectors [..., n], by signed places counted from 1."""
    return x[..., _places(image)] * jnp.asarray(np.broadcast_to(np.sign(image), x.shape), x.dtype)


def _places(image: tuple[int, ...]) -> np.ndarray:
    return np.abs(np.array(image, int)) - 1


def _check(x: Any, field: str, image: tuple[int, ...]) -> None:
    """Raise ConfigError unless `x` are vectors [N, n] and `image` has every place once and is its own inverse."""
    size = x.shape[-1] if isinstance(x, jax.Array) and x.ndim == 2 else None
    if size is None:
        raise ConfigError(f"auxiliary: symmetry mirrors vectors; here the {field} has another form")
    unit = np.eye(size)
    if sorted(abs(place) for place in image) != list(range(1, size + 1)):
        raise ConfigError(
            f"auxiliary.{field} = {list(image)}: must have each place from 1 to {size} once, with a "
            f"sign; nothing mirrored is {list(range(1, size + 1))}"
        )
    twice = unit[_places(image)] * np.sign(image)[:, None]
    if not np.array_equal(twice @ twice, unit):
        raise ConfigError(f"auxiliary.{field} = {list(image)}: mirrored twice, a vector must be itself again")
