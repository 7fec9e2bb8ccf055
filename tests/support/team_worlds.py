"""Small PettingZoo parallel environment, in a file of its own so that workers can import it."""

import numpy as np
from gymnasium import spaces

LENGTH = 5


class Squad:
    """Agent a terminates after 2 steps, b after 4; c and d are truncated at time 5; d appears at time 2.

    The reward at time t is 10 * (number + 1) + t; action 1 adds 0.5.
    """

    possible_agents = ("a", "b", "c", "d")
    DIES = {"a": 2, "b": 4}  # noqa: RUF012
    COMES = {"d": 2}  # noqa: RUF012

    def __init__(self, masks=False):
        self.masks, self.agents, self.rng = masks, [], np.random.default_rng()

    def observation_space(self, agent):
        return spaces.Box(-np.inf, np.inf, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.time, self.draw = 0, float(self.rng.normal())
        self.agents = [agent for agent in self.possible_agents if agent not in self.COMES]
        return self._see(self.agents), self._info(self.agents)

    def step(self, actions):
        assert set(actions) == set(self.agents), "exactly those act who are there"
        acting = list(self.agents)
        rewards = {agent: 10.0 * (self._number(agent) + 1) + self.time + 0.5 * actions[agent] for agent in acting}
        self.time += 1
        terminations = {agent: self.DIES.get(agent) == self.time for agent in acting}
        truncations = {agent: self.time == LENGTH and not terminations[agent] for agent in acting}
        self.agents = [agent for agent in acting if not (terminations[agent] or truncations[agent])]
        self.agents += [agent for agent, time in self.COMES.items() if time == self.time]
        seen = sorted({*acting, *self.agents})
        return self._see(seen), rewards, terminations, truncations, self._info(seen)

    def close(self):
        self.agents = []

    def _number(self, agent):
        return self.possible_agents.index(agent)

    def _see(self, agents):
        return {agent: np.array([self.time, self._number(agent), self.draw], np.float32) for agent in agents}

    def _info(self, agents):
        return {agent: {"action_mask": np.array([1, agent != "b"], np.int8)} if self.masks else {} for agent in agents}
