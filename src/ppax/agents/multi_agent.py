"""Who learns: one policy for all agents, each player its own, or unlike groups; and what they are called."""

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
HostAgent = PPO | Independent  # what environments on the host can have


def require_fit(agent: Agent, num_agents: int, sizes: Sequence[tuple[str, int]], name: str) -> None:
    """ConfigError where `agent` is not one for an environment of so many agents, in groups of these sizes."""
    where = name or "the environment"
    agent = agent.agent if isinstance(agent, SelfPlay) else agent
    if isinstance(agent, Groups) != bool(sizes):
        there = ", ".join(f"{group} ({size})" for group, size in sizes)
        raise ConfigError(
            f"{where} has groups of agents, {there}: write ppax.Groups({{...}}, env.sizes)"
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
    """ConfigError where two groups, or a group and an agent of another, have one name in the logs."""
    there = [name for name, _ in sizes]
    for group, size in sizes:
        for player in names(size):
            if f"{group}_{player[6:]}" in there:
                raise ConfigError(
                    f"{group}_{player[6:]} is a group, and an agent of the group {group}: name it otherwise"
                )


def agent_columns(num_agents: int, sizes: Sequence[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Places of each agent and group among an environment's agents, by their names in the logs."""
    if not sizes:
        return {name: (place,) for place, name in enumerate(names(num_agents))}
    found: dict[str, tuple[int, ...]] = {}
    begin = 0
    for group, size in sizes:
        found[group] = tuple(range(begin, begin + size))
        found |= {f"{group}_{name[6:]}": (begin + place,) for place, name in enumerate(names(size))}
        begin += size
    return found


def sharing_of(agent: Agent) -> str:
    """Whether agents that are alike share their weights, as run files call it (config_groups.py)."""
    if isinstance(agent, SelfPlay):
        return sharing_of(agent.agent)
    if isinstance(agent, Groups):
        inner = {sharing_of(one) for one in agent.agents.values()}
        return "independent" if inner == {"independent"} else "shared"
    return "independent" if isinstance(agent, Independent) else "shared"


def with_program(agent: Agent, program: Program) -> Agent:
    """The same agent, laid out otherwise."""
    if isinstance(agent, SelfPlay):
        return agent  # always on one device
    if isinstance(agent, Groups):
        agents: dict[str, Any] = {name: with_program(one, program) for name, one in agent.agents.items()}
        return dataclasses.replace(agent, agents=agents)
    if isinstance(agent, Independent):
        return dataclasses.replace(agent, agent=dataclasses.replace(agent.agent, program=program))
    return dataclasses.replace(agent, program=program)


def with_devices(agent: Agent, devices: int) -> Agent:
    """The same agent, split over so many devices."""
    if isinstance(agent, Groups):
        agents: dict[str, Any] = {name: with_devices(one, devices) for name, one in agent.agents.items()}
        return dataclasses.replace(agent, agents=agents)
    if isinstance(agent, SelfPlay):
        return with_program(agent, Program())  # leaves it as it is
    one = agent.agent if isinstance(agent, Independent) else agent
    return with_program(agent, dataclasses.replace(one.program, devices=devices))


def pool_of(agent: Agent) -> Pool:
    """How the groups play against past selves; `every` is None where they do not."""
    return agent.pool if isinstance(agent, SelfPlay) else Pool()


def require_host_agent(agent: Agent) -> HostAgent:
    """`agent`, if all that it acts for are alike; ConfigError that environments on the host need that."""
    if isinstance(agent, HostAgent):
        return agent
    kind = type(agent).__name__
    usable = "one policy for all agents, or Independent, one for each"
    raise ConfigError(f"an environment on the host works with {usable}; this run has {kind}")


def require_single_policy(agent: Agent, what: str) -> PPO:
    """`agent`, if it is one for all streams; ConfigError that `what` needs that."""
    if isinstance(agent, PPO):
        return agent
    raise ConfigError(f"{what} works with one policy for all agents; this run has {type(agent).__name__}")
