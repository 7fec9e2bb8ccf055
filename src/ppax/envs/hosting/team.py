"""Environments of PettingZoo, parallel and turn-based, as arrays with an agent axis.

https://pettingzoo.farama.org/api/parallel, https://pettingzoo.farama.org/api/aec. This file imports nothing else of
ppax: it is pickled by value for workers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
from gymnasium import spaces

MASKED = {"observation", "action_mask"}  # entries of an observation with its mask, as in board games
# attributes of PettingZoo's `ParallelEnv`; `agents`, those present, may exist only after a reset
PARALLEL_ENV = ("possible_agents", "reset", "step", "observation_space", "action_space", "close")
# of its `AECEnv`: the last three are not those of a parallel environment
AEC_ENV = (*PARALLEL_ENV, "observe", "last", "agent_iter")
OWN, AGENT, JOINT = "own", "agent", "joint"  # entries of an observation with agent_ids or central_critic


class HeterogeneousAgents(ValueError):
    """Error of agents that must have the same spaces and do not."""


class NotFlattenable(ValueError):
    """Error of observations that cannot be flattened to a vector of numbers."""


class Team:
    """Environment of PettingZoo as arrays with an axis of its A agents, in the order of `possible_agents`.

    An agent whose episode has ended is absent: its rows are not valid until the environment resets. The step that ends
    its episode is valid, with its reward. An agent that appears later starts its episode then. While an agent is absent
    its row keeps the last observation, so that the row stays finite. Of a turn-based environment (`Turns`) only the
    agent whose turn it is acts: the rows of those that wait are not valid.

    `players` are groups of agents, by name, with their indices: members of a group have equal spaces. With groups,
    spaces are Dict, and observations and masks are dicts by group, [A_g, ...] for the A_g agents of a group. Rewards,
    flags and actions stay arrays or lists of all A agents, ordered by group: the agents of the first group, then those
    of the second. With `agent_ids` or `central_critic` an observation is a dict: "own", the agent's observation; with
    `agent_ids` "agent", its index in `possible_agents`; with `central_critic` "joint", the observations of all agents
    in the order of `possible_agents`. Raises HeterogeneousAgents if spaces differ that must be equal, NotFlattenable if
    observations cannot be flattened for "joint".
    """

    def __init__(
        self,
        factory: Callable[..., Any],
        agent_ids: bool = False,
        central_critic: bool = False,
        players: Sequence[tuple[str, Sequence[int]]] = (),
        turns: bool = False,
        **options: Any,
    ):
        self.env: Any = factory(**options)
        self.turns = turns  # agents act in turns: `env.acting` is the one whose turn it is
        possible = list(self.env.possible_agents)
        self._agent_ids, self._central_critic = agent_ids, central_critic
        groups = [[possible[i] for i in members] for _, members in players]
        for alike in groups or [possible]:
            if found := difference(self.env, alike):
                raise HeterogeneousAgents(found)
        self.sizes = tuple((name, len(members)) for name, members in players)
        self.names = [agent for members in groups for agent in members] or possible
        self.num_agents = len(self.names)
        self._numbers = np.array([possible.index(agent) for agent in self.names])  # places in `possible_agents`
        seen = [self.env.observation_space(agent) for agent in self.names]
        self._masked = [isinstance(one, spaces.Dict) and set(one.spaces) == MASKED for one in seen]
        # any other Dict with a mask is an observation of all its entries
        self._gives_mask = [isinstance(one, spaces.Dict) and "action_mask" in one.spaces for one in seen]
        self.own_spaces = [
            one["observation"] if masked else one for one, masked in zip(seen, self._masked, strict=True)
        ]
        self.actions = [self.env.action_space(agent) for agent in self.names]  # action space of each agent
        seen = [self._entries(one) for one in self.own_spaces] if agent_ids or central_critic else self.own_spaces
        self.observation_space = self._together(seen, itemgetter(0), spaces.Dict)
        self.action_space = self._together(self.actions, itemgetter(0), spaces.Dict)
        self._active = np.zeros(self.num_agents, bool)  # agents whose episode is running
        self._acting = self._active  # those that act next: all of them, or the one whose turn it is
        self._begun = self._active  # those that have acted in their episode

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict[str, Any]]:
        """Return observations [A, ...] of all A agents and info after a reset.

        `info["agent_first"]` [A] marks agents whose episode is new; an agent that waits for its first turn stays marked
        until it has acted. `info["acting"]` [A] marks those that act next.
        """
        obs, infos = self.env.reset(seed=seed, options=options)
        self._last = [_zeros(space) for space in self.own_spaces]
        self._masks: list[Any] = [None] * self.num_agents
        self._active, self._begun = self._present(), np.zeros(self.num_agents, bool)
        self._acting = self._next_to_act()
        self._store(obs, infos, self._active)
        return self._observe(self._active)

    def step(self, actions: Sequence[Any]) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Return the result of a step with an action for each of the A agents; all arrays have an agent axis [A].

        `info["valid"]` [A] marks the agents that acted.
        """
        valid, playing = self._acting, self._active
        given = {name: actions[i] for i, name in enumerate(self.names) if valid[i]}
        obs, rewards, terminations, truncations, infos = self.env.step(given)
        own_rewards = [rewards.get(name, 0.0) if playing[i] else 0.0 for i, name in enumerate(self.names)]
        terminated, truncated = (
            np.array([bool(flags.get(name, False)) for name in self.names]) & playing
            for flags in (terminations, truncations)
        )
        ended, present = terminated | truncated, self._present()
        for i in np.flatnonzero(playing & ~present & ~ended):
            raise ValueError(f"agent {self.names[i]!r} has left without being terminated or truncated")
        self._active = present & ~(playing & ended)
        self._acting, self._begun = self._next_to_act(), (self._begun | valid) & self._active
        for i in np.flatnonzero(truncated & ~terminated):
            if self.names[i] not in obs:
                raise ValueError(
                    f"agent {self.names[i]!r} was truncated without a last observation: the value beyond is unknown"
                )
        observing = self._active | (playing & ended)  # with the final observations of agents that end here
        self._store(obs, infos, observing)
        final, info = self._observe(observing)
        reward = np.array(own_rewards, np.float32)
        info |= {"valid": valid, "over": not self._active.any()}
        info["agent_infos"] = [infos.get(name) or {} for name in self.names]
        return final, reward, terminated, truncated, info

    def masks_of(self, info: dict[str, Any]) -> list[Any]:
        """Return a list of the agents' action masks from `info`, with None for an agent that has none."""
        given = info.get("action_mask")
        if given is None:
            return [None] * self.num_agents
        if not self.sizes:
            return list(given)
        return [mask for name, size in self.sizes for mask in (given[name] or [None] * size)]

    def render(self) -> Any:
        """Return the picture that PettingZoo's environment draws of itself."""
        return self.env.render()

    def close(self) -> None:
        """Close PettingZoo's environment."""
        self.env.close()

    def _present(self) -> np.ndarray:
        """Return which of the A agents are present according to the environment, [A] bool."""
        agents = set(self.env.agents)
        return np.array([name in agents for name in self.names])

    def _next_to_act(self) -> np.ndarray:
        """Return which of the A agents act next, [A] bool.

        These are the agents whose episode runs; in a turn-based environment only the one whose turn it is.
        """
        turn = np.array([name == self.env.acting for name in self.names]) if self.turns else True
        return self._active & turn

    def _store(self, obs: dict, infos: dict, observing: np.ndarray) -> None:
        """Keep the latest observation and mask of those of the A agents that are marked in `observing` [A].

        Agents without an observation in `obs` keep an earlier one.
        """
        for i, name in enumerate(self.names):
            if not (observing[i] and name in obs):
                continue
            masked = self._masked[i]
            mask = obs[name]["action_mask"] if self._gives_mask[i] else (infos.get(name) or {}).get("action_mask")
            self._last[i] = _mapped(np.array, obs[name]["observation"] if masked else obs[name])  # copies
            self._masks[i] = copy.deepcopy(mask)

    def _observe(self, observing: np.ndarray) -> tuple[Any, dict[str, Any]]:
        """Return observations [A, ...] of all A agents, and an info with masks and with flags of new and acting agents.

        In "joint", the concatenated observations of all agents, agents that are not marked in `observing` [A] count as
        zeros.
        """
        info: dict[str, Any] = {"agent_first": self._active & ~self._begun, "acting": self._acting}
        if self.sizes or any(mask is not None for mask in self._masks):
            pairs = list(zip(self._masks, self._acting, strict=True))
            info["action_mask"] = self._together(pairs, _of_acting)
        return self._together(self._views(observing), _stacked), info

    def _views(self, observing: np.ndarray) -> list[Any]:
        """Return a list with each agent's observation, with the entries that agent_ids and central_critic add.

        Agents that are not marked in `observing`, one flag for each agent, count as zeros in the joint observation.
        """
        if not self._agent_ids and not self._central_critic:
            return self._last
        views: list[dict[str, Any]] = [{OWN: own} for own in self._last]
        if self._agent_ids:
            for view, number in zip(views, self._numbers, strict=True):
                view[AGENT] = number
        if self._central_critic:
            rows = [np.concatenate([np.ravel(x).astype(np.float32) for x in _leaves(one)]) for one in self._last]
            seen = [row if there else np.zeros_like(row) for row, there in zip(rows, observing, strict=True)]
            joint = np.concatenate([seen[i] for i in np.argsort(self._numbers)])
            for view in views:
                view[JOINT] = joint
        return views

    def _together(self, each: Sequence[Any], join: Callable[[Sequence[Any]], Any], by_group: Any = dict) -> Any:
        """Return `join(each)`, where `each` has a value for every agent; with groups, `join` of each group's values.

        `join` stacks observations, for example, or takes one of several equal spaces. With groups, the result is by
        group, in a `spaces.Dict` or a `dict`, whichever `by_group` is.
        """
        if not self.sizes:
            return join(each)
        ends = np.cumsum([size for _, size in self.sizes]).tolist()
        return by_group({name: join(each[end - n : end]) for (name, n), end in zip(self.sizes, ends, strict=True)})

    def _entries(self, own: spaces.Space) -> spaces.Dict:
        """Return the space of an agent's observation: `own`, and the entries that agent_ids and central_critic add."""
        entries: dict[str, spaces.Space] = {OWN: own}
        if self._agent_ids:
            entries[AGENT] = spaces.Discrete(self.num_agents)
        if self._central_critic:
            entries[JOINT] = spaces.Box(-np.inf, np.inf, (sum(map(_numbers, self.own_spaces)),), np.float32)
        return spaces.Dict(entries)


