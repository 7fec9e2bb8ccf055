"""Symmetry: the policy mirrors its action in a mirrored state. Mittal et al. 2024, https://arxiv.org/abs/2403.04359

Section III of the paper: data augmentation, which adds the loss over mirrored transitions; and the mirror loss of Yu et
al. 2018, https://arxiv.org/abs/1801.08093, eq. 4. A mirrored row keeps advantage, value target and the log-probability
of the action in the original: the policy that acted is taken to be symmetric.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import Batch, ConfigError, ExtensionState, Key, Scalar, number, part, static
from ppax.distributions import BallNormal, Beta, Categorical, Normal, SquashedNormal
from ppax.distributions.boxes import along
from ppax.ppo.extension import Extension, Rows, Terms
from ppax.ppo.losses import acting_weight, weighted


@part
class Symmetry(Extension):
    """Symmetry by data augmentation and by a mirror loss, for vectors of observations. Mittal et al. 2024,
    https://arxiv.org/abs/2403.04359

    A mirror image is given as a list of signed places, counted from 1: [-2, -1] has minus the second element, then
    minus the first. Applied twice, an image must change nothing. Actions are vectors of a Box, mirrored around its
    centre, or one Discrete choice, whose image is a permutation. For networks without memory.
    """

    observation: tuple[int, ...] = static("mirror image of an observation: signed places, counted from 1", default=())
    action: tuple[int, ...] = static(
        "mirror image of an action: signed places, counted from 1; for Discrete a permutation of the choices",
        default=(),
    )
    augmentation_coef: Scalar | None = number(
        "weight of the loss over mirrored rows, added to that over the rows; none: off", default=1.0, low=0.0
    )
    mirror_coef: Scalar | None = number(
        "weight of the mirror loss: distance of mirrored rows' actions from the mirrored actions; none: off",
        default=None,
        low=0.0,
    )

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return an empty state; ConfigError where the image of categories (MultiDiscrete, MultiBinary) has a minus."""
        categories = isinstance(observation_space, spaces.MultiDiscrete | spaces.MultiBinary)
        if categories and any(place < 0 for place in self.observation):
            raise ConfigError(
                f"symmetry.observation = {list(self.observation)}: observations of {observation_space} are categories, "
                f"which have no sign; nearest valid value: {[abs(place) for place in self.observation]}"
            )
        return ExtensionState()

    def terms(self, rows: Rows) -> Terms:
        """Return the augmentation loss and the mirror loss of each row, [N] each; one whose weight is none is left out.

        The mirror loss, and the policy's share of the other, are 0 in rows whose action mask allows no action.
        Raises ConfigError where the mirror images do not fit observations or actions.
        """
        mirrored, losses = self._mirrored(rows), {}
        if self.augmentation_coef is not None:
            losses["augmentation_loss"] = self.augmentation_coef * rows.losses(mirrored)
        if self.mirror_coef is not None:
            # a mean over rows that allow an action: in the others the first action is certain, whose image is not
            distance = weighted(self._distance(rows, mirrored), acting_weight(rows.batch))
            losses["mirror_loss"] = self.mirror_coef * distance
        return Terms(losses)

    def _mirrored(self, rows: Rows) -> Batch:
        """Return the rows [N] with observations, actions and action masks mirrored, and all else as it is.

        Raises ConfigError where the mirror images do not fit, for networks with memory, and for minibatches with
        importance weights, such as those of `Prioritised`.
        """
        batch, steps, mask = rows.batch, rows.batch.steps, rows.batch.steps.action_mask
        _check_vectors(steps.obs, self.observation)
        if jax.tree.leaves(steps.carry):
            raise ConfigError("symmetry is for networks without memory, whose carry has no mirror image")
        if batch.weights is not None and batch.weights.value is not None:
            raise ConfigError("symmetry has no importance weights: use minibatch = shuffle")
        distribution = rows.policy.distribution
        obs, action = mirror(steps.obs, self.observation), mirror_action(distribution, steps.action, self.action)
        if mask is not None and isinstance(distribution, Categorical):  # that of a Box allows every action
            mask = mask[:, _places(self.action)]
        return batch._replace(steps=dataclasses.replace(steps, obs=obs, action=action, action_mask=mask))

    def _distance(self, rows: Rows, mirrored: Batch) -> Array:
        """Return the mirror loss of each row, [N]: how far the policy is from symmetric.

        The policy in the mirrored row, which is in `mirrored`, is compared with the mirror image of the policy in the
        original row. This image is the target: no gradient passes through it. For actions of a Box the loss is the mean
        squared difference of the most probable actions, for Discrete a KL divergence.
        """
        batch = rows.batch
        own = rows.forward(batch.steps.obs, batch.steps.action_mask).distribution
        image = rows.forward(mirrored.steps.obs, mirrored.steps.action_mask).distribution
        if not isinstance(own, Categorical):
            wanted = jax.lax.stop_gradient(mirror_action(own, own.mode(), self.action))
            return jnp.square(image.mode() - wanted).mean(axis=-1)
        wanted = jax.lax.stop_gradient(_log_probs(own, range(len(self.action)), batch))
        reached = _log_probs(image, np.argsort(_places(self.action)).tolist(), batch)
        return (jnp.exp(wanted) * (wanted - reached)).sum(axis=0)


