"""Groups of agents with different spaces, and a wrapper that splits agents with equal spaces into groups.

In an environment with groups `num_agents` is a dict with the number of agents in each group. Spaces are Dict;
observations, actions and masks are dicts with the same keys, [A_g, ...] each for the A_g agents of a group; rewards and
ends of all A agents are [A], ordered by group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import where_rows
from ppax.core.options import require_group_name
from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs.wrappers.wrapper import Wrapper


class Group(NamedTuple):
    """Group of agents that share a policy: spaces, number of agents, and entries of observations that the actor reads.

    A network is made for a group as for an environment: `network(group)`.
    """

    observation_space: spaces.Space
    action_space: spaces.Space
    num_agents: int
    actor_obs: tuple[str, ...]  # entries of a Dict observation that the actor may read; (): all


@part
class Grouped(Wrapper):
    """Wrapper of `env` that splits agents with equal spaces into groups. Create it with `ppax.envs.grouped`."""

    players: tuple[tuple[str, tuple[int, ...]], ...] = static("name of each group, and the indices of its agents")

    @property
    def num_agents(self) -> dict[str, int]:
        """Number of agents in each group, by the group's name."""
        return {name: len(indices) for name, indices in self.players}

    @property
    def agent_names(self) -> tuple[str, ...] | None:
        """Names of the inner environment's agents, ordered by group; None if they have no names."""
        names = own_names(self.env)
        return None if names is None else tuple(names[i] for i in self._order())

    @property
    def observation_space(self) -> spaces.Dict:
        """Dict with the observation space of one agent of each group."""
        return spaces.Dict({name: self.env.observation_space for name, _ in self.players})

    @property
    def action_space(self) -> spaces.Dict:
        """Dict with the action space of one agent of each group."""
        return spaces.Dict({name: self.env.action_space for name, _ in self.players})

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment, with observations and masks split by group."""
        start = self.env.reset(key)
        return start._replace(obs=self._split(start.obs), action_mask=self._split(start.action_mask))

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of `env` with the actions of all groups, by group.

        Observations and masks are split by group; rewards, ends and metrics of agents are ordered by group.
        """
        order = self._order()
        each = (action[name] for name, _ in self.players)
        step = self.env.step(state, jax.tree.map(lambda *x: jnp.concatenate(x)[np.argsort(order)], *each), key)
        return step._replace(
            obs=self._split(step.obs),
            action_mask=self._split(step.action_mask),
            reward=step.reward[order],
            terminated=step.terminated[order],
            truncated=step.truncated[order],
            metrics={name: x[order] if x.ndim else x for name, x in step.metrics.items()},
        )

    def _order(self) -> np.ndarray:
        """Return the indices of the inner environment's A agents, ordered by group, [A]."""
        return np.array([index for _, indices in self.players for index in indices])

    def _split(self, tree: PyTree | None) -> PyTree | None:
        """Return a tree of all A agents, [A, ...], as a dict by group of trees of its A_g agents, [A_g, ...].

        None is returned for None.
        """
        if tree is None:
            return None
        return {name: jax.tree.map(lambda x, own=own: x[np.array(own)], tree) for name, own in self.players}


def split_agents(env: Environment, players: Mapping[str, Sequence[int | str]], name: str) -> Grouped:
    """Return the environment `env`, called `name`, with its agents split into groups.

    `players` are the agents of each group, names or indices. Raises ConfigError as `grouped` does.
    """
    num_agents = env.num_agents
    if not isinstance(num_agents, int):
        has = "groups of its own" if isinstance(num_agents, Mapping) else "one agent and no others"
        raise ConfigError(f"groups: {name} has {has}; leave `players` out")
    names = own_names(env) or default_names(num_agents)
    return Grouped(env, partition(players, num_agents, name, names))