class Turns:
    """Turn-based environment of PettingZoo with the interface of a parallel one, in which one agent acts at each step.

    `acting` is the agent whose turn it is. All other agents wait; they get an observation, a reward and ends of
    episodes at every step, too, from `observe`, `rewards`, `terminations` and `truncations` of the environment. The
    learner adds up an agent's rewards over the turns of all others (training/host/streams.py).
    """

    def __init__(self, factory: Callable[..., Any], **options: Any):
        self.env: Any = factory(**options)
        self.possible_agents = list(self.env.possible_agents)
        self.observation_space, self.action_space = self.env.observation_space, self.env.action_space
        self.metadata = getattr(self.env, "metadata", None) or {}

    @property
    def agents(self) -> list[Any]:
        """Agents of the turn-based environment whose episode is running."""
        return [agent for agent in self.env.agents if not self._ended(agent)]

    @property
    def acting(self) -> Any:
        """Agent whose turn it is; None after the last turn of an episode."""
        return self.env.agent_selection if self.env.agents else None

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        """Return observations and infos by agent after a reset."""
        self.env.reset(seed=seed, options=options)
        self._remove_ended()
        return {agent: self.env.observe(agent) for agent in self.agents}, dict(self.env.infos)

    def step(self, actions: dict) -> tuple[dict, dict, dict, dict, dict]:
        """Return observations, rewards, terminations, truncations and infos by agent after one turn.

        `actions` has the action of the agent whose turn it is.
        """
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
        """Return the picture that PettingZoo's environment draws of itself."""
        return self.env.render()

    def close(self) -> None:
        """Close PettingZoo's environment."""
        self.env.close()

    def _ended(self, agent: Any) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _remove_ended(self) -> None:
        """Step past the turns of agents whose episode has ended, with the action None; PettingZoo then removes them."""
        while self.env.agents and self._ended(self.env.agent_selection):
            self.env.step(None)


