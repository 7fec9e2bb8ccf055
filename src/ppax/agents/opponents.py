"""The pool of past selves in self-play: how many, how often, who plays, and Elo's ratings of them.

"hard": prioritised fictitious self-play, Vinyals et al. 2019, https://doi.org/10.1038/s41586-019-1724-z.
Ratings: Elo, "The rating of chessplayers", 1978.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.types import Rollout, Scalar, number, part, static

START = 1000.0  # rating of a beginner
SCALE = 400.0  # points between players of whom one wins ten times as often


@part
class Pool:
    """Which past selves are kept, and against which of them the groups play."""

    every: int | None = static(
        "iterations between two that are kept; by default there is no self-play", default=None, low=1
    )
    size: int = static("past selves kept of each group, the newest ones", default=8, low=1)
    share: float = static("of environments in which one group is a past self", default=0.5, low=0.0, high=1.0)
    opponents: int = static("different past selves of a group that play at a time", default=2, low=1)
    sampling: str = static(
        "which past selves play: any alike, newer ones more often, or those who win more often",
        default="uniform",
        choices=("uniform", "recent", "hard"),
    )
    elo_step: Scalar = number("points that a rating moves for one result that nobody expected", default=16.0, low=0.0)

    def logits(self, wins: Array, age: Array) -> Array:
        """Of each past self [P] to play, who is expected to win with probability `wins`, and is so old."""
        if self.sampling == "recent":
            return -jnp.log1p(age.astype(jnp.float32))
        return 2.0 * jnp.log(wins) if self.sampling == "hard" else jnp.zeros_like(wins)


def chance(elo: Array, other: Array) -> Array:
    """How likely who is rated `elo` wins against `other`."""
    return 1.0 / (1.0 + 10.0 ** ((other - elo) / SCALE))


def seats_of(x: Array, opponents: int) -> Array:
    """[n, ...] as [K, n / K, ...]."""
    return x.reshape(opponents, x.shape[0] // opponents, *x.shape[1:])


def without(rollout: Rollout, rows: slice) -> Rollout:
    """A group's rollout without the streams of past selves."""

    def rest(x: Array, axis: int) -> Array:
        before = jax.lax.slice_in_dim(x, 0, rows.start, axis=axis)
        return jnp.concatenate([before, jax.lax.slice_in_dim(x, rows.stop, x.shape[axis], axis=axis)], axis)

    steps = jax.tree.map(lambda x: rest(x, 1), rollout.steps)
    return Rollout(steps, rest(rollout.last_value, 0), rest(rollout.reward_trace, 1))
