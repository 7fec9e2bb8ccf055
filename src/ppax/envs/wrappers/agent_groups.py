"""Groups of agents: what an environment is whose agents are unlike, and agents that are alike dealt out to groups.

`num_agents` is then a dict of how many there are in each group. Spaces are Dict, observations, actions and masks dicts
by the same names, [A_g, ...] each; rewards and ends are [A], the groups one after the other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import where_rows
from ppax.types import ConfigError, Environment, EnvReset, EnvStep, Key, PyTree, part, static


class Group(NamedTuple):
    """What a network for the agents of one group is made for."""

    observation_space: spaces.Space
    action_space: spaces.Space
    num_agents: int
    actor_obs: tuple[str, ...]  # entries of a Dict observation that are not for the critic alone; (): all


def count(num_agents: Any) -> int:
    """All agents of an environment, 1 where there is no axis of them."""
    return sum(num_agents.values()) if isinstance(num_agents, Mapping) else num_agents or 1


def slices(num_agents: Mapping[str, int]) -> dict[str, slice]:
    """Where each group stands among all agents."""
    ends = np.cumsum(list(num_agents.values())).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(num_agents.items(), ends, strict=True)}


def where_agents(num_agents: Any, mask: Array, yes: PyTree, no: PyTree) -> PyTree:
    """`yes` for the agents where `mask` [A], or [] without an axis, `no` for the others; trees as environments have."""
    if not isinstance(num_agents, Mapping) or yes is None:
        return where_rows(mask, yes, no)
    every = slices(num_agents)
    return {name: where_rows(mask[every[name]], tree, no[name]) for name, tree in yes.items()}


@part
class Grouped:
    """`env`, whose agents, all alike, are dealt out to groups. Make it with `grouped`."""

    env: Environment
    players: tuple[tuple[str, tuple[int, ...]], ...] = static("name of each group, and its agents' numbers")

    @property
    def num_agents(self) -> dict[str, int]:
        """How many are in each group."""
        return {name: len(places) for name, places in self.players}

    @property
    def observation_space(self) -> spaces.Dict:
        """That of `env`, for each group."""
        return spaces.Dict({name: self.env.observation_space for name, _ in self.players})

    @property
    def action_space(self) -> spaces.Dict:
        """That of `env`, for each group."""
        return spaces.Dict({name: self.env.action_space for name, _ in self.players})

    def reset(self, key: Key) -> EnvReset:
        """Reset `env`."""
        start = self.env.reset(key)
        return start._replace(obs=self._deal(start.obs), action_mask=self._deal(start.action_mask))

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Step `env`."""
        order = self._order()
        dealt = (action[name] for name, _ in self.players)
        step = self.env.step(state, jax.tree.map(lambda *x: jnp.concatenate(x)[np.argsort(order)], *dealt), key)
        return step._replace(
            obs=self._deal(step.obs),
            action_mask=self._deal(step.action_mask),
            reward=step.reward[order],
            terminated=step.terminated[order],
            truncated=step.truncated[order],
        )

    def _order(self) -> np.ndarray:
        """The agents' numbers, group by group."""
        return np.array([place for _, places in self.players for place in places])

    def _deal(self, tree: PyTree | None) -> PyTree | None:
        if tree is None:
            return None
        return {name: jax.tree.map(lambda x, own=own: x[np.array(own)], tree) for name, own in self.players}


def grouped(env: Any, players: Mapping[str, Sequence[int]]) -> Any:
    """`env`, a VectorEnv or one environment, with its agents in groups of these names; {} leaves it as it is.

    Raises ConfigError where an agent is in no group, in two, or is not there.
    """
    if not players:
        return env
    inner = env.env if hasattr(env, "num_envs") else env
    there, name = inner.num_agents, getattr(env, "name", "") or type(inner).__name__
    if not isinstance(there, int):
        has = "groups of its own" if isinstance(there, Mapping) else "one agent and no others"
        raise ConfigError(f"groups: {name} has {has}; leave `players` out")
    dealt = sorted(place for places in players.values() for place in places)
    if dealt != list(range(there)) or not all(players.values()):
        raise ConfigError(
            f"groups: {dict(players)} must have each of the {there} agents of {name}, 0 to {there - 1}, once, and no "
            "group may be empty"
        )
    inner = Grouped(inner, tuple((group, tuple(places)) for group, places in players.items()))
    return dataclasses.replace(env, env=inner) if hasattr(env, "num_envs") else inner
