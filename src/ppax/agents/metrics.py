"""Metrics of an iteration other than those of the update: finished episodes, and numbers that schedules change."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.agents.groups import of_groups
from ppax.agents.player_names import agent_columns
from ppax.arrays.metrics import Table, reduced
from ppax.core.protocols import Agent
from ppax.core.types import Episodes
from ppax.devices import sharding
from ppax.ppo.schedules import changed_numbers

EPISODE_METRICS = (
    *("episodes", "episode_return", "episode_length"),
    *("episode_return_std", "episode_return_min", "episode_return_max"),
)
NO_STREAMS = 0  # argument of `Agent.learners` where its agents are needed, but not their numbers of streams


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
