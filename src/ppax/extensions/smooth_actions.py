"""Smooth actions: the losses of CAPS and L2C2, and metrics of how much actions change from step to step.

CAPS: Mysore et al. 2021, https://arxiv.org/abs/2012.06644. L2C2: Kobayashi 2022, https://arxiv.org/abs/2202.07152. They
are for actions of one Box. Distances are measured between mean actions, in half widths of the Box: from one bound to
the other it is 2, whatever the actions' unit. Elements of an action without two bounds are measured in the actions'
unit.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import masked_mean, to_pairs, to_rows, where_rows
from ppax.core.types import (
    ConfigError,
    ExtensionState,
    Key,
    LearnerState,
    PyTree,
    Rollout,
    Scalar,
    Transition,
    number,
    part,
)
from ppax.distributions import Normal
from ppax.distributions.boxes import along, centre_and_half
from ppax.extensions.next_observations import Following, following_in_episode
from ppax.ppo.extension import After, Before, Extension, Learned, Rows, Terms, extras_of, name_of
from ppax.ppo.forward import example_of, forward_sequences, step_shapes

LEAST = 1e-12  # added to squared distances: the gradient of a root is not finite at 0
SEEDS = 2**31 - 1  # number of seeds of a row's noise
STEPS = 2**24  # number of values of a row's place on the way to the next observation; float32 has all of them


@part
class CAPS(Extension):
    """Penalty on the distance of mean actions in neighbouring observations (CAPS). Mysore et al. 2021,
    https://arxiv.org/abs/2012.06644

    The temporal term is the Euclidean distance from the mean action in the next observation of the episode (eq. 1 of
    the paper), the spatial term that from the mean action in the same observation with normal noise (eq. 2).
    """

    temporal_coef: Scalar | None = number(
        "weight of the distance between the mean actions in an observation and in the next one; none: off",
        default=0.1,
        low=0.0,
    )
    spatial_coef: Scalar | None = number(
        "weight of the distance between the mean actions in an observation and in the same with noise; none: off",
        default=0.1,
        low=0.0,
    )
    noise_std: Scalar = number(
        "standard deviation of the noise on each number of an observation; where the agent standardises observations, "
        "in units of theirs",
        default=0.05,
        low=0.0,
    )

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return an empty state; ConfigError for actions other than those of one Box.

        Also raises it if the spatial term is on and observations have no floating-point numbers, to which noise is
        added.
        """
        require_one_box("caps", agent, observation_space, key)
        if self.spatial_coef is not None:
            require_floats("caps", observation_space, "set caps.spatial_coef to none")
        return ExtensionState()

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return the observation after each step [T, B] of a rollout, as inputs of `terms`; rewards are unchanged.

        With a memory there are no such inputs: the next mean action is that of the next row of a sequence.
        """
        needed = self.temporal_coef is not None and not jax.tree.leaves(agent.initial_carry(1))
        return Before(state, reward, following_in_episode(rollout) if needed else ())

    def terms(self, rows: Rows) -> Terms:
        """Return the temporal and the spatial penalty of each row, [N] each; one whose weight is none is left out."""
        mean, losses = mean_action(rows.policy.distribution), {}
        if self.temporal_coef is not None:
            losses["caps_temporal_loss"] = self.temporal_coef * _temporal_distance(rows, mean)
        if self.spatial_coef is not None:
            noisy = with_noise(rows, self.noise_std)
            # the noisy observations are the network's inputs already: they are not standardised again
            given = rows._replace(learner=rows.learner._replace(obs_stats=None))
            policy = given.forward(noisy, rows.batch.steps.action_mask)
            losses["caps_spatial_loss"] = self.spatial_coef * distance(mean_action(policy.distribution) - mean)
        return Terms(losses)


@part
class L2C2(Extension):
    """Penalty on the change of mean action and V between an observation and a random place on the way to the next one.

    Locally Lipschitz continuous constraint (L2C2), Kobayashi 2022, https://arxiv.org/abs/2202.07152. The place is obs +
    u * (next obs - obs) with a number u of each row, uniform in [-1, 1): it also lies on the other side of the
    observation. The terms are squared distances with constant weights.
    """

    name: str = dataclasses.field(default="l2c2", kw_only=True, metadata={"static": True, "named": True})
    policy_coef: Scalar | None = number(
        "weight of the squared distance between the mean actions; none: off", default=1.0, low=0.0
    )
    value_coef: Scalar | None = number(
        "weight of the squared difference between the values V; none: off", default=None, low=0.0
    )

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return an empty state; ConfigError for actions other than those of one Box.

        Also raises it if observations have no floating-point numbers: there is nothing between two bytes or categories.
        """
        require_one_box("l2c2", agent, observation_space, key)
        require_floats("l2c2", observation_space, "leave the extension out")
        return ExtensionState()

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return the observation after each step [T, B] of a rollout, as inputs of `terms`; rewards are unchanged."""
        return Before(state, reward, following_in_episode(rollout))

    def terms(self, rows: Rows) -> Terms:
        """Return the penalties on policy and V of each row, [N] each; a penalty whose weight is none is left out.

        Both are 0 where the next observation is not known. With a memory, the network reads the random places of all
        steps of a sequence (see `L2C2`), in place of the sequence's observations, in one forward pass.
        """
        after: Following = rows.extras
        share = rows.draw(STEPS) / (STEPS // 2) - 1.0
        between = where_rows(after.known, on_the_way(rows.batch.steps.obs, after.obs, share), rows.batch.steps.obs)
        policy, losses = rows.forward(between, rows.batch.steps.action_mask), {}
        if self.policy_coef is not None:
            change = mean_action(policy.distribution) - mean_action(rows.policy.distribution)
            losses["l2c2_policy_loss"] = self.policy_coef * _where_known(after, jnp.square(change).sum(axis=-1))
        if self.value_coef is not None:
            change = policy.value - rows.policy.value
            losses["l2c2_value_loss"] = self.value_coef * _where_known(after, jnp.square(change))
        return Terms(losses)


@part
class ActionRate(Extension):
    """Metrics of how much actions change from step to step, in the environment's unit; nothing is learned from them.

    `action_rate` is the mean of |a_t - a_(t-1)|, and `action_jerk` that of the second difference |a_t - 2 a_(t-1) +
    a_(t-2)|, over the elements of actions, and over all steps of a rollout for which these actions are all of the same
    episode. Both are of the actions taken. `noiseless_action_rate` and `noiseless_action_jerk` are of the mean actions
    of the policy after the update, in the same observations: they take one forward pass over the rollout.
    """

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return an empty state; ConfigError for actions other than those of one Box."""
        require_one_box("action_rate", agent, observation_space, key)
        return ExtensionState()

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return, for each step [T, B] of a rollout, whether the row before it is the preceding step of its episode.

        Raises ConfigError for rollouts of fewer than 3 steps, which have no second differences.
        """
        steps = rollout.steps
        if len(steps.valid) < 3:
            raise ConfigError(
                f"action_rate: a rollout of num_steps = {len(steps.valid)} has no three actions in a row; nearest "
                "valid value: 3"
            )
        return Before(state, reward, jnp.zeros_like(steps.valid).at[1:].set(_continues(steps)))

    def after(self, agent: Any, learner: LearnerState, state: PyTree, inner: PyTree, learned: Learned) -> After:
        """Return the learner as it is, and the metrics of this rollout's actions."""
        steps = learned.batch.steps
        # in the flat rows the steps of a stream follow each other, and no row continues the last one of another stream
        continues = to_rows(extras_of(steps, name_of(self)))
        taken, noiseless = actions_and_modes(agent, learner, steps)
        metrics = {}
        for prefix, action in (("", taken), ("noiseless_", noiseless)):
            first = action[1:] - action[:-1]
            second = first[1:] - first[:-1]
            metrics[f"{prefix}action_rate"] = masked_mean(jnp.abs(first).mean(axis=-1), continues[1:])
            twice = continues[2:] & continues[1:-1]
            metrics[f"{prefix}action_jerk"] = masked_mean(jnp.abs(second).mean(axis=-1), twice)
        return After(learner, state, metrics)


