"""Turn-based games with the methods of PettingZoo's AECEnv, written out by a script, and the official loop."""

from typing import NamedTuple

import numpy as np
from gymnasium import spaces

AGENTS = ("a", "b", "c")
ACTIONS = 4


class Turn(NamedTuple):
    """One turn of a script: who acts, what everybody gets, and whose episode ends."""

    agent: str
    rewards: dict
    terminations: tuple = ()
    truncations: tuple = ()


class Scripted:
    """AECEnv that follows scripts, one for each episode, in turn; actions change the observations only."""

    def __init__(self, scripts, agents=AGENTS, masks=True):
        self.possible_agents, self._scripts, self._masks, self._episode = list(agents), scripts, masks, -1

    def observation_space(self, agent):
        return spaces.Box(-100, 100, (3,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(ACTIONS)

    def reset(self, seed=None, options=None):
        self._episode, self._turn, self._sum = self._episode + 1, 0, 0
        self._script = self._scripts[self._episode % len(self._scripts)]
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
        self._select()

    def _select(self):
        """Set the agent of the next turn: one whose episode has ended first, which then removes itself."""
        ended = [agent for agent in self.agents if self.terminations[agent] or self.truncations[agent]]
        rest = self._script[self._turn].agent if self._turn < len(self._script) else None
        self.agent_selection = ended[0] if ended else rest
        self.infos = {agent: {} for agent in self.agents}
        if self._masks:
            for agent in self.agents:
                mask = np.zeros(ACTIONS, np.int8)
                if agent == self.agent_selection:
                    mask[:] = 1
                    mask[self._turn % ACTIONS] = 0
                self.infos[agent]["action_mask"] = mask

    def step(self, action):
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            assert action is None
            self.agents.remove(agent)
            for table in (self.rewards, self._cumulative_rewards, self.terminations, self.truncations):
                del table[agent]
            self.rewards = dict.fromkeys(self.agents, 0.0)
            self._select()
            return
        turn = self._script[self._turn]
        assert turn.agent == agent
        assert not self._masks or action != self._turn % ACTIONS, "a forbidden action"
        self._sum, self._turn = self._sum + int(action), self._turn + 1
        self._cumulative_rewards[agent] = 0.0
        self.rewards = {one: turn.rewards.get(one, 0.0) for one in self.agents}
        for one in self.agents:
            self._cumulative_rewards[one] += self.rewards[one]
            self.terminations[one], self.truncations[one] = one in turn.terminations, one in turn.truncations
        self._select()

    def observe(self, agent):
        return np.array([self._turn, self.possible_agents.index(agent), self._sum], np.float32)

    def last(self, observe=True):
        agent = self.agent_selection
        flags = self.terminations[agent], self.truncations[agent]
        return self.observe(agent), self._cumulative_rewards[agent], *flags, self.infos[agent]

    def agent_iter(self, max_iter=2**63):
        while self.agents and max_iter:
            max_iter -= 1
            yield self.agent_selection

    def render(self):
        return np.zeros((2, 2, 3), np.uint8)

    def close(self):
        pass


def random_script(rng, agents=AGENTS):
    """Script of an episode: agents in any order, rewards for all, some that end before the others."""
    left, script = list(agents), []
    while left:
        agent = left[rng.integers(len(left))]
        rewards = {one: float(rng.integers(-3, 4)) for one in left}
        ending = [one for one in left if rng.random() < 0.12]
        cut = [one for one in ending if rng.random() < 0.5]
        script.append(Turn(agent, rewards, tuple(one for one in ending if one not in cut), tuple(cut)))
        left = [one for one in left if one not in ending]
    return script


class Decision(NamedTuple):
    """One decision of an agent as the official loop sees it."""

    obs: np.ndarray
    action: int
    mask: np.ndarray | None
    first: bool
    reward: float | None  # None: not known yet when the play ends
    terminated: bool
    truncated: bool
    final_obs: np.ndarray | None


def official(env, choose, num_steps):
    """Decisions of each agent in `num_steps` steps of the loop of PettingZoo's documentation; a reset takes one.

    `choose(agent, k)` is the action of its k-th decision.
    """
    decisions = {agent: [] for agent in env.possible_agents}
    steps = 0
    while steps < num_steps:
        env.reset()
        open_, begun = set(), set()
        for agent in env.agent_iter():
            obs, reward, terminated, truncated, info = env.last()
            if steps == num_steps and not (terminated or truncated):
                break
            if agent in open_:
                final = obs if terminated or truncated else None
                decisions[agent][-1] = decisions[agent][-1]._replace(
                    reward=reward, terminated=terminated, truncated=truncated, final_obs=final
                )
                open_.discard(agent)
            if terminated or truncated:
                env.step(None)
                continue
            steps += 1
            action = choose(agent, len(decisions[agent]))
            mask = info.get("action_mask")
            decisions[agent].append(Decision(obs, action, mask, agent not in begun, None, False, False, None))
            open_.add(agent)
            begun.add(agent)
            env.step(action)
        steps += 1  # the reset
    return decisions
