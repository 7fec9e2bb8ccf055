"""PettingZoo parallel environments of unlike agents and of two players, in a file that workers can import."""

import numpy as np
from gymnasium import spaces

LENGTH = 5


class Hunt:
    """Hunters choose one of three actions, prey two numbers; in `possible_agents` they take turns.

    hunter_0 terminates after 2 steps, prey_1 after 4; hunter_1 appears at time 2; it and prey_0 are truncated at time
    5. The reward at time t is 10 * (number + 1) + t, plus half a hunter's action, or a quarter of the sum of a prey's.
    """

    possible_agents = ("hunter_0", "prey_0", "hunter_1", "prey_1")
    DIES = {"hunter_0": 2, "prey_1": 4}  # noqa: RUF012
    COMES = {"hunter_1": 2}  # noqa: RUF012

    def __init__(self, masks=False, render_mode=None):
        self.masks, self.agents, self.rng = masks, [], np.random.default_rng()

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, (3 if agent.startswith("hunter") else 4,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(3) if agent.startswith("hunter") else spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.time, self.draw = 0, float(self.rng.normal())
        self.agents = [agent for agent in self.possible_agents if agent not in self.COMES]
        return self._see(self.agents), self._info(self.agents)

    def step(self, actions):
        assert set(actions) == set(self.agents), "exactly those act who are there"
        for agent, action in actions.items():
            assert self.action_space(agent).contains(action), (agent, action)
        acting = list(self.agents)
        rewards = {agent: self._reward(agent, actions[agent]) for agent in acting}
        self.time += 1
        terminations = {agent: self.DIES.get(agent) == self.time for agent in acting}
        truncations = {agent: self.time == LENGTH and not terminations[agent] for agent in acting}
        self.agents = [agent for agent in acting if not (terminations[agent] or truncations[agent])]
        self.agents += [agent for agent, time in self.COMES.items() if time == self.time]
        seen = sorted({*acting, *self.agents})
        return self._see(seen), rewards, terminations, truncations, self._info(seen)

    def render(self):
        return np.full((4, 4, 3), 10 * self.time, np.uint8)

    def close(self):
        self.agents = []

    def _reward(self, agent, action):
        own = 0.5 * float(action) if agent.startswith("hunter") else 0.25 * float(np.sum(action))
        return 10.0 * (self.possible_agents.index(agent) + 1) + self.time + own

    def _see(self, agents):
        return {agent: self._one(agent) for agent in agents}

    def _one(self, agent):
        seen = [self.time, self.possible_agents.index(agent), self.draw]
        return np.array(seen if agent.startswith("hunter") else [*seen, -self.time], np.float32)

    def _info(self, agents):
        """Of the hunters alone: hunter_1 may not take action 2."""
        mask = {"hunter_0": np.ones(3, np.int8), "hunter_1": np.array([1, 1, 0], np.int8)}
        return {agent: {"action_mask": mask[agent]} if self.masks and agent in mask else {} for agent in agents}


class LateHunt(Hunt):
    """Hunt in which both hunters appear at time 2; hunter_0 terminates at once after its second step."""

    DIES = {"hunter_0": 4, "prey_1": 4}  # noqa: RUF012
    COMES = {"hunter_0": 2, "hunter_1": 2}  # noqa: RUF012


class Duel:
    """Two players see the same number of 0 to 3 and name one; who alone is right wins a point from the other.

    Both terminate after four rounds.
    """

    possible_agents = ("left", "right")

    def __init__(self):
        self.agents, self.rng = [], np.random.default_rng()

    def observation_space(self, agent):
        return spaces.Box(0.0, 1.0, (4,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(4)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents, self.round, self.number = list(self.possible_agents), 0, int(self.rng.integers(4))
        return self._see(), {agent: {} for agent in self.agents}

    def step(self, actions):
        left, right = (int(actions[agent] == self.number) for agent in self.possible_agents)
        rewards = {"left": float(left - right), "right": float(right - left)}
        self.round, self.number = self.round + 1, int(self.rng.integers(4))
        over = self.round == 4
        obs, terminations = self._see(), dict.fromkeys(self.possible_agents, over)
        self.agents = [] if over else list(self.possible_agents)
        return obs, rewards, terminations, dict.fromkeys(self.possible_agents, False), {agent: {} for agent in obs}

    def close(self):
        self.agents = []

    def _see(self):
        return {agent: np.eye(4, dtype=np.float32)[self.number] for agent in self.possible_agents}
