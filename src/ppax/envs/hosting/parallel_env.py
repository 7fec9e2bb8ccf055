"""PettingZoo's parallel environments of agents that are alike, as arrays with an axis of agents.

https://pettingzoo.farama.org/api/parallel. Nothing else of ppax is imported: worker processes get this by value.

An agent whose part is over is absent: its rows are not valid until all begin anew. The step with which it ends still
counts, its reward too. An agent that comes later begins its episode then. A step in which an agent was absent changes
nothing of its observation here, so what stands there is finite.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces


@runtime_checkable
class ParallelEnv(Protocol):
    """By what PettingZoo's `ParallelEnv` is told; `agents`, those that are there, it may have after a reset only."""

    possible_agents: Sequence[Any]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Begin an episode."""

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """One step of all agents that are there."""

    def observation_space(self, agent: Any) -> spaces.Space:
        """Of one agent."""

    def action_space(self, agent: Any) -> spaces.Space:
        """Of one agent."""

    def close(self) -> None:
        """Close it."""


OWN, AGENT, JOINT = "own", "agent", "joint"  # entries of an observation, where agents and critic see more than that


class UnlikeAgents(ValueError):
    """The agents do not have the same spaces."""


class NoVector(ValueError):
    """Observations are not of numbers alone."""


class Team:
    """All agents of a parallel environment, in the order of its `possible_agents`: A of them.

    With `agent_ids` or `central_critic` observations are dicts as those of team_view.TeamView: "own", "agent", "joint".
    Raises UnlikeAgents where their spaces differ, and NoVector where "joint" cannot be made.
    """

    def __init__(
        self,
        factory: Callable[..., ParallelEnv],
        agent_ids: bool = False,
        central_critic: bool = False,
        **options: Any,
    ):
        self.env: Any = factory(**options)
        self.names = list(self.env.possible_agents)
        self.num_agents = len(self.names)
        looks = self._alike("observation_space")
        # an observation of two entries, as board games have it: what is seen, and what is allowed
        self.masked = isinstance(looks, spaces.Dict) and set(looks.spaces) == {"observation", "action_mask"}
        self._own = looks["observation"] if self.masked else looks
        self._agent_ids, self._central_critic = agent_ids, central_critic
        self.observation_space = self._entries() if agent_ids or central_critic else self._own
        self.action_space = self._alike("action_space")
        self._there = np.zeros(self.num_agents, bool)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode: observations [A, ...]; `info["begun"]` [A] says which agents are there."""
        obs, infos = self.env.reset(seed=seed, options=options)
        self._last = [_mapped(np.zeros_like, self._own.sample()) for _ in self.names]
        self._masks: list[Any] = [None] * self.num_agents
        self._there = self._present()
        self._see(obs, infos, self._there)
        return self._looks(self._there, self._there)

    def step(self, actions: Sequence[Any]) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One step: everything with an axis of agents [A]; `info["valid"]`: those that acted."""
        valid = self._there
        given = {name: actions[i] for i, name in enumerate(self.names) if valid[i]}
        obs, rewards, terminations, truncations, infos = self.env.step(given)
        earned = [rewards.get(name, 0.0) if valid[i] else 0.0 for i, name in enumerate(self.names)]
        terminated, truncated = (
            np.array([bool(flags.get(name, False)) for name in self.names]) & valid
            for flags in (terminations, truncations)
        )
        ended, present = terminated | truncated, self._present()
        for i in np.flatnonzero(valid & ~present & ~ended):
            raise ValueError(f"agent {self.names[i]!r} has left without being terminated or truncated")
        self._there = present & ~(valid & ended)
        for i in np.flatnonzero(truncated & ~terminated):
            if self.names[i] not in obs:
                raise ValueError(
                    f"agent {self.names[i]!r} was truncated without a last observation: the value beyond is unknown"
                )
        seen = self._there | (valid & ended)  # who ends here is still seen, at its end
        self._see(obs, infos, seen)
        looks, info = self._looks(self._there & ~valid, seen)
        reward = np.array(earned, np.float32)
        return looks, reward, terminated, truncated, info | {"valid": valid, "over": not self._there.any()}

    def render(self) -> Any:
        """What the environment draws."""
        return self.env.render()

    def close(self) -> None:
        """Close it."""
        self.env.close()

    def _present(self) -> np.ndarray:
        there = set(self.env.agents)
        return np.array([name in there for name in self.names])

    def _see(self, obs: dict, infos: dict, seen: np.ndarray) -> None:
        """Keep what those agents see that are given anything."""
        for i, name in enumerate(self.names):
            if not (seen[i] and name in obs):
                continue
            mask = obs[name]["action_mask"] if self.masked else (infos.get(name) or {}).get("action_mask")
            self._last[i] = _mapped(np.array, obs[name]["observation"] if self.masked else obs[name])  # copies
            self._masks[i] = None if mask is None else np.asarray(mask, bool).reshape(-1)

    def _looks(self, begun: np.ndarray, seen: np.ndarray) -> tuple[Any, dict[str, Any]]:
        info: dict[str, Any] = {"begun": begun}
        given = [mask for mask in self._masks if mask is not None]
        if given:  # absent agents may do anything
            there = zip(self._masks, self._there, strict=True)
            free = np.ones_like(given[0])
            info["action_mask"] = np.stack([free if mask is None or not is_there else mask for mask, is_there in there])
        own = _stacked(self._last)
        if not self._agent_ids and not self._central_critic:
            return own, info
        looks: dict[str, Any] = {OWN: own}
        if self._agent_ids:
            looks[AGENT] = np.arange(self.num_agents)
        if self._central_critic:
            rows = [np.concatenate([np.ravel(x).astype(np.float32) for x in _leaves(one)]) for one in self._last]
            joint = np.where(seen[:, None], np.stack(rows), np.float32(0)).reshape(-1)
            looks[JOINT] = np.tile(joint, (self.num_agents, 1))
        return looks, info

    def _entries(self) -> spaces.Dict:
        entries: dict[str, spaces.Space] = {OWN: self._own}
        if self._agent_ids:
            entries[AGENT] = spaces.Discrete(self.num_agents)
        if self._central_critic:
            shape = (self.num_agents * _numbers(self._own),)
            entries[JOINT] = spaces.Box(-np.inf, np.inf, shape, np.float32)
        return spaces.Dict(entries)

    def _alike(self, name: str) -> spaces.Space:
        found = [getattr(self.env, name)(agent) for agent in self.names]
        for agent, space in zip(self.names, found, strict=True):
            if space != found[0]:
                raise UnlikeAgents(f"{name} of {agent!r} is {space}, of {self.names[0]!r} {found[0]}")
        return found[0]


def _numbers(space: spaces.Space) -> int:
    """How many numbers an element has."""
    if isinstance(space, spaces.Dict):
        return sum(map(_numbers, space.spaces.values()))
    if isinstance(space, spaces.Box):
        return int(np.prod(space.shape))
    raise NoVector(f"observations are of {space}; a vector is made of Box and Dict of Box only")


def _leaves(obs: Any) -> list[Any]:
    """The arrays of an observation, in the order of its keys."""
    return [leaf for key in sorted(obs) for leaf in _leaves(obs[key])] if isinstance(obs, dict) else [obs]


def _mapped(function: Callable[[Any], Any], obs: Any) -> Any:
    """`function` of every array of an observation."""
    if isinstance(obs, dict):
        return {key: _mapped(function, x) for key, x in obs.items()}
    return tuple(_mapped(function, x) for x in obs) if isinstance(obs, tuple) else function(obs)


def _stacked(parts: Sequence[Any]) -> Any:
    """Trees of arrays as one, with an axis before the others."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: _stacked([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked(inner) for inner in zip(*parts, strict=True))
    return np.stack(parts)
