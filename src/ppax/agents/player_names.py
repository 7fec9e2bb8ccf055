"""Names of agents and groups in logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jax import Array

from ppax.arrays.metrics import Table, renamed
from ppax.core.types import ConfigError
from ppax.envs.wrappers.agent_groups import default_names

NAMED = 16  # largest number of players for which logs have metrics of each player
Sizes = Sequence[tuple[str, int]]


def player_names(num_agents: int | None) -> tuple[str, ...]:
    """Return the names that an agent gives its players, "agent_0" and so on; () for one player, or more than NAMED."""
    return default_names(num_agents) if num_agents and num_agents <= NAMED else ()


def require_distinct_names(sizes: Sizes, names: Sequence[str]) -> None:
    """Raise ConfigError if a group has the same name in logs as an agent that is not alone in its group."""
    groups = [name for name, _ in sizes]
    for group, members in _members(sizes, names).items():
        for name in members if len(members) > 1 else ():
            if name in groups:
                raise ConfigError(f"{name} is a group, and an agent of the group {group}: rename the group")


def agent_columns(num_agents: int, sizes: Sizes, names: Sequence[str] = ()) -> dict[str, tuple[int, ...]]:
    """Return the indices of each agent and group among an environment's agents, by name in logs.

    An agent that is alone in its group has the name of the group; groups of more than NAMED agents have no names of
    agents.
    """
    names = names or default_names(dict(sizes) or num_agents)
    if not sizes:
        return {name: (place,) for place, name in enumerate(names)} if 1 < num_agents <= NAMED else {}
    columns: dict[str, tuple[int, ...]] = {}
    begin = 0
    for group, members in _members(sizes, names).items():
        columns[group] = tuple(range(begin, begin + len(members)))
        if 1 < len(members) <= NAMED:
            columns |= {name: (begin + place,) for place, name in enumerate(members)}
        begin += len(members)
    return columns


def with_names(metrics: Mapping[str, Array], num_agents: int, sizes: Sizes, names: Sequence[str]) -> Table:
    """Return metrics with the environment's names of the agents in place of those that an agent gives its players."""
    given = default_names(dict(sizes) or num_agents)
    own = dict(zip(given, names, strict=True)) if given and names else {}

    def one(name: str) -> str:
        plain, _, player = name.partition("/")
        return f"{plain}/{own[player]}" if player in own else name

    return renamed(metrics, one)


def _members(sizes: Sizes, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the agents of each group."""
    ends = [sum(size for _, size in sizes[: place + 1]) for place in range(len(sizes))]
    return {group: tuple(names[end - size : end]) for (group, size), end in zip(sizes, ends, strict=True)}
