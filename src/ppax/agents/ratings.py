"""Elo ratings of learners and past selves: "The rating of chessplayers", 1978. A game is an episode."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import Scalar

START = 1000.0  # initial Elo rating
SCALE = 400.0  # rating difference that means odds of 10 to 1
ROUNDING = 1e-6  # margin, relative to the returns, up to which a game is drawn: sums in float32 differ by rounding


class Games(NamedTuple):
    """Games that ended in a rollout, and those that go on."""

    played: Array  # [E] number of games that ended
    won: Array  # [E] sum of their scores: 1 won, 0.5 drawn, 0 lost
    returns: Array  # [E, A] returns of the running episodes
    counts: Array  # [E] whether the running episode is rated at its end


class Ratings(NamedTuple):
    """Elo ratings of P players, and their standard errors."""

    elo: np.ndarray  # [P]
    error: np.ndarray  # [P] of the difference to the players' mean rating


def score(margin: Any, rounding: Any) -> Array:
    """Return the score of games by the margin of the returns: 1 won, 0.5 drawn, up to `rounding`, 0 lost."""
    return jnp.where(margin > rounding, 1.0, jnp.where(margin < -rounding, 0.0, 0.5))


def fitted(won: np.ndarray, played: np.ndarray) -> Ratings:
    """Return the most likely ratings, with mean START, of players i who scored `won` [P, P] in `played` games with j.

    The likelihood of Bradley and Terry 1952, https://doi.org/10.1093/biomet/39.3-4.324, does not depend on the order of
    the games. Each pair that has met is given one more game, drawn: without it, who has won all has no finite rating.
    """
    met = played > 0
    won, played = won + 0.5 * met, played + 1.0 * met
    ratings, most = np.zeros(len(won)), SCALE / np.log(10.0)
    for _ in range(1000):  # Newton's method, with steps of limited length
        chance = 1.0 / (1.0 + np.exp(np.clip(ratings[None] - ratings[:, None], -50.0, 50.0)))
        slope, spread = (won - played * chance).sum(axis=1), played * chance * (1.0 - chance)
        covariance = np.linalg.pinv(np.diag(spread.sum(axis=1)) - spread, rcond=1e-10, hermitian=True)
        step = covariance @ slope
        ratings = ratings + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-12:
            break
    return Ratings(START + most * (ratings - ratings.mean()), most * np.sqrt(np.diag(covariance)))


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
        scored = score(margin, rounding)
        returns = jnp.where((first | ended)[:, None], 0.0, returns) + reward
        return (returns, counts | first), (over, jnp.where(over, scored, 0.0))

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
