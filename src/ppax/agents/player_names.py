"""Names of agents and groups in logs."""

from __future__ import annotations

from collections.abc import Sequence

from ppax.types import ConfigError

NAMED = 16  # largest number of players for which logs have metrics of each player


def player_names(num_agents: int | None) -> tuple[str, ...]:
    """Return the players' names in metrics, "agent_0" and so on; () for one player, or more than NAMED."""
    return tuple(f"agent_{i}" for i in range(num_agents)) if num_agents and 1 < num_agents <= NAMED else ()


def require_distinct_names(sizes: Sequence[tuple[str, int]]) -> None:
    """Raise ConfigError if a group has the same name in logs as an agent of another group."""
    groups = [name for name, _ in sizes]
    for group, size in sizes:
        for player in player_names(size):
            if f"{group}_{player[6:]}" in groups:
                raise ConfigError(
                    f"{group}_{player[6:]} is a group, and an agent of the group {group}: rename the group"
                )


def agent_columns(num_agents: int, sizes: Sequence[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Return the indices of each agent and group among an environment's agents, by name in logs."""
    if not sizes:
        return {name: (place,) for place, name in enumerate(player_names(num_agents))}
    columns: dict[str, tuple[int, ...]] = {}
    begin = 0
    for group, size in sizes:
        columns[group] = tuple(range(begin, begin + size))
        columns |= {f"{group}_{name[6:]}": (begin + place,) for place, name in enumerate(player_names(size))}
        begin += size
    return columns
