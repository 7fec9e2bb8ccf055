"""Adversarial motion prior (AMP): a reward for motions like demonstrated ones, by a discriminator. Peng et al. 2021,
https://arxiv.org/abs/2104.02180

Section 5: a discriminator tells pairs of successive observations in demonstrations (target 1) from the policy's (target
-1), by least squares with a penalty on its gradient at demonstrated pairs; the style reward of a step is
max(0, 1 - (D - 1)^2 / 4), and the policy learns from a weighted sum of this and the task's reward. Differences: pairs
are standardised by mean and standard deviation of the demonstrations, and the discriminator learns from the newest
rollout, without a buffer of earlier ones.
"""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from gymnasium import spaces
from jax import Array
from jax.flatten_util import ravel_pytree

from ppax.arrays.entries import find_entries, names_of
from ppax.arrays.sequences import to_rows
from ppax.core.parts import PATH
from ppax.core.types import ConfigError, ExtensionState, Key, Params, PyTree, Rollout, Scalar, number, part, static
from ppax.devices import sharding
from ppax.distributions.boxes import along
from ppax.extensions.auxiliary_networks import map_rows, train_network
from ppax.extensions.imitation.demonstrations import (
    FIELD,
    SEPARATOR,
    Chosen,
    LazyDemonstrations,
    Transitions,
    read_transitions,
)
from ppax.extensions.next_observations import following_in_episode
from ppax.extensions.rnd import mean_reward
from ppax.networks.layers import dense, init_dense, init_layers, layers
from ppax.ppo.extension import Before, Extension
from ppax.ppo.forward import example_of

LEAST_STD = 1e-2  # of a demonstrated entry that hardly changes: other values of it are noticed, and not out of scale
REMEDY = 'demonstrations = "motion.npz"; in Python ppax.imitation.motion_prior(env, demonstrations)'


class MotionPriorState(NamedTuple):
    """State of a motion prior: discriminator, its optimiser's state, and the random key that draws its minibatches."""

    discriminator: Params
    opt_state: PyTree
    key: Key