def is_parallel(env: Any) -> bool:
    """Return whether an environment has all attributes of PettingZoo's `ParallelEnv`; True for turn-based ones, too.

    To tell the two apart, ask `is_turn_based`.
    """
    return all(hasattr(env, name) for name in PARALLEL_ENV)


def is_turn_based(env: Any) -> bool:
    """Return whether an environment has the interface of PettingZoo's `AECEnv`."""
    return all(hasattr(env, name) for name in AEC_ENV)


def difference(env: Any, agents: Sequence[Any]) -> str | None:
    """Return a text of the first difference between the spaces of these agents of `env`; None if they are equal."""
    for name in ("observation_space", "action_space"):
        each = [getattr(env, name)(agent) for agent in agents]
        for agent, space in zip(agents, each, strict=True):
            if space != each[0]:
                return f"{name} of {agent!r} is {space}, of {agents[0]!r} {each[0]}"
    return None


def _of_acting(masks: Sequence[tuple[Any, bool]]) -> list[Any] | None:
    """Return the masks of the agents that act next, in a list with None in place of every other agent's mask.

    `masks` has a pair (last mask, acts next) for each agent. The result is None if no agent has a mask.
    """
    known = any(mask is not None for mask, _ in masks)
    return [mask if acts else None for mask, acts in masks] if known else None


