"""PettingZoo's turn-based environments (AEC: agent-environment cycle) as environments of all agents, of which one acts.

https://pettingzoo.farama.org/api/aec. This file imports nothing else of ppax: it is pickled by value for workers.

At each step the agent whose turn it is acts, and all others wait: they observe, and their rewards and ends of episodes
are those of the step, as `rewards`, `terminations` and `truncations` of the environment say. The learner adds them up
over the turns of others (training/host/turn_based.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from gymnasium import spaces


@runtime_checkable
class TurnBasedEnv(Protocol):
    """Protocol of PettingZoo's `AECEnv`: the methods that a parallel environment does not have, and those used here."""

    possible_agents: Sequence[Any]

    def reset(self, seed: int | None = None, options: dict | None = None) -> None:
        """Reset the environment."""

    def step(self, action: Any) -> None:
        """Step the agent whose turn it is."""

    def observe(self, agent: Any) -> Any:
        """Return the observation of one agent."""

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict]:
        """Return observation, rewards since its last turn, flags and info of the agent whose turn it is."""

    def agent_iter(self, max_iter: int = 2**63) -> Any:
        """Iterate over the agents, turn by turn."""

    def observation_space(self, agent: Any) -> spaces.Space:
        """Observation space of one agent."""

    def action_space(self, agent: Any) -> spaces.Space:
        """Action space of one agent."""

    def close(self) -> None:
        """Close the environment."""


class Turns:
    """Turn-based environment with the interface of a parallel one; `acting` is the agent whose turn it is."""

    def __init__(self, factory: Callable[..., TurnBasedEnv], **options: Any):
        self.env: Any = factory(**options)
        self.possible_agents = list(self.env.possible_agents)
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.metadata = getattr(self.env, "metadata", None) or {}

    @property
    def agents(self) -> list[Any]:
        """Agents whose episode is running."""
        return [agent for agent in self.env.agents if not self._ended(agent)]

    @property
    def acting(self) -> Any:
        """Agent whose turn it is; None after the last turn."""
        return self.env.agent_selection if self.env.agents else None

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Reset: observations and infos by agent."""
        self.env.reset(seed=seed, options=options)
        self._remove_ended()
        return {agent: self.env.observe(agent) for agent in self.agents}, dict(self.env.infos)

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Step the agent whose turn it is: observations, rewards, terminations, truncations, infos of all agents."""
        (action,) = actions.values()
        self.env.step(action)
        results = (
            dict(self.env.rewards),
            dict(self.env.terminations),
            dict(self.env.truncations),
            dict(self.env.infos),
        )
        final = {agent: self.env.observe(agent) for agent in self.env.agents if self._ended(agent)}
        self._remove_ended()
        seen = {agent: self.env.observe(agent) for agent in self.agents}  # masks belong to the next turn
        infos = results[3] | dict(self.env.infos)
        return final | seen, *results[:3], infos

    def render(self) -> Any:
        """Return the environment's own picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _ended(self, agent: Any) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _remove_ended(self) -> None:
        """Take the turns of agents whose episode has ended: they remove themselves."""
        while self.env.agents and self._ended(self.env.agent_selection):
            self.env.step(None)
