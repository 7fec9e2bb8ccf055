"""Policies of an agent with several: each one's part of a rollout, which the checks of one policy read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
from gymnasium import spaces

from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.player_names import player_names
from ppax.agents.self_play import SelfPlay
from ppax.checks.context import CheckContext, make_context
from ppax.protocols import Agent
from ppax.types import ConfigError, PyTree, Rollout


class MemberEnv(NamedTuple):
    """Spaces and sizes of an environment as one policy sees them."""

    observation_space: spaces.Space
    action_space: spaces.Space
    num_envs: int
    num_streams: int


class Member(NamedTuple):
    """One policy: its name, agent, learner and memory, its part of a rollout, and its environment."""

    name: str
    agent: Any
    learner: PyTree
    carry: PyTree  # at the start of the rollout
    rollout: Rollout
    env: MemberEnv

    def context(self, whole: CheckContext) -> CheckContext:
        """Return the context of this policy's checks."""
        actor = whole.actor._replace(carry=self.carry)
        own = make_context(self.agent, self.env, self.learner, actor, whole.key, self.rollout)
        return own._replace(env=self.env)


def require_members(agent: Agent) -> None:
    """Raise ConfigError for self-play, whose streams change their policies."""
    if isinstance(agent, SelfPlay):
        raise ConfigError(
            "selftest: with self-play past selves act in some environments, so that no check of a rollout (ratio, "
            "replay, gradients, ...) can be made; leave [self_play] out to check the groups"
        )


def members_of(whole: CheckContext, num_envs: int) -> Iterator[Member]:
    """Yield the policies of a context with several, with sizes for `num_envs` environments."""
    agent: Any = whole.agent
    env = whole.env
    everything = Member("", agent, whole.learner, whole.actor.carry, whole.rollout, _env_of(env, num_envs, 1))
    if isinstance(agent, Independent):
        yield from _players(everything, player_names(agent.num_agents))
    elif isinstance(agent, Groups):
        for name, size in agent.sizes:
            learner: Any = whole.learner
            rollout = agent.rollout(name, whole.rollout)
            own = _env_of(env.groups[name], num_envs, size)
            group = Member(name, agent.agents[name], learner[name], whole.actor.carry[name], rollout, own)
            if isinstance(group.agent, Independent):
                yield from _players(group, [f"{name}_{i}" for i in range(size)])
            else:
                yield group


def _players(one: Member, names: Any) -> Iterator[Member]:
    """Yield the players of independent learning."""
    agent: Independent = one.agent
    steps, last_value, trace, *of_streams = one.rollout
    by_row, by_stream = agent.own((steps, trace)), (last_value, one.carry, *of_streams)
    first_rows = agent.own(jax.tree.map(lambda x: x[None], by_stream))  # [A, 1, E, ...]
    env = one.env._replace(num_streams=one.env.num_envs)
    for place, name in enumerate(names):
        (own_steps, own_trace), learner = (jax.tree.map(lambda x: x[place], x) for x in (by_row, one.learner))  # noqa: B023
        value, carry, *others = jax.tree.map(lambda x: x[place, 0], first_rows)  # noqa: B023
        yield Member(name, agent.player(place), learner, carry, Rollout(own_steps, value, own_trace, *others), env)


def _env_of(env: Any, num_envs: int, size: int) -> MemberEnv:
    return MemberEnv(env.observation_space, env.action_space, num_envs, num_envs * size)
