"""Pool of past selves for self-play: snapshots, opponent sampling and Elo ratings.

Sampling "hard": prioritised fictitious self-play, Vinyals et al. 2019, https://doi.org/10.1038/s41586-019-1724-z.
Ratings: Elo, "The rating of chessplayers", 1978.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.types import Rollout, Scalar, number, part, static

START = 1000.0  # initial Elo rating
SCALE = 400.0  # rating difference that means odds of 10 to 1


@part
class Pool:
    """Self-play settings: snapshots of the learners to keep, and sampling of opponents from them."""

    every: int | None = static(
        "iterations between two snapshots for the pool; by default there is no self-play", default=None, low=1
    )
    size: int = static("pool size: number of newest snapshots kept of each group", default=8, low=1)
    share: float = static(
        "fraction of environments in which one group is played by a past self", default=0.5, low=0.0, high=1.0
    )
    opponents: int = static("number of past selves of each group that play at the same time", default=2, low=1)
    sampling: str = static(
        'sampling of opponents: "uniform", "recent" (newer more often) or "hard" (higher win rate more often)',
        default="uniform",
        choices=("uniform", "recent", "hard"),
    )
    elo_step: Scalar = number(
        "Elo K-factor: rating points per unit of actual minus expected score", default=16.0, low=0.0
    )

    def logits(self, wins: Array, age: Array) -> Array:
        """Return sampling logits [P] of past selves from their win probability [P] and age in snapshots [P]."""
        if self.sampling == "recent":
            return -jnp.log1p(age.astype(jnp.float32))
        return 2.0 * jnp.log(wins) if self.sampling == "hard" else jnp.zeros_like(wins)


def win_probability(elo: Array, other: Array) -> Array:
    """Return the Elo win probability of a player rated `elo` against one rated `other`."""
    return 1.0 / (1.0 + 10.0 ** ((other - elo) / SCALE))


def by_opponent(x: Array, opponents: int) -> Array:
    """Reshape [n, ...] to [K, n / K, ...], by past self."""
    return x.reshape(opponents, x.shape[0] // opponents, *x.shape[1:])


def without_streams(rollout: Rollout, rows: slice) -> Rollout:
    """Return `rollout` without the streams `rows`, which are those of past selves."""

    def drop(x: Array, axis: int) -> Array:
        before = jax.lax.slice_in_dim(x, 0, rows.start, axis=axis)
        return jnp.concatenate([before, jax.lax.slice_in_dim(x, rows.stop, x.shape[axis], axis=axis)], axis)

    steps = jax.tree.map(lambda x: drop(x, 1), rollout.steps)
    return Rollout(steps, drop(rollout.last_value, 0), drop(rollout.reward_trace, 1))