def mean_action(distribution: Any) -> Array:
    """Return the mean actions [N, d] of a distribution over one Box, in half widths of the Box.

    Those of a `Normal` are not clipped: a mean outside of the Box would have no gradient there, and a policy that jumps
    from beyond one bound to beyond the other would never become smooth.
    """
    mode = distribution.mode()
    action = mode if isinstance(distribution, Normal) else distribution.env_action(mode)
    rows = action.reshape(len(mode), -1).astype(jnp.float32)
    return rows / along(half_widths(distribution, rows.shape[-1]), rows.ndim)


def half_widths(distribution: Any, size: int) -> np.ndarray:
    """Return half the width of each of the `size` elements of a distribution's Box; 1 for one without two bounds."""
    low, high = (getattr(distribution, end, None) for end in ("low", "high"))
    if low is None or high is None:  # a distribution of the user's
        return np.ones(size, np.float32)
    half = centre_and_half(low, high)[1]
    return np.where(np.isfinite(half) & (half > 0.0), half, 1.0).astype(np.float32)


def distance(change: Array) -> Array:
    """Return the Euclidean length of each row of `change` [N, d], [N], with a gradient that is finite at 0."""
    return jnp.sqrt(jnp.square(change).sum(axis=-1) + LEAST)


def with_noise(rows: Rows, std: Scalar) -> PyTree:
    """Return the rows' observations [N, ...] as the network gets them, with normal noise on floating-point numbers.

    Bytes and categories are unchanged. A row has the same noise in all epochs of an update.
    """
    obs = rows.batch.steps.obs
    base = jax.random.key(0, impl=jax.random.key_impl(rows.keys))
    keys = jax.vmap(jax.random.fold_in, (None, 0))(base, rows.draw(SEEDS))
    leaves, structure = jax.tree.flatten(rows.inputs(obs))
    noisy = []
    for place, (x, own) in enumerate(zip(leaves, jax.tree.leaves(obs), strict=True)):
        if jnp.issubdtype(own.dtype, jnp.floating):
            of_leaf = jax.vmap(functools.partial(jax.random.fold_in, data=place))(keys)
            x = x + std * jax.vmap(lambda key, x=x: jax.random.normal(key, x.shape[1:], x.dtype))(of_leaf)
        noisy.append(x)
    return jax.tree.unflatten(structure, noisy)


