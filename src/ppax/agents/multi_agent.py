"""The Agent type: PPO (one policy for all), Independent, Groups or SelfPlay; checks and names in logs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ppax.agents.groups import Groups
from ppax.agents.independent import Independent, names
from ppax.agents.opponents import Pool
from ppax.agents.self_play import SelfPlay
from ppax.ppo import PPO
from ppax.program.layout import Program
from ppax.types import ConfigError

Agent = PPO | Independent | Groups | SelfPlay
HostAgent = PPO | Independent  # agents that work with host environments


def require_fit(agent: Agent, num_agents: int, sizes: Sequence[tuple[str, int]], name: str) -> None:
    """Raise ConfigError unless `agent` fits the environment's number of agents and groups (`env.sizes`)."""
    where = name or "the environment"
    agent = agent.agent if isinstance(agent, SelfPlay) else agent
    if isinstance(agent, Groups) != bool(sizes):
        listed = ", ".join(f"{group} ({size})" for group, size in sizes)
        raise ConfigError(
            f"{where} has groups of agents, {listed}: write ppax.Groups({{...}}, env.sizes)"
            if sizes
            else f"Groups: {where} has no groups; write ppax.envs.grouped(env, {{name: [0, ...], ...}}) around it"
        )
    if isinstance(agent, Groups) and agent.sizes != tuple(sizes):
        raise ConfigError(
            f"Groups has sizes {agent.sizes}, {where} has {tuple(sizes)}; write Groups(agents, env.sizes)"
        )
    require_names(sizes)
    if isinstance(agent, Independent) and agent.num_agents != num_agents:
        raise ConfigError(
            f"Independent has {agent.num_agents} players, {where} has {num_agents} agents; "
            f"write Independent(agent, {num_agents})"
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


def sharing_of(agent: Agent) -> str:
    """Return "shared" or "independent": the weight sharing of `agent`, as written in run files."""
    if isinstance(agent, SelfPlay):
        return sharing_of(agent.agent)
    if isinstance(agent, Groups):
        inner = {sharing_of(one) for one in agent.agents.values()}
        return "independent" if inner == {"independent"} else "shared"
    return "independent" if isinstance(agent, Independent) else "shared"


def with_program(agent: Agent, program: Program) -> Agent:
    """Return `agent` with another program layout; SelfPlay, which always runs on one device, unchanged."""
    if isinstance(agent, SelfPlay):
        return agent
    if isinstance(agent, Groups):
        agents: dict[str, Any] = {name: with_program(one, program) for name, one in agent.agents.items()}
        return dataclasses.replace(agent, agents=agents)
    if isinstance(agent, Independent):
        return dataclasses.replace(agent, agent=dataclasses.replace(agent.agent, program=program))
    return dataclasses.replace(agent, program=program)


def with_devices(agent: Agent, devices: int) -> Agent:
    """Return `agent` with `program.devices` set to `devices`; SelfPlay unchanged."""
    if isinstance(agent, Groups):
        agents: dict[str, Any] = {name: with_devices(one, devices) for name, one in agent.agents.items()}
        return dataclasses.replace(agent, agents=agents)
    if isinstance(agent, SelfPlay):
        return with_program(agent, Program())  # unchanged
    one = agent.agent if isinstance(agent, Independent) else agent
    return with_program(agent, dataclasses.replace(one.program, devices=devices))


def pool_of(agent: Agent) -> Pool:
    """Return the pool of past selves; an agent without self-play has `Pool(every=None)`."""
    return agent.pool if isinstance(agent, SelfPlay) else Pool()


def require_host_agent(agent: Agent) -> HostAgent:
    """Return `agent` if it is a PPO or Independent, as host environments need; else raise ConfigError."""
    if isinstance(agent, HostAgent):
        return agent
    kind = type(agent).__name__
    usable = "one policy for all agents, or Independent, one for each"
    raise ConfigError(f"host environments work with {usable}; this run has {kind}")


def require_single_policy(agent: Agent, what: str) -> PPO:
    """Return `agent` if it is a PPO (one policy for all streams); else raise ConfigError that `what` needs one."""
    if isinstance(agent, PPO):
        return agent
    raise ConfigError(f"{what} works with one policy for all agents; this run has {type(agent).__name__}")
