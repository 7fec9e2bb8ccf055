"""Environment with known returns: each episode is won or lost, as drawn at its reset; actions have no effect.

Won: rewards 1, 2, 4, then terminated. Lost: rewards 1, 2, then truncated. Agent i gets 1 + i times the reward. The
metric `win` is 1 or 0. In a file of its own, for workers to import.
"""

from typing import ClassVar, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, part, static

OBS = spaces.Box(-np.inf, np.inf, (2,), np.float32)
REWARDS = (1.0, 2.0, 4.0)
AGENTS = ("a", "b")


class Game(NamedTuple):
    time: Array
    won: Array


@part
class Wins:
    """The environment in JAX; `traced` counts how often its step has been traced."""

    agents: int | None = static(default=None)

    traced: ClassVar[list[int]] = [0]
    observation_space = OBS
    action_space = spaces.Discrete(2)

    @property
    def num_agents(self):
        return self.agents

    def reset(self, key):
        state = Game(jnp.int32(0), jax.random.bernoulli(key))
        return EnvReset(state, self._see(state))

    def step(self, state, action, key):
        self.traced[0] += 1
        reward, state = jnp.asarray(REWARDS)[state.time], Game(state.time + 1, state.won)
        shape = () if self.agents is None else (self.agents,)
        share = 1.0 if self.agents is None else 1.0 + jnp.arange(self.agents)
        terminated, truncated = state.won & (state.time == 3), ~state.won & (state.time == 2)
        flags = (jnp.broadcast_to(x, shape) for x in (terminated, truncated))
        return EnvStep(state, self._see(state), share * reward, *flags, metrics={"win": state.won})

    def _see(self, state):
        seen = jnp.stack([state.time.astype(jnp.float32), state.won.astype(jnp.float32)])
        return seen if self.agents is None else jnp.broadcast_to(seen, (self.agents, 2))


class HostWins(gymnasium.Env):
    """The same for Gymnasium; `opened` and `closed` count its instances. `fails_after` steps it raises."""

    observation_space = OBS
    action_space = spaces.Discrete(2)
    opened, closed, fails_after = 0, 0, np.inf

    def __init__(self):
        type(self).opened += 1
        self.steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.won = 0, bool(self.np_random.integers(2))
        return self._see(), {}

    def step(self, action):
        self.time, self.steps = self.time + 1, self.steps + 1
        if self.steps > self.fails_after:
            raise ValueError("the wheel fell off")
        terminated, truncated = self.won and self.time == 3, not self.won and self.time == 2
        return self._see(), REWARDS[self.time - 1], terminated, truncated, {"win": self.won}

    def close(self):
        type(self).closed += 1

    def _see(self):
        return np.array([self.time, self.won], np.float32)


class HostTeam:
    """The same for PettingZoo, with two agents."""

    possible_agents = AGENTS

    def __init__(self):
        self.agents, self.rng = [], np.random.default_rng()

    def observation_space(self, agent):
        return OBS

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.rng = self.rng if seed is None else np.random.default_rng(seed)
        self.time, self.won, self.agents = 0, bool(self.rng.integers(2)), list(AGENTS)
        return self._all(np.array([0, self.won], np.float32)), self._all({})

    def step(self, actions):
        self.time += 1
        terminated, truncated = self.won and self.time == 3, not self.won and self.time == 2
        reward = {agent: (1 + i) * REWARDS[self.time - 1] for i, agent in enumerate(AGENTS)}
        obs = self._all(np.array([self.time, self.won], np.float32))
        out = obs, reward, self._all(terminated), self._all(truncated), self._all({"win": self.won})
        self.agents = [] if terminated or truncated else list(AGENTS)
        return out

    def close(self):
        self.agents = []

    def _all(self, x):
        return dict.fromkeys(AGENTS, x)


def check(row, suffix="", scale=1.0):
    """Compare the columns of evaluations with the share of episodes won, which the row has too."""
    share = row[f"eval_win{suffix}"]
    expected = {
        "return": scale * (3 + 4 * share),
        "return_std": scale * 4 * np.sqrt(share * (1 - share)),
        "return_min": scale * (3 if share < 1 else 7),
        "return_max": scale * (7 if share > 0 else 3),
        "length": 2 + share,
        "terminated": share,
        "truncated": 1 - share,
        "final_reward": scale * (2 + 2 * share),
    }
    assert {name: row[f"eval_{name}{suffix}"] for name in expected} == pytest.approx(expected, rel=1e-5)
