"""Environments whose metric `steps` is the length of the episode, counted by the environment itself.

The oracle: the mean of `steps` over episodes equals `episode_length`, counted by ppax, wherever an episode ends. The
metric `is_success` is 1 where an episode is longer than 3 steps. In a file of its own, for workers to import.
"""

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import EnvReset, EnvStep, part, static

OBS = spaces.Box(-np.inf, np.inf, (1,), np.float32)
SHORT, LONG = 2, 7  # lengths of episodes
SUCCESS = 3  # a longer episode is a success


class Count(NamedTuple):
    time: Array
    length: Array  # [] or [A]


@part
class Counting:
    """Episodes of random lengths; with agents, one length for each."""

    agents: int | None = static(default=None)

    observation_space = OBS
    action_space = spaces.Discrete(2)

    @property
    def num_agents(self):
        return self.agents

    def reset(self, key):
        shape = () if self.agents is None else (self.agents,)
        state = Count(jnp.int32(0), jax.random.randint(key, shape, SHORT, LONG + 1))
        return EnvReset(state, self._see(state))

    def step(self, state, action, key):
        state = state._replace(time=state.time + 1)
        terminated = state.time >= state.length
        reward = jnp.ones(terminated.shape, jnp.float32)
        metrics = {"steps": state.time, "is_success": state.length > SUCCESS}  # [] and [] or [A]
        return EnvStep(state, self._see(state), reward, terminated, jnp.zeros_like(terminated), metrics=metrics)

    def _see(self, state):
        return jnp.broadcast_to(state.time, state.length.shape)[..., None].astype(jnp.float32)


class HostCounting(gymnasium.Env):
    """The same for Gymnasium; `only_last`: info has the metrics at the last step only."""

    observation_space = OBS
    action_space = spaces.Discrete(2)

    def __init__(self, only_last=False):
        self.only_last = only_last

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time, self.length = 0, int(self.np_random.integers(SHORT, LONG + 1))
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        over = self.time >= self.length
        info = {"steps": self.time, "is_success": self.time > SUCCESS} if over or not self.only_last else {}
        return np.full(1, self.time, np.float32), 1.0, over, False, info


class Lives(HostCounting):
    """The same, with a life lost every 2 steps, which terminates it; info has metrics at a game's end only."""

    over = True

    def reset(self, *, seed=None, options=None):
        if self.over:
            super().reset(seed=seed)
        self.over = False
        return np.full(1, self.time, np.float32), {"episode_stats": (0.0, False)}

    def step(self, action):
        obs, reward, self.over, _, info = super().step(action)
        stats = {"episode_stats": (reward, self.over)}
        return obs, reward, self.over or self.time % 2 == 0, False, stats | (info if self.over else {})


class HostTeam:
    """The same for PettingZoo: two agents with episodes of their own lengths."""

    possible_agents = ("a", "b")

    def __init__(self):
        self.agents, self.rng = [], np.random.default_rng()

    def observation_space(self, agent):
        return OBS

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.rng = self.rng if seed is None else np.random.default_rng(seed)
        self.time, self.agents = 0, list(self.possible_agents)
        self.length = {agent: int(self.rng.integers(SHORT, LONG + 1)) for agent in self.agents}
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        acting = list(self.agents)
        over = {agent: self.time >= self.length[agent] for agent in acting}
        info = {agent: {"steps": self.time, "is_success": self.time > SUCCESS} for agent in acting}
        obs, never = self._see(), dict.fromkeys(acting, False)
        self.agents = [agent for agent in acting if not over[agent]]
        return obs, dict.fromkeys(acting, 1.0), over, never, info

    def close(self):
        self.agents = []

    def _see(self):
        return {agent: np.full(1, self.time, np.float32) for agent in self.agents}
