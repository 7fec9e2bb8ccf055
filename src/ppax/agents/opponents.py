"""Pool of past selves for self-play: snapshots and opponent sampling.

Sampling "hard": prioritised fictitious self-play, Vinyals et al. 2019, https://doi.org/10.1038/s41586-019-1724-z.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.agents.ratings import win_probability
from ppax.core.parts import Interval
from ppax.core.types import OF_LEARNING, Key, PyTree, Rollout, Scalar, Update, number, part, static


class SelfPlayState(NamedTuple):
    """Current learners, pool of past selves, ratings, and running scores of the episodes."""

    current: dict[str, Any]  # current learner of each group
    pool: dict[str, Any]  # [P, ...] snapshots of each group's learner, without training state such as the optimiser's
    num_snapshots: Array  # [] int32 snapshots taken; the newest is at index (num_snapshots - 1) % P
    opponents: dict[str, Array]  # [K] pool indices of the past selves that play
    elo: dict[str, Array]  # [] Elo rating of the current learner
    past_elo: dict[str, Array]  # [P] Elo ratings of the past selves
    returns: Array  # [E, A] returns of the running episodes
    counts: Array  # [E] whether the running episode began with its present opponents
    iteration: Array  # [] int32


@part
class Pool:
    """Self-play settings: snapshots of the learners to keep, and sampling of opponents from them."""

    every: Interval | None = static(
        'iterations between two snapshots for the pool, in a run file or option also "50k steps"; by default there is '
        "no self-play",
        default=None,
        low=1,
        interval=True,
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
        "Elo K-factor: rating points per unit of actual minus expected score, as mean over the games of an update",
        default=16.0,
        low=0.0,
    )

    def logits(self, wins: Array, age: Array) -> Array:
        """Return sampling logits [P] of past selves from their win probability [P] and age in snapshots [P]."""
        if self.sampling == "recent":
            return -jnp.log1p(age.astype(jnp.float32))
        return 2.0 * jnp.log(wins) if self.sampling == "hard" else jnp.zeros_like(wins)


def with_snapshot(pool: Pool, learner: SelfPlayState, names: Sequence[str], key: Key) -> SelfPlayState:
    """Every `pool.every` iterations, add a snapshot of the learners to the pool and draw new opponents."""
    size = pool.size
    due = learner.iteration % (pool.every or 1) == 0
    place = learner.num_snapshots % size
    count = learner.num_snapshots + 1
    age = (count - 1 - jnp.arange(size)) % size  # 0: the newest
    keys = jax.random.split(key, len(names))
    past_elo = {name: x.at[place].set(learner.elo[name]) for name, x in learner.past_elo.items()}
    after = learner._replace(
        pool=jax.tree.map(lambda x, new: x.at[place].set(new), learner.pool, snapshot(learner.current)),
        past_elo=past_elo,
        num_snapshots=count,
        counts=jnp.zeros_like(learner.counts),
    )
    opponents = {}
    for name, key in zip(names, keys, strict=True):
        logits = jnp.where(jnp.arange(size) < count, pool.logits(win_chance(after, name), age), -jnp.inf)
        opponents[name] = jax.random.categorical(key, logits, shape=(pool.opponents,)).astype(jnp.int32)
    after = after._replace(opponents=opponents)
    return jax.tree.map(lambda new, old: jnp.where(due, new, old), after, learner)


def with_own_games(own: SelfPlayState, learner: SelfPlayState, copied: Array) -> SelfPlayState:
    """Return `learner` for the environments of `own`, whose running games go on.

    If `copied`, games that began with other opponents than those of `learner` do not count for the ratings.
    """
    return learner._replace(returns=own.returns, counts=own.counts & ~copied)


def win_chance(learner: SelfPlayState, name: str) -> Array:
    """Return the win probability of each past self [P] of a group against the others' current learners."""
    others = [elo for other, elo in learner.elo.items() if other != name]
    return win_probability(learner.past_elo[name], jnp.stack(others).mean())


def snapshot(learners: dict[str, Any]) -> dict[str, Any]:
    """Return learners without their training state (optimiser, reward statistics, extensions)."""
    return {name: learner._replace(**OF_LEARNING) for name, learner in learners.items()}


def pool_of(learners: dict[str, Any], size: int) -> dict[str, Any]:
    """Return a pool [P, ...] whose `size` past selves are all snapshots of `learners`."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), snapshot(learners))


def by_opponent(x: Array, opponents: int) -> Array:
    """Reshape [n, ...] to [K, n / K, ...], with K past selves."""
    return x.reshape(opponents, x.shape[0] // opponents, *x.shape[1:])


def without_streams(rollout: Rollout, rows: slice) -> Rollout:
    """Return `rollout` without the streams `rows`, which are those of past selves."""

    def drop(x: Array, axis: int) -> Array:
        before = jax.lax.slice_in_dim(x, 0, rows.start, axis=axis)
        return jnp.concatenate([before, jax.lax.slice_in_dim(x, rows.stop, x.shape[axis], axis=axis)], axis)

    return Rollout(
        steps=jax.tree.map(lambda x: drop(x, 1), rollout.steps),
        last_value=drop(rollout.last_value, 0),
        reward_trace=drop(rollout.reward_trace, 1),
        last_obs=jax.tree.map(lambda x: drop(x, 0), rollout.last_obs),
        extensions=jax.tree.map(lambda x: drop(x, 0), rollout.extensions),
    )


def with_streams(before: Mapping[str, Rollout], learned: Update, rows: Mapping[str, slice]) -> dict[str, PyTree]:
    """States of extensions in all streams after an update, by group; in the `rows` of past selves they stay."""

    def one(old: Array, new: Array, own: slice) -> Array:
        return jnp.concatenate([new[: own.start], old[own], new[own.start :]])

    return {
        name: jax.tree.map(partial(one, own=own), before[name].extensions, learned.extensions[name])
        for name, own in rows.items()
    }