@part
class MotionPrior(Extension):
    """Adversarial motion prior (AMP): a reward for motions like demonstrated ones. Peng et al. 2021,
    https://arxiv.org/abs/2104.02180

    The reward becomes task_coef * r + style_coef * max(0, 1 - (D - 1)^2 / 4). Here r is the environment's reward
    (scaled if the agent scales rewards) after the changes of the extensions before this one, and D is the output of a
    discriminator for the pair of observations before and after a step. In Python `ppax.imitation.motion_prior` makes
    this part.
    """

    demonstrations: str = static(
        "file .npz with the arrays observations, terminations and truncations, as Minari's",
        default="",
        outside=PATH,
    )
    checksum: str = static(
        "SHA-256 of the demonstrations, which ppax writes into the run file: others are refused", default=""
    )
    entries: tuple[str, ...] = static(
        'entries of observations that the discriminator reads, as "3" or "4:7" of a vector, "joints" or "state.4:7" of '
        "a Dict; (): all",
        default=(),
    )
    task_coef: Scalar = number("weight of the task's reward, the reward so far", default=0.5, low=0.0)
    style_coef: Scalar = number("weight of the style reward, which is from 0 to 1", default=0.5, low=0.0)
    gradient_penalty: Scalar = number(
        "weight of the squared norm of the discriminator's gradient at demonstrated pairs", default=1.0, low=0.0
    )
    learning_rate: Scalar = number("learning rate of the discriminator", default=1e-3, low=0.0)
    num_epochs: int = static("passes of the discriminator over each rollout", default=1, low=1)
    num_minibatches: int = static("gradient steps of the discriminator in one pass", default=4, low=1)
    hidden: tuple[int, ...] = static("widths of the discriminator's hidden layers", default=(64, 64), low=1)
    clip: float = static("clip range of standardised entries, in standard deviations", default=5.0, above=0.0)
    data: LazyDemonstrations[Transitions] | None = static(
        "the demonstrations, as `motion_prior` holds them", default=None
    )

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return the motion prior's first state: a random discriminator.

        Raises ConfigError for an entry that the observations do not have, and without demonstrations.
        """
        if self.data is None:
            raise ConfigError(f"{FIELD}: a motion prior needs demonstrations: {REMEDY}")
        size = 2 * sum(len(one.places) for one in chosen_entries(example_of(observation_space), self.entries))
        hidden_key, last_key, own_key = jax.random.split(key, 3)
        params = init_layers(hidden_key, size, self.hidden) | init_dense(last_key, (size, *self.hidden)[-1], 1, 1.0)
        opt_state = self._optimizer().init(ravel_pytree(params)[0])
        return ExtensionState(MotionPriorState(params, opt_state, own_key))

    def before(self, agent: Any, state: MotionPriorState, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return the weighted sum of task and style rewards [T, B], and the state after the discriminator's training.

        Style rewards are those of the discriminator before it learns from this rollout. A step has none where the
        observation after it in the same episode is not known, as at an episode's end where a host environment resets in
        the same step.
        """
        after, known = following_in_episode(rollout)
        pairs = jnp.concatenate([self._standardised(self._read(obs)) for obs in (rollout.steps.obs, after)], axis=-1)
        outputs = self._outputs(state.discriminator, to_rows(pairs)).reshape(known.shape)
        style = jnp.where(known, jnp.maximum(0.0, 1.0 - 0.25 * jnp.square(outputs - 1.0)), 0.0)
        # a copy: the same state is used again where an iteration is discarded
        key, draw_key, own_key = jax.random.split(jax.random.clone(state.key), 3)
        rows, valid = (to_rows(x) for x in sharding.gather((pairs, known), axis=1))
        demonstrated = self._demonstrated(draw_key, len(valid))
        trained = train_network(
            partial(self._row_losses, demonstrated),
            self._optimizer(),
            state.discriminator,
            state.opt_state,
            rows,
            valid,
            self.num_epochs,
            self.num_minibatches,
            own_key,
        )
        metrics = {
            "style_reward": mean_reward(style, known),
            "discriminator_loss": trained.loss,
            "discriminator_output": mean_reward(outputs, known),
        }
        state = MotionPriorState(trained.params, trained.opt_state, key)
        return Before(state, self.task_coef * reward + self.style_coef * style, metrics=metrics)

    def _row_losses(self, demonstrated: Array, params: Params, pairs: Array, index: Array) -> Array:
        """Return the discriminator's loss for each of the policy's `pairs` [n, 2 k], each with one demonstrated pair.

        `demonstrated` [N, 2 k] has a demonstrated pair for every row of the rollout, and `index` [n] are the indices of
        the rows of `pairs`.
        """

        def one(pair: Array, shown: Array) -> Array:
            output, gradient = jax.value_and_grad(partial(self._output, params))(shown)
            errors = jnp.square(output - 1.0) + jnp.square(self._output(params, pair) + 1.0)
            return errors + self.gradient_penalty * jnp.square(gradient).sum()

        losses: Array = jax.vmap(one)(pairs, demonstrated[jnp.minimum(index, len(demonstrated) - 1)])
        return losses

    def _output(self, params: Params, pair: Array) -> Array:
        """Return the discriminator's output D, [], for one standardised pair of observations, [2 k]."""
        return dense(params, layers(params, pair, self.hidden, "relu"))[0]

    def _outputs(self, params: Params, pairs: Array) -> Array:
        return map_rows(partial(self._output, params), pairs)

    def _read(self, obs: PyTree) -> Array:
        """Return the entries of observations [T, B, ...] that the discriminator reads, [T, B, k]."""
        sample = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[2:], x.dtype), obs)
        chosen = chosen_entries(sample, self.entries)
        arrays = dict(zip(names_of(sample, SEPARATOR), jax.tree.leaves(obs), strict=True))
        flat = [
            arrays[one.name].reshape(*arrays[one.name].shape[:2], -1)[..., np.asarray(one.places)] for one in chosen
        ]
        return jnp.concatenate([x.astype(jnp.float32) for x in flat], axis=-1)

    def _standardised(self, x: Array) -> Array:
        """Return entries of observations [..., k] standardised by mean and std of the demonstrations, and clipped."""
        shown = self._rows().obs.astype(np.float64)
        mean, std = shown.mean(axis=0), np.maximum(shown.std(axis=0), LEAST_STD)
        mean, std = (along(one.astype(np.float32), x.ndim) for one in (mean, std))
        scaled = (x - mean) / std
        return jnp.clip(scaled, -self.clip, self.clip)

    def _demonstrated(self, key: Key, size: int) -> Array:
        """Return `size` standardised pairs of the demonstrations, drawn at random, [size, 2 k]."""
        rows = self._rows()
        drawn = jax.random.randint(key, (size,), 0, rows.size)
        before, after = (self._standardised(jnp.asarray(x)[drawn]) for x in (rows.obs, rows.following))
        return jnp.concatenate([before, after], axis=-1)

    def _rows(self) -> Transitions:
        assert self.data is not None  # `init` has checked it
        return self.data.rows()

    def _optimizer(self) -> optax.GradientTransformation:
        return optax.adam(self.learning_rate)