def _log_probs(distribution: Any, choices: Sequence[int], batch: Batch) -> Array:
    """Return the log-probabilities [n, N] of n `choices` in each of the N rows of `batch`."""
    shape = batch.steps.valid.shape
    return jnp.stack([distribution.log_prob(jnp.full(shape, choice)) for choice in choices])


def mirror(x: Array, image: tuple[int, ...]) -> Array:
    """Return the mirror image of vectors [..., n]; `image` has signed places, counted from 1.

    So [-2, -1] has minus the second element, then minus the first.
    """
    return x[..., _places(image)] * jnp.asarray(np.broadcast_to(np.sign(image), x.shape), x.dtype)


def mirror_action(distribution: Any, action: Array, image: tuple[int, ...]) -> Array:
    """Return the mirror image of actions [N, ...]: mirrored around their Box's centre, or a permutation of choices.

    `action` is as `distribution` samples it. Raises ConfigError where `image` does not fit the actions, and for
    distributions that cannot be mirrored.
    """
    if isinstance(distribution, Categorical):
        _check_image("action", image, distribution.logits.shape[-1], signs=False)
        # the image of choice a is the place where a stands
        return jnp.asarray(np.argsort(_places(image)))[action]
    if not isinstance(distribution, Normal | SquashedNormal | BallNormal | Beta):
        raise ConfigError(
            f"symmetry mirrors vectors of one Box and one Discrete choice, not the actions of a "
            f'{type(distribution).__name__}; write a part of your own (page "Write a part of your own")'
        )
    low, high = np.asarray(distribution.low), np.asarray(distribution.high)
    _check_image("action", image, len(low), signs=True)
    middle = middle_of(low, high)
    _check_box(low, high, middle, image)
    if isinstance(distribution, Normal):
        centre = along(middle, action.ndim)
    else:  # stored before tanh, which maps 0 to the centre, or as shares of the width
        centre = along(np.full(len(low), 0.5 if isinstance(distribution, Beta) else 0.0), action.ndim)
    return mirror(action - centre, image) + centre


def middle_of(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the centre [n] of a Box: where an element has only one bound, that bound; where it has none, 0."""
    lower = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high, 0.0))
    return lower / 2 + np.where(np.isfinite(high), high, lower) / 2


def _places(image: tuple[int, ...]) -> np.ndarray:
    return np.abs(np.array(image, int)) - 1


def _check_vectors(obs: Any, image: tuple[int, ...]) -> None:
    """Raise ConfigError unless observations are vectors [N, n] of which `image` can be the mirror image."""
    if not isinstance(obs, jax.Array) or obs.ndim != 2:
        raise ConfigError("symmetry mirrors vectors; here the observation has another form")
    _check_image("observation", image, obs.shape[-1], signs=True)
    if jnp.issubdtype(obs.dtype, jnp.unsignedinteger) and min(image) < 0:
        raise ConfigError(
            f"symmetry.observation = {list(image)}: observations are {obs.dtype}, which have no negative numbers; "
            "return floating-point numbers around 0 from the environment"
        )


def _check_image(field: str, image: tuple[int, ...], size: int, signs: bool) -> None:
    """Raise ConfigError unless `image` has each place from 1 to `size` once and, applied twice, changes nothing.

    `field` is the option's name in the message; `signs` says whether places may have a sign.
    """
    wanted = list(range(1, size + 1))
    if sorted(map(abs, image)) != wanted or (not signs and min(image) < 0):
        form = "with a sign; nothing mirrored is" if signs else "a permutation of the choices; nothing mirrored is"
        raise ConfigError(
            f"symmetry.{field} = {list(image)}: must have each place from 1 to {size} once, {form} {wanted}"
        )
    twice = np.eye(size)[_places(image)] * np.sign(image)[:, None]
    if not np.array_equal(twice @ twice, np.eye(size)):
        what = "a vector" if signs else "a choice"
        raise ConfigError(f"symmetry.{field} = {list(image)}: mirrored twice, {what} must be itself again")


def _check_box(low: np.ndarray, high: np.ndarray, middle: np.ndarray, image: tuple[int, ...]) -> None:
    """Raise ConfigError unless the mirror image maps a Box to itself.

    `low` and `high` are its bounds, and `middle` its centre, [n] each.
    """
    below, above, places, negative = low - middle, high - middle, _places(image), np.sign(image) < 0
    lowest = np.where(negative, -above[places], below[places])
    highest = np.where(negative, -below[places], above[places])
    fits = np.isclose(lowest, below, 1e-5) & np.isclose(highest, above, 1e-5)
    if not fits.all():
        to = int(np.argmin(fits))
        source = int(places[to])
        raise ConfigError(
            f"symmetry.action = {list(image)}: does not map the Box of actions to itself: element {source + 1} has "
            f"the bounds {low[source]:g} and {high[source]:g}, its image, element {to + 1}, {low[to]:g} and "
            f"{high[to]:g}; must be of equal width, and with two bounds or none where the sign is minus"
        )
