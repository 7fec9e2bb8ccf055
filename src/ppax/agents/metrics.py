"""Metrics of several agents in logs: finished episodes, names of players and groups, and reductions over them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.arrays.metrics import Table, reduced, reductions_of, renamed
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, Episodes
from ppax.devices import sharding
from ppax.envs.wrappers.agent_groups import default_names
from ppax.ppo.schedules import changed_numbers

EPISODE_METRICS = (
    *("episodes", "episode_return", "episode_length"),
    *("episode_return_std", "episode_return_min", "episode_return_max"),
)
NO_STREAMS = 0  # argument of `Agent.learners` where its agents are needed, but not their numbers of streams
NAMED = 16  # largest number of players for which logs have metrics of each player
Sizes = Sequence[tuple[str, int]]  # name and number of agents of each group


def episode_metrics(
    episodes: Episodes, num_agents: int, sizes: tuple[tuple[str, int], ...], agent_names: tuple[str, ...] = ()
) -> Table:
    """Return metrics of finished episodes: of all streams, and of each agent and group ("episode_return/agent_0")."""
    none = episodes.count == 0
    lowest, highest = jnp.where(none, jnp.inf, episodes.return_min), jnp.where(none, -jnp.inf, episodes.return_max)
    columns = [episodes.count, episodes.return_sum, episodes.return_squares, lowest, highest]
    returns = Returns(*(x.astype(jnp.float32).reshape(-1, num_agents) for x in columns)).pooled(0)
    others = jnp.stack([x.reshape(-1, num_agents).sum(0) for x in _sums(episodes)])
    # [D, 5 + k, A] gathered from all devices: squared deviations and extremes cannot be pooled by a sum over devices
    whole = sharding.gather(jnp.concatenate([jnp.stack(returns), others])[None])
    returns, others = Returns(*jnp.moveaxis(whole[:, :5], 1, 0)).pooled(0), whole[:, 5:].sum(axis=0)
    names, table = ["episode_length", *episodes.metrics], Table({})
    columns_of = {"": tuple(range(num_agents))} | agent_columns(num_agents, sizes, agent_names)
    for player, places in columns_of.items():
        suffix = f"/{player}" if player else ""
        own = returns.of(places).pooled(0)
        table |= reduced("sum", {f"episodes{suffix}": own.count})
        table |= reduced("per_episode", {f"episode_return{suffix}": own.total})
        sums = others[:, np.array(places)].sum(axis=1)
        table |= reduced("per_episode", {name + suffix: x for name, x in zip(names, sums, strict=True)})
        table |= reduced(f"std episode_return{suffix}", {f"episode_return_std{suffix}": own.squares})
        table |= reduced("min", {f"episode_return_min{suffix}": own.lowest})
        table |= reduced("max", {f"episode_return_max{suffix}": own.highest})
    return table


def _sums(episodes: Episodes) -> list[Array]:
    return [x.astype(jnp.float32) for x in (episodes.length_sum, *episodes.metrics.values())]


class Returns(NamedTuple):
    """Returns of finished episodes: their number, sum, squared deviations from their mean, and extremes."""

    count: Array  # type: ignore[assignment]
    total: Array
    squares: Array  # sum of squared deviations from the mean
    lowest: Array
    highest: Array

    def pooled(self, axis: int) -> Returns:
        """Pool along an axis: Chan et al. 1983, https://doi.org/10.1080/00031305.1983.10483115."""
        count, total = self.count.sum(axis, keepdims=True), self.total.sum(axis, keepdims=True)
        apart = self.total / jnp.maximum(self.count, 1.0) - total / jnp.maximum(count, 1.0)
        squares = (self.squares + self.count * apart**2).sum(axis)
        return Returns(count.squeeze(axis), total.squeeze(axis), squares, self.lowest.min(axis), self.highest.max(axis))

    def of(self, places: tuple[int, ...]) -> Returns:
        """Select columns along the last axis."""
        return Returns(*(x[..., np.array(places)] for x in self))


