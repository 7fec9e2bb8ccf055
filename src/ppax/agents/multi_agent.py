"""Checks that an agent fits its environment, and names of agents and groups in logs."""

from __future__ import annotations

from collections.abc import Sequence

from ppax.agents.independent import names
from ppax.envs import Env
from ppax.ppo import PPO
from ppax.protocols import Agent as Agent
from ppax.types import ConfigError


def require_fit(agent: Agent, env: Env) -> None:
    """Raise ConfigError unless `env` has the agents, groups and number of environments that `agent` requires."""
    where, kind, (num_agents, sizes, num_envs) = env.name or "the environment", type(agent).__name__, agent.requires
    if bool(sizes) != bool(env.sizes):
        listed = ", ".join(f"{group} ({size})" for group, size in env.sizes)
        raise ConfigError(
            f"{where} has groups of agents, {listed}: write ppax.Groups({{...}}, env.sizes)"
            if env.sizes
            else f"{kind}: {where} has no groups; write ppax.envs.grouped(env, {{name: [0, ...], ...}}) around it; "
            "environments on the host take a PPO, one policy for all agents, or an Independent, one for each"
        )
    if sizes != tuple(env.sizes):
        raise ConfigError(f"Groups has sizes {sizes}, {where} has {tuple(env.sizes)}; write Groups(agents, env.sizes)")
    require_names(sizes)
    if num_agents not in (None, env.num_agents):
        raise ConfigError(
            f"{kind} has {num_agents} players, {where} has {env.num_agents} agents; "
            f"write Independent(agent, {env.num_agents})"
        )
    if num_envs not in (None, env.num_envs):
        raise ConfigError(
            f"{kind}.num_envs = {num_envs}: {where} has num_envs = {env.num_envs}; "
            f"write {kind}(groups, pool, env.num_envs)"
        )


def require_names(sizes: Sequence[tuple[str, int]]) -> None:
    """Raise ConfigError if a group has the same name in logs as an agent of another group."""
    groups = [name for name, _ in sizes]
    for group, size in sizes:
        for player in names(size):
            if f"{group}_{player[6:]}" in groups:
                raise ConfigError(
                    f"{group}_{player[6:]} is a group, and an agent of the group {group}: rename the group"
                )


def agent_columns(num_agents: int, sizes: Sequence[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Return the indices of each agent and group among an environment's agents, by name in logs."""
    if not sizes:
        return {name: (place,) for place, name in enumerate(names(num_agents))}
    columns: dict[str, tuple[int, ...]] = {}
    begin = 0
    for group, size in sizes:
        columns[group] = tuple(range(begin, begin + size))
        columns |= {f"{group}_{name[6:]}": (begin + place,) for place, name in enumerate(names(size))}
        begin += size
    return columns


def require_single_policy(agent: Agent, what: str) -> PPO:
    """Return `agent` if it is a PPO (one policy for all streams); else raise ConfigError that `what` needs one."""
    if isinstance(agent, PPO):
        return agent
    raise ConfigError(f"{what} works with one policy for all agents; this run has {type(agent).__name__}")