def on_the_way(obs: PyTree, after: PyTree, share: Array) -> PyTree:
    """Return obs + share * (after - obs) for rows [N, ...] and `share` [N]; bytes and categories are those of `obs`."""

    def one(x: Array, y: Array) -> Array:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return x
        return x + share.reshape(-1, *(1,) * (x.ndim - 1)).astype(x.dtype) * (y - x)

    return jax.tree.map(one, obs, after)


def actions_and_modes(agent: Any, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
    """Return the actions of stored sequences [M, L], and the policy's mean actions in the same observations.

    Both are rows [M * L, d], as the environment gets actions. They are computed in chunks of as many rows as the agent
    computes at once.
    """
    length = steps.valid.shape[1]
    at_once = max(1, agent.program.rows(length, agent.compute_dtype, steps.obs, agent.network) // length)

    def one(sequence: Transition) -> tuple[Array, Array]:
        distribution = forward_sequences(agent, learner, jax.tree.map(lambda x: x[None], sequence)).distribution
        both = distribution.env_action(sequence.action), distribution.env_action(distribution.mode())
        return tuple(x.reshape(length, -1).astype(jnp.float32) for x in both)  # type: ignore[return-value]

    taken, modes = jax.lax.map(one, steps, batch_size=at_once)
    return to_rows(taken), to_rows(modes)


def require_one_box(name: str, agent: Any, observation_space: spaces.Space, key: Key) -> None:
    """Raise ConfigError, which names the extension `name`, unless the agent's actions are vectors of one Box."""
    shapes = step_shapes(agent.network, observation_space, key)
    action = shapes.action
    if not hasattr(action, "dtype") or not jnp.issubdtype(action.dtype, jnp.floating):
        raise ConfigError(
            f"{name} is for continuous actions of one Box, not for those of a {type(shapes.distribution).__name__}; "
            "leave the extension out"
        )


def require_floats(name: str, observation_space: spaces.Space, remedy: str) -> None:
    """Raise ConfigError, which names the extension `name`, if no observation has floating-point numbers.

    The message ends with `remedy`, what the user can do.
    """
    if not any(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(example_of(observation_space))):
        raise ConfigError(
            f"{name}: changes floating-point numbers of observations by a little, and {observation_space} has none; "
            f"{remedy}"
        )


def _temporal_distance(rows: Rows, mean: Array) -> Array:
    """Return the distance [N] of each row's mean action, `mean` [N, d], from the mean action in the next observation.

    It is 0 where the next observation of the episode is not known. With a memory, the next mean action is that of the
    next row of the sequence, so that it is not known after the sequence's last step.
    """
    if not jax.tree.leaves(rows.sequences.carry):
        after: Following = rows.extras
        change = mean_action(rows.forward(after.obs).distribution) - mean
        return _where_known(after, distance(change))
    steps = rows.sequences
    following = to_pairs(mean, steps.valid.shape[1])  # [m, L, d]
    change = jnp.zeros_like(following).at[:, :-1].set(following[:, 1:] - following[:, :-1])
    continues = jax.vmap(_continues)(steps)  # [m, L - 1]
    known = jnp.zeros_like(steps.valid).at[:, :-1].set(continues)
    return jnp.where(to_rows(known), distance(to_rows(change)), 0.0)


def _continues(steps: Transition) -> Array:
    """Return, for each step [L, ...] but the first, whether it is valid and continues the episode of the row before."""
    valid, ended, first = steps.valid, steps.ended, steps.first
    return valid[1:] & valid[:-1] & ~ended[:-1] & ~first[1:]


def _where_known(after: Following, x: Array) -> Array:
    return jnp.where(after.known, x, 0.0)
