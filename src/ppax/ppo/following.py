"""Observation after each step of a rollout: the only reading of rows that are not valid, beside bootstrap values."""

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
    """Observation after each step of a rollout, where it is known."""

    obs: PyTree  # [T, B, ...]; 0 where it is not known
    known: Array  # [T, B]


def following(rollout: Rollout) -> Following:
    """Observation after each step [T, B]: after the last step of an episode the final one, which the next row shows.

    Where a host environment resets in the same step, it is the first one of the next episode. It is not known after
    steps that are not `valid`, and where it is not finite: PPO itself reads no observation after a termination, so
    that one of a failed simulation does no harm.
    """
    steps = rollout.steps
    obs = jax.tree.map(lambda x, last: jnp.concatenate([x[1:], last[None]]), steps.obs, rollout.last_obs)
    floats = [x for x in jax.tree.leaves(obs) if jnp.issubdtype(x.dtype, jnp.floating)]
    finite = [jnp.isfinite(x).all(axis=tuple(range(2, x.ndim))) for x in floats]
    known = functools.reduce(operator.and_, finite, steps.valid)
    return Following(zero_rows(known, obs), known)


def following_in_episode(rollout: Rollout) -> Following:
    """As `following`, but not known where the next observation is of another episode."""
    steps, (obs, known) = rollout.steps, following(rollout)
    if steps.final_value is None:
        return Following(obs, known)
    known = known & ~steps.ended
    return Following(zero_rows(known, obs), known)