def _zeros(space: spaces.Space) -> Any:
    """Return an element of zeros of an observation space."""
    if isinstance(space, spaces.Dict):
        return {key: _zeros(inner) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(map(_zeros, space.spaces))
    return np.zeros(space.shape, space.dtype)  # type: ignore[arg-type]


def _numbers(space: spaces.Space) -> int:
    """Return how many numbers an element of `space` has as a vector; NotFlattenable if it cannot be one."""
    if isinstance(space, spaces.Dict):
        return sum(map(_numbers, space.spaces.values()))
    if isinstance(space, spaces.Box):
        return int(np.prod(space.shape))
    raise NotFlattenable(f"observations are of {space}; a vector is made of Box and Dict of Box only")


def _leaves(obs: Any) -> list[Any]:
    """Return a list of the arrays of an observation, in the sorted order of its keys."""
    return [leaf for key in sorted(obs) for leaf in _leaves(obs[key])] if isinstance(obs, dict) else [obs]


def _mapped(function: Callable[[Any], Any], obs: Any) -> Any:
    """Return an observation with `function` applied to each of its arrays."""
    if isinstance(obs, dict):
        return {key: _mapped(function, x) for key, x in obs.items()}
    return tuple(_mapped(function, x) for x in obs) if isinstance(obs, tuple) else function(obs)


def _stacked(parts: Sequence[Any]) -> Any:
    """Return trees of arrays as one tree, stacked along a new leading axis."""
    first = parts[0]
    if isinstance(first, dict):
        return {key: _stacked([part[key] for part in parts]) for key in first}
    if isinstance(first, tuple):
        return tuple(_stacked(inner) for inner in zip(*parts, strict=True))
    return np.stack(parts)
