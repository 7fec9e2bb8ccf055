"""Single policies out of an agent that has several (Independent, Groups), and agents without extensions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
from gymnasium import spaces

from ppax.agents.independent import Independent
from ppax.core.types import PyTree, Rollout
from ppax.ppo.ppo import PPO


class SinglePolicy(NamedTuple):
    """One policy out of an agent that has several, with its learner, memory, environment and share of a rollout."""

    name: str  # of its group or player
    agent: Any
    learner: PyTree
    carry: PyTree  # memory at the start of the rollout
    rollout: Rollout
    env: PolicyEnv


class PolicyEnv(NamedTuple):
    """Spaces and sizes of an environment as one policy out of several sees them."""

    observation_space: spaces.Space
    action_space: spaces.Space
    num_envs: int
    num_streams: int


def single_policies(
    agent: Any, env: Any, learner: Any, carry: Any, rollout: Rollout, num_envs: int
) -> Iterator[SinglePolicy]:
    """Yield each policy of a Groups or an Independent agent, with its share of a rollout in `env`.

    `carry` is the memory at the rollout's start. In each result, the field `env` has spaces and sizes of `num_envs`
    environments as this policy sees them.
    """
    if not env.sizes:
        everything = SinglePolicy("", agent, learner, carry, rollout, _env_of(env, num_envs, env.num_agents))
        yield from _players(everything, env.agent_names)
    else:
        begin = 0
        for name, size in env.sizes:
            names, begin = env.agent_names[begin : begin + size], begin + size
            own = _env_of(env.groups[name], num_envs, size)
            group = SinglePolicy(
                name, agent.agents[name], learner[name], carry[name], agent.rollout(name, rollout), own
            )
            if isinstance(group.agent, Independent):
                yield from _players(group, names)
            else:
                yield group


def _players(one: SinglePolicy, names: Sequence[str]) -> Iterator[SinglePolicy]:
    """Yield the policy of each player (agent of an environment) of `one`, which holds an Independent agent.

    `names` are the players' names.
    """
    agent: Independent = one.agent
    rollouts = agent.rollouts(one.rollout)  # [A, ...]
    carries = agent.own(jax.tree.map(lambda x: x[None], one.carry))  # [A, 1, E, ...]
    env = one.env._replace(num_streams=one.env.num_envs)
    for place, name in enumerate(names):
        learner, rollout = (jax.tree.map(lambda x: x[place], x) for x in (one.learner, rollouts))  # noqa: B023
        carry = jax.tree.map(lambda x: x[place, 0], carries)  # noqa: B023
        yield SinglePolicy(name, agent.player(place), learner, carry, rollout, env)


def _env_of(env: Any, num_envs: int, size: int) -> PolicyEnv:
    return PolicyEnv(env.observation_space, env.action_space, num_envs, num_envs * size)


def without_extensions(agent: Any) -> Any:
    """Return `agent` without its extensions, for callers that need the actions of the policy itself.

    Evaluations and the past selves of self-play act in this way. An extension may change actions: that of DAgger
    replaces some of them by a teacher's.
    """

    def one(node: Any) -> Any:
        return dataclasses.replace(node, extensions=()) if isinstance(node, PPO) else node

    return jax.tree.map(one, agent, is_leaf=lambda node: isinstance(node, PPO))
