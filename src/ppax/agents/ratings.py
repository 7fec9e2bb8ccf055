"""Elo ratings of learners and past selves: "The rating of chessplayers", 1978. A game is an episode."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.types import Scalar

START = 1000.0  # initial Elo rating
SCALE = 400.0  # rating difference that means odds of 10 to 1
ROUNDING = 1e-6  # margin, relative to the returns, up to which a game is drawn: sums in float32 differ by rounding


class Games(NamedTuple):
    """Games that ended in a rollout, and those that go on."""

    played: Array  # [E] number of games that ended
    won: Array  # [E] sum of their scores: 1 won, 0.5 drawn, 0 lost
    returns: Array  # [E, A] returns of the running episodes
    counts: Array  # [E] whether the running episode is rated at its end


def play(reward: Array, first: Array, ended: Array, margin_weights: np.ndarray, returns: Array, counts: Array) -> Games:
    """Return the games of steps [T, E] with rewards [T, E, A]; the score is the sign of the weighted return.

    `first` marks the first step of an episode, `ended` the autoreset step after its last. An episode that starts
    without an autoreset step was truncated by a forced reset and is not rated.
    """

    def step(state: tuple[Array, Array], inputs: tuple[Array, Array, Array]) -> Any:
        returns, counts = state
        reward, first, ended = inputs
        weighted = returns * margin_weights
        margin, rounding = weighted.sum(axis=1), ROUNDING * jnp.abs(weighted).sum(axis=1)
        over = ended & counts
        score = jnp.where(margin > rounding, 1.0, jnp.where(margin < -rounding, 0.0, 0.5))
        returns = jnp.where((first | ended)[:, None], 0.0, returns) + reward
        return (returns, counts | first), (over, jnp.where(over, score, 0.0))

    (returns, counts), (games, wins) = jax.lax.scan(step, (returns, counts), (reward, first, ended))
    return Games(games.sum(axis=0, dtype=jnp.float32), wins.sum(axis=0), returns, counts)


def win_probability(elo: Array, other: Array) -> Array:
    """Return the Elo win probability of a player rated `elo` against one rated `other`."""
    return 1.0 / (1.0 + 10.0 ** ((other - elo) / SCALE))


def gain(played: Array, won: Array, chance: Array, elo_step: Scalar) -> Array:
    """Return the rating points gained in `played` games, of which `won` were won and a share `chance` was expected.

    With their mean score, as if of one game: `chance` is that before all of them. The sum of their gains overshoots:
    with the usual 16 points the ratings of two players diverge from 43 games an update on.
    """
    surprise = won / jnp.maximum(played, 1.0) - chance
    return jnp.where(played > 0.0, elo_step * surprise, 0.0)
