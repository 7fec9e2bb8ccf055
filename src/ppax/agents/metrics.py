"""Metrics of environments with several agents, under their names in logs: per agent, per group, and over all agents."""

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
# Names of an evaluation's statistics, in its scores and in its columns of log rows: taken for metrics of environments
EVALUATED = frozenset(
    {
        *("mean_return", "median_return", "std_return", "min_return", "max_return", "mean_length", "terminated"),
        *("truncated", "final_reward", "episodes", "cut", "unplayed", "eval_return", "eval_return_median"),
        *("eval_return_std", "eval_return_min", "eval_return_max", "eval_length", "eval_terminated", "eval_truncated"),
        "eval_final_reward",
    }
)
NO_STREAMS = 0  # argument of `Agent.learners` where its agents are needed, but not their numbers of streams
NAMED = 16  # largest number of players for which logs have metrics of each player
Sizes = Sequence[tuple[str, int]]  # name and number of agents of each group


def episode_metrics(
    episodes: Episodes, num_agents: int, sizes: tuple[tuple[str, int], ...], agent_names: tuple[str, ...] = ()
) -> Table:
    """Return the metrics of finished episodes: of all streams, and of each agent and group ("episode_return/agent_0").

    A stream is one agent in one environment. `num_agents` is the number of an environment's agents; `sizes` has name
    and number of agents of each group, () without groups. `agent_names` are the environment's; () if it has none.
    """
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
    """Statistics of finished episodes' returns: number, sum, sum of squared deviations from the mean, min and max.

    All fields are arrays of equal shape, such as [E, A] for E environments of A agents, [A] after `pooled(0)` over the
    environments, and [] after `pooled(0)` over the agents, too.
    """

    count: Array  # type: ignore[assignment]
    total: Array
    squares: Array  # sum of squared deviations from the mean
    lowest: Array
    highest: Array

    def pooled(self, axis: int) -> Returns:
        """Return the statistics of returns with all entries along `axis` combined to one.

        Chan et al. 1983, https://doi.org/10.1080/00031305.1983.10483115
        """
        count, total = self.count.sum(axis, keepdims=True), self.total.sum(axis, keepdims=True)
        apart = self.total / jnp.maximum(self.count, 1.0) - total / jnp.maximum(count, 1.0)
        squares = (self.squares + self.count * apart**2).sum(axis)
        return Returns(count.squeeze(axis), total.squeeze(axis), squares, self.lowest.min(axis), self.highest.max(axis))

    def of(self, places: tuple[int, ...]) -> Returns:
        """Return the statistics of returns of the agents with the indices `places` along the last axis."""
        return Returns(*(x[..., np.array(places)] for x in self))


def annealed_numbers(agent: Agent, progress: Array, env_steps: Array) -> dict[str, Array]:
    """Return the numbers that schedules change, such as the learning rate, as they are at `progress` of training.

    Keys are dotted paths such as "loss.clip_eps"; `progress` is in [0, 1], and `env_steps` is the number of valid
    environment steps so far. For independent agents the numbers are those of the first agent; for groups they are at
    "path/group", with the mean over groups at "path".
    """
    groups = [name for name, _ in agent.requires.sizes]
    tables = []
    for learner, _ in agent.learners(NO_STREAMS):
        changed = changed_numbers(learner, learner.annealed(progress, env_steps))
        tables.append({path: jnp.asarray(x, jnp.float32).mean() for path, x in changed.items()})
    return dict(of_groups(dict(zip(groups, tables, strict=True)))) if groups else tables[0]


def of_players(metrics: Mapping[str, Array], num_agents: int) -> Table:
    """Return metrics of A players (agents of an environment), [A] each, as single numbers.

    A player's number has the name "name/agent_0" and so on; the number reduced over players, as the metric declares (by
    default the mean), has the name "name".
    """
    kinds, players = dict(reductions_of(metrics)), player_names(num_agents)
    whole = {name: _reduced_over(kinds.get(name, "mean"), x) for name, x in metrics.items()}
    own = {f"{name}/{player}": x[place] for name, x in metrics.items() for place, player in enumerate(players)}
    reductions = [(f"{name}/{player}", kind) for name, kind in kinds.items() for player in players]
    return Table(whole | own, (*kinds.items(), *reductions))


def of_groups(metrics: Mapping[str, Mapping[str, Array]]) -> Table:
    """Return the metrics of all groups in one table, where the metric "name" of a group becomes "name/group".

    `metrics` are metrics by name, of each group. If an Independent trains the group, they include metrics of single
    agents, such as "name/agent_0", which becomes "name/group_0". A metric that all groups have with the same reduction
    (such as mean) is also reduced over groups, as "name".
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
    """Return the values `each` [n] of a metric, one per agent or group, reduced to one number by `reduction`.

    The reduction is max or min; for any other name it is the mean.
    """
    over: dict[str, Callable[[Array], Array]] = {"mean": jnp.mean, "max": jnp.max, "min": jnp.min}
    return over.get(reduction, jnp.mean)(each)


def player_names(num_agents: int | None) -> tuple[str, ...]:
    """Return the players' names in logs: "agent_0", "agent_1", ...; () for one player or none.

    The result is also () for more than NAMED players, the largest number that logs show singly. A player is an agent of
    an environment.
    """
    return default_names(num_agents) if num_agents and num_agents <= NAMED else ()


def with_names(metrics: Mapping[str, Array], num_agents: int, sizes: Sizes, names: Sequence[str]) -> Table:
    """Return metrics in whose keys the environment's names of its agents replace the default ones, "agent_0" and so on.

    `sizes` has name and number of agents of each group; `names` are the environment's, () if it has none.
    """
    given = default_names(dict(sizes) or num_agents)
    own = dict(zip(given, names, strict=True)) if given and names else {}

    def one(name: str) -> str:
        plain, _, player = name.partition("/")
        return f"{plain}/{own[player]}" if player in own else name

    return renamed(metrics, one)


def agent_columns(num_agents: int, sizes: Sizes, names: Sequence[str] = ()) -> dict[str, tuple[int, ...]]:
    """Return the indices of each agent and each group among an environment's agents, by their names in logs.

    `sizes` has name and number of agents of each group. An agent that is alone in its group has the name of the group.
    The agents of an environment (or group) of more than NAMED agents are not shown singly. The result is {} for one
    agent without groups.
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
    """Raise ConfigError if a group has the same name in logs as an agent that is not alone in its group.

    `sizes` has name and number of agents of each group; `names` are the agents' names. Their default names, such as
    "red_0", are not allowed for groups either: metrics have them until those of the environment replace them.
    """
    groups = [name for name, _ in sizes]
    every = [*_members(sizes, names).items(), *_members(sizes, default_names(dict(sizes))).items()]
    for group, members in every:
        for name in members if len(members) > 1 else ():
            if name in groups:
                raise ConfigError(f"{name} is a group, and an agent of the group {group}: rename the group")


def _members(sizes: Sizes, names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the agents of each group, by group.

    `sizes` has name and number of agents of each group; `names` are the names of all agents in the groups' order.
    """
    ends = [sum(size for _, size in sizes[: place + 1]) for place in range(len(sizes))]
    return {group: tuple(names[end - size : end]) for (group, size), end in zip(sizes, ends, strict=True)}