def annealed_numbers(agent: Agent, progress: Array, env_steps: Array) -> dict[str, Array]:
    """Return the numbers that schedules change, by path, at `progress` of training and after `env_steps` steps.

    For independent players they are the first player's; for groups `path/group`, with the mean over groups as `path`.
    """
    groups = [name for name, _ in agent.requires.sizes]
    tables = []
    for learner, _ in agent.learners(NO_STREAMS):
        changed = changed_numbers(learner, learner.annealed(progress, env_steps))
        tables.append({path: jnp.asarray(x, jnp.float32).mean() for path, x in changed.items()})
    return dict(of_groups(dict(zip(groups, tables, strict=True)))) if groups else tables[0]


def of_players(metrics: Mapping[str, Array], num_agents: int) -> Table:
    """Return a table of metrics [A]: reduced over players as `name`, and of each player as `name/agent_0`."""
    kinds, players = dict(reductions_of(metrics)), player_names(num_agents)
    whole = {name: _reduced_over(kinds.get(name, "mean"), x) for name, x in metrics.items()}
    own = {f"{name}/{player}": x[place] for name, x in metrics.items() for place, player in enumerate(players)}
    reductions = [(f"{name}/{player}", kind) for name, kind in kinds.items() for player in players]
    return Table(whole | own, (*kinds.items(), *reductions))


def of_groups(metrics: Mapping[str, Mapping[str, Array]]) -> Table:
    """Merge the groups' metrics into one table.

    Each is named `name/group`, of a single player `name/group_0`. The plain `name` is the reduction over groups, where
    all groups have the metric and reduce it alike.
    """
    kinds = {group: dict(reductions_of(own)) for group, own in metrics.items()}
    every = [
        {(name, kinds[group].get(name, "mean")) for name in own if "/" not in name} for group, own in metrics.items()
    ]
    common = sorted(set.intersection(*every))
    out = {name: _reduced_over(kind, jnp.stack([own[name] for own in metrics.values()])) for name, kind in common}
    reductions = dict(common)
    for group, own in metrics.items():
        for name, x in own.items():
            plain, slash, player = name.partition("/")
            full = f"{plain}/{group}{player.removeprefix('agent') if slash else ''}"
            out[full], reductions[full] = x, kinds[group].get(name, "mean")
    return Table(out, tuple((name, kind) for name, kind in reductions.items() if kind != "mean"))


def _reduced_over(reduction: str, each: Array) -> Array:
    """Reduce a metric of players or groups [n] to one value by its declared reduction; mean by default."""
    over: dict[str, Callable[[Array], Array]] = {"mean": jnp.mean, "max": jnp.max, "min": jnp.min}
    return over.get(reduction, jnp.mean)(each)


def player_names(num_agents: int | None) -> tuple[str, ...]:
    """Return the names that an agent gives its players, "agent_0" and so on; () for one player, or more than NAMED."""
    return default_names(num_agents) if num_agents and num_agents <= NAMED else ()


def with_names(metrics: Mapping[str, Array], num_agents: int, sizes: Sizes, names: Sequence[str]) -> Table:
    """Return metrics with the environment's names of the agents in place of those that an agent gives its players."""
    given = default_names(dict(sizes) or num_agents)
    own = dict(zip(given, names, strict=True)) if given and names else {}

    def one(name: str) -> str:
        plain, _, player = name.partition("/")
        return f"{plain}/{own[player]}" if player in own else name

    return renamed(metrics, one)


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


def require_distinct_names(sizes: Sizes, names: Sequence[str]) -> None:
    """Raise ConfigError if a group has the same name in logs as an agent that is not alone in its group."""
    groups = [name for name, _ in sizes]
    for group, members in _members(sizes, names).items():
        for name in members if len(members) > 1 else ():
            if name in groups:
                raise ConfigError(f"{name} is a group, and an agent of the group {group}: rename the group")


def _members(sizes: Sizes, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the agents of each group."""
    ends = [sum(size for _, size in sizes[: place + 1]) for place in range(len(sizes))]
    return {group: tuple(names[end - size : end]) for (group, size), end in zip(sizes, ends, strict=True)}
