"""Adapter for Pgx, https://github.com/sotetsuk/pgx: board games in JAX.

Koyamada et al., "Pgx: Hardware-Accelerated Parallel Game Simulators for RL", 2023, https://arxiv.org/abs/2303.17503.

Players of a game are agents, along an agent axis, and a step is one move. Players whose turn it is not have an action
mask that allows nothing: their actions are ignored, and their policy learns nothing from these rows (arrays/masks.py).
But the critic learns V of these rows, too: through V, the result of an opponent's move reaches the advantage of the
player's own last move. Pgx reports the move limits of its games as terminations, with the result of a drawn game, and
the adapter keeps that.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs.suites import pictures
from ppax.envs.suites.registry import known, library, strong
from ppax.envs.wrappers.time import TimeLimit

MINATAR = "minatar-"  # ids of Pgx's MinAtar games begin so; most of them end by the player's death alone
MINATAR_STEPS = 1000  # their time limit, that of gymnax


@part
class Pgx:
    """Game of Pgx for one player or several. Create it with `load`.

    Observations are those of Pgx from each player's own side. With several players the last channel, or the last
    number of a vector, says whether it is this player's turn: 1 or 0.
    """

    env: Any = static(doc="environment object of Pgx")

    @property
    def num_agents(self) -> int | None:
        """Number of players; None for games of one player."""
        return None if self.env.num_players == 1 else int(self.env.num_players)

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Names of the players, "player_0", "player_1" and so on, with Pgx's numbers of the players.

        The numbers do not say who begins, which is drawn at every reset.
        """
        return tuple(f"player_{i}" for i in range(self.env.num_players))

    @property
    def observation_space(self) -> spaces.Box:
        """Space of one player's observation: uint8 planes of 0 and 1, or float32 without bounds."""
        shape = jax.eval_shape(self.reset, jax.random.key(0)).obs
        own = shape.shape if self.num_agents is None else shape.shape[1:]
        if shape.dtype == jnp.uint8:
            return spaces.Box(0, 1, own, np.uint8)
        return spaces.Box(-np.inf, np.inf, own, np.float32)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of one player's actions, which are discrete; the mask has the legal ones."""
        return spaces.Discrete(_num_actions(self.env))

    def reset(self, key: Key) -> EnvReset:
        """Return a new game, in which a random player begins."""
        state = strong(self.env.init(key))
        return EnvReset(state, self._observe(state), self._mask(state))

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Return the result of the move of the player whose turn it is; the other players' actions are ignored."""
        move = action if self.num_agents is None else action[state.current_player]
        state = strong(self.env.step(state, jnp.asarray(move, jnp.int32), key))
        reward = jnp.asarray(state.rewards, jnp.float32)
        ended = (state.terminated, state.truncated & ~state.terminated)
        if self.num_agents is None:
            return EnvStep(state, self._observe(state), reward[0], *ended, self._mask(state))
        terminated, truncated = (jnp.broadcast_to(flag, reward.shape) for flag in ended)
        return EnvStep(state, self._observe(state), reward, terminated, truncated, self._mask(state))

    def render(self, state: PyTree) -> np.ndarray:
        """Return a picture [H, W, 3] of the observation of the player whose turn it is."""
        return pictures.draw_observation(state.observation)

    def _observe(self, state: PyTree) -> Array:
        """Return the observation of each of A players, [A, ...]; without an agent axis if the game has one player."""
        if self.num_agents is None:
            return _numbers(state.observation)
        players = jnp.arange(self.env.num_players)
        # `observe` of a given player warns; without a player it would be the view of the one whose turn it is
        obs = _numbers(jax.vmap(self.env._observe, (None, 0))(state, players))
        turn = (players == state.current_player).astype(obs.dtype).reshape(-1, *[1] * (obs.ndim - 1))
        return jnp.concatenate([obs, jnp.broadcast_to(turn, (*obs.shape[:-1], 1))], axis=-1)

    def _mask(self, state: PyTree) -> Array:
        """Return which actions are legal for each of A players, [A, n], none for those who wait; [n] for one player."""
        legal = jnp.asarray(state.legal_action_mask, bool)
        if self.num_agents is None:
            return legal
        return legal & (jnp.arange(self.env.num_players) == state.current_player)[:, None]


def load(env_id: str) -> Environment:
    """Return the game `env_id` of Pgx ("tic_tac_toe"); MinAtar's games are truncated after 1000 steps.

    Raises ImportError without Pgx, ConfigError for an unknown id.
    """
    game = Pgx(_make(known("pgx", env_id, ids())))
    return TimeLimit(game, MINATAR_STEPS) if env_id.startswith(MINATAR) else game


def ids() -> list[str]:
    """Return the ids of all games that `pgx.make` makes."""
    return list(library("pgx", "pgx").available_envs())


@functools.cache
def _make(env_id: str) -> Any:
    """Return Pgx's environment, the same object for equal ids, as jit compares objects by identity."""
    return library("pgx", "pgx").make(env_id)


@functools.cache
def _num_actions(env: Any) -> int:
    return int(jax.eval_shape(env.init, jax.random.key(0)).legal_action_mask.shape[0])


def _numbers(obs: Array) -> Array:
    """Return an observation as uint8 if it is of bools, else as float32.

    Some games of Pgx observe counts, as int32 or float32.
    """
    return obs.astype(jnp.uint8 if obs.dtype == bool else jnp.float32)