def partition(
    players: Mapping[str, Sequence[int | str]], num_agents: int, name: str, names: Sequence[str]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Return `players` as pairs of group and indices; ConfigError unless each agent is in exactly one group.

    `players` has the agents of each group by their indices, or by their `names`; `name` is that of the environment.
    Raises ConfigError for invalid names of groups, too.
    """
    for group, members in players.items():
        require_group_name(group)
        if isinstance(members, str):
            raise ConfigError(f"groups: {group} = {members!r}: must be a list; nearest valid value: {[members]}")
    for one in (one for members in players.values() for one in members if isinstance(one, str) and one not in names):
        raise ConfigError(f"groups: {name} has no agent {one!r}; there are {', '.join(names)}")
    numbers = {one: index for index, one in enumerate(names)}
    chosen = {
        group: tuple(numbers[one] if isinstance(one, str) else one for one in members)
        for group, members in players.items()
    }
    given = sorted(index for indices in chosen.values() for index in indices)
    if given != list(range(num_agents)) or not all(chosen.values()):
        raise ConfigError(
            f"groups: {dict(players)} must have each of the {num_agents} agents of {name}, 0 to {num_agents - 1}, "
            "once, and no group may be empty"
        )
    return tuple(chosen.items())


def agent_groups_of(env: Any) -> dict[str, Group]:
    """Return the groups of a VectorEnv or HostEnv by name; {} if its agents form no groups."""
    seen, actions = env.observation_space, env.action_space
    return {name: Group(seen[name], actions[name], size, env.actor_obs) for name, size in env.sizes}


def count_agents(num_agents: Any) -> int:
    """Return the number of all agents of an environment.

    `num_agents` is that of the environment: a number, a dict of numbers by group, or None without an agent axis (1).
    """
    return sum(num_agents.values()) if isinstance(num_agents, Mapping) else num_agents or 1


def default_names(num_agents: Any) -> tuple[str, ...]:
    """Return names for agents that have none: "agent_0", with groups "prey_0"; () for one agent."""
    if isinstance(num_agents, Mapping):
        return tuple(f"{name}_{i}" for name, size in num_agents.items() for i in range(size))
    return () if count_agents(num_agents) == 1 else tuple(f"agent_{i}" for i in range(num_agents))


def without_number(name: str) -> str:
    """Return the name of an agent without its number, "red_0" as "red": the name of its group."""
    return name.rstrip("0123456789").rstrip("_")


def own_names(env: Any) -> tuple[str, ...] | None:
    """Return the `agent_names` of an environment or of the one that it wraps; None if neither has any."""
    names = getattr(env, "agent_names", None)
    if names is not None:
        return tuple(map(str, names))
    inner = getattr(env, "env", None)
    return None if inner is None else own_names(inner)


def own_limit(env: Any, name: str) -> int | None:
    """Return the attribute `name`, "max_num_envs" or "max_horizon", of an environment or of the one that it wraps.

    It is None if neither has the attribute. Raises ConfigError unless it is a whole number of at least 1.
    """
    limit, inner = getattr(env, name, None), getattr(env, "env", None)
    if limit is None:
        return None if inner is None else own_limit(inner, name)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise ConfigError(f"{name} of {type(env).__name__} = {limit!r}: must be a whole number of at least 1, or None")
    return limit


def slices(num_agents: Mapping[str, int]) -> dict[str, slice]:
    """Return the slice of the agent axis that belongs to each group, from the number of agents in each."""
    ends = np.cumsum(list(num_agents.values())).tolist()
    return {name: slice(end - size, end) for (name, size), end in zip(num_agents.items(), ends, strict=True)}


def where_agents(num_agents: Any, mask: Array, yes: PyTree, no: PyTree) -> PyTree:
    """Return `yes` for agents where `mask` is True and `no` for all other agents; None if `yes` is None.

    `mask` is [A] for A agents, or [] without an agent axis; `yes` and `no` are trees [A, ...], or dicts by group of
    trees of the group's agents. `num_agents` is that of the environment.
    """
    if not isinstance(num_agents, Mapping) or yes is None:
        return where_rows(mask, yes, no)
    rows = slices(num_agents)
    return {name: where_rows(mask[rows[name]], tree, no[name]) for name, tree in yes.items()}
