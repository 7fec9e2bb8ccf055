"""Observations after each step of a rollout, for extensions that look at them."""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import zero_rows
from ppax.core.types import PyTree, Rollout


class Following(NamedTuple):
    """Observation after each step of a rollout, and a mask that is True where this observation is known."""

    obs: PyTree  # [T, B, ...]; 0 where it is not known
    known: Array  # [T, B]


def following(rollout: Rollout) -> Following:
    """Return the observation after each step [T, B] of a rollout, and a mask of where it is known.

    After an episode's last step this is the episode's final observation or, where a host environment resets in the same
    step, the first observation of the next episode. It is not known after steps that are not `valid` (autoreset steps),
    and where it has entries that are not finite, which PPO tolerates after a termination.
    """
    steps = rollout.steps
    obs = jax.tree.map(lambda x, last: jnp.concatenate([x[1:], last[None]]), steps.obs, rollout.last_obs)
    floats = [x for x in jax.tree.leaves(obs) if jnp.issubdtype(x.dtype, jnp.floating)]
    finite = [jnp.isfinite(x).all(axis=tuple(range(2, x.ndim))) for x in floats]
    known = functools.reduce(operator.and_, finite, steps.valid)
    return Following(zero_rows(known, obs), known)


def following_in_episode(rollout: Rollout) -> Following:
    """Return the observation after each step [T, B] in the same episode, and a mask of where it is known.

    This is the result of `following`, except where a host environment resets in the same step: the observation after an
    episode's last step, which already belongs to the next episode, counts as not known.
    """
    steps, (obs, known) = rollout.steps, following(rollout)
    if steps.final_value is None:
        return Following(obs, known)
    known = known & ~steps.ended
    return Following(zero_rows(known, obs), known)