def motion_prior(
    env: Any, demonstrations: Any = "", checksum: str = "", entries: tuple[str, ...] = (), **options: Any
) -> MotionPrior:
    """Return the extension that rewards motions like those in `demonstrations`, for the observations of `env`.

    `demonstrations` is the path of an .npz file, or a mapping, with the arrays `observations`, `terminations` and
    `truncations`, episodes one after the other. `entries` are texts such as "joints" or "joints.4:7", which select what
    the discriminator reads of an observation; () selects all. `observations` may have the selected elements alone.
    `options` are the other fields of `MotionPrior`. A path is kept in the run file, and read again when the run is
    continued; arrays have to be passed again. `checksum` is the SHA-256 of the demonstrations, which ppax writes into
    the run file; leave it out in your own calls. With a `checksum`, demonstrations are read only when they are first
    needed, and ConfigError is raised then if their checksum differs. Raises ConfigError, naming the array, where one
    does not fit the observations, and for a missing file.
    """
    path = os.path.abspath(demonstrations) if isinstance(demonstrations, str | Path) and str(demonstrations) else ""
    if not path and isinstance(demonstrations, str):
        raise ConfigError(f'{FIELD} = "": must be {REMEDY}')
    chosen = chosen_entries(example_of(env.observation_space), tuple(entries))
    load = partial(read_transitions, path or demonstrations, chosen)
    data = None if checksum else load()
    known = checksum if data is None else data.checksum
    lazy: LazyDemonstrations[Transitions] = LazyDemonstrations(known, load, data)
    return MotionPrior(path, known if path else "", tuple(entries), data=lazy, **options)


def chosen_entries(obs: PyTree, chosen: tuple[str, ...]) -> list[Chosen]:
    """Return which elements of each array of an observation the texts `chosen` select; () selects all elements.

    A text is as in `find_entries`, such as "joints" or "joints.4:7". Arrays without a selected element are left out.
    `obs` is an example of one observation; only its shapes are read. Raises ConfigError, which has the nearest name,
    for an entry that does not exist.
    """
    shapes = dict(zip(names_of(obs), (x.shape for x in jax.tree.leaves(obs)), strict=True))
    places: dict[str, set[int]] = {name: set() for name in shapes}
    for text in chosen:
        for name, where in find_entries(text, shapes, "motion_prior.entries").items():
            places[name].update(range(math.prod(shapes[name]))[where])
    if not chosen:
        places = {name: set(range(math.prod(shape))) for name, shape in shapes.items()}
    in_files = names_of(obs, SEPARATOR)
    return [
        Chosen(name, shape, tuple(sorted(found)))
        for name, shape, found in zip(in_files, shapes.values(), places.values(), strict=True)
        if found
    ]
