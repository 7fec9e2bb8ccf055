"""Views: wrappers that change what agents observe of the environment and of their team."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs.hosting.team import AGENT, JOINT, OWN
from ppax.envs.wrappers.agent_groups import count_agents, slices
from ppax.envs.wrappers.wrapper import Wrapper

# Partial observability: a wrapper that hides entries of a vector observation, so that the task requires memory.


@part
class PartialView(Wrapper):
    """Wrapper of `env` that returns only the observation entries at the indices `seen`."""

    seen: tuple[int, ...] = static("indices of the observation entries that the agent sees", low=0)

    @property
    def observation_space(self) -> spaces.Space:
        """Space of observations: a Box of the visible entries."""
        space = self.env.observation_space
        assert isinstance(space, spaces.Box)
        seen = list(self.seen)
        return spaces.Box(space.low[..., seen], space.high[..., seen], dtype=space.dtype)  # type: ignore[arg-type]

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment, with the visible entries of its observation."""
        start = self.env.reset(key)
        return start._replace(obs=start.obs[..., np.array(self.seen)])

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment, with the visible entries of its observation."""
        step = self.env.step(state, action, key)
        return step._replace(obs=step.obs[..., np.array(self.seen)])


SEEN = "seen"  # parameter that any compiled environment with vector observations may get


def partial_view(env: Environment, seen: Any, name: str) -> PartialView:
    """Return `env` with only the observation entries at the indices `seen`; `name` is its name in errors.

    Raises ConfigError for observations that are no vector, and for indices that are not in it.
    """
    space, path = env.observation_space, f"env_params.{SEEN}"
    if isinstance(env.num_agents, dict) or not isinstance(space, spaces.Box) or len(space.shape) != 1:
        raise ConfigError(
            f"{path}: chooses entries of an observation that is one vector; those of {name} are {space}; leave it out"
        )
    size = space.shape[0]
    indices = [seen] if type(seen) is int else list(seen) if isinstance(seen, list | tuple) else []
    if not indices or not all(type(i) is int and 0 <= i < size for i in indices) or len(set(indices)) < len(indices):
        raise ConfigError(
            f"{path} = {seen!r}: must be different indices from 0 to {size - 1}, as {list(range(min(size, 2)))}: the "
            f"entries of the observation of {name} that the agent sees"
        )
    return PartialView(env, tuple(indices))


# Agent indices and joint observations: additional observation entries for a shared policy and a central critic.
#
# A shared policy with the agent's index as input: Foerster et al. 2016, https://arxiv.org/abs/1605.06676.
# A critic of the joint observation, with actors of their own observations (MAPPO): Yu et al. 2022, https://arxiv.org/abs/2103.01955.


class TeamState(NamedTuple):
    """State of the inner environment, and which of its A agents' episodes have ended, [A]."""

    inner: PyTree
    out: Array  # [A] the agent's episode ended in an earlier step; its observation has no meaning


@part
class TeamView(Wrapper):
    """Wrapper of `env` with dict observations: "own", and optionally "agent" and "joint". Create it with `team_view`.

    "own" is the agent's observation in `env`, and "agent" the agent's index, an integer of the space Discrete(A) with A
    agents. "joint" is the same for all agents: `global_state` of the environment if it has one, else the concatenated
    observations of all agents, with zeros for agents whose episode has ended. Where `env` has groups of agents, spaces
    and observations are dicts by group.
    """

    agent_ids: bool = static("add the agent's index to its observation")
    joint_size: int = static("size of the joint observation for the critic; 0: none", default=0, low=0)

    @property
    def observation_space(self) -> spaces.Dict:
        """Space of one agent's observation: a Dict of "own", and of "agent" and "joint" if the wrapper adds them.

        With groups of agents it is a Dict of these, by group.
        """
        seen: Any = self.env.observation_space
        if not isinstance(self.num_agents, dict):
            return self._space(seen)
        return spaces.Dict({name: self._space(seen[name]) for name in self.num_agents})

    def _space(self, own: spaces.Space) -> spaces.Dict:
        entries: dict[str, spaces.Space] = {OWN: own}
        if self.agent_ids:
            entries[AGENT] = spaces.Discrete(count_agents(self.num_agents))
        if self.joint_size:
            entries[JOINT] = spaces.Box(-np.inf, np.inf, (self.joint_size,), np.float32)
        return spaces.Dict(entries)

    @property
    def num_agents(self) -> int | dict[str, int]:
        """Number of agents of the inner environment; with groups of agents, of each group by name."""
        agents = self.env.num_agents
        return agents if isinstance(agents, dict) else count_agents(agents)

    @property
    def central_critic(self) -> bool:
        """Whether the critic sees the joint observation of all agents."""
        return self.joint_size > 0

    @property
    def actor_obs(self) -> tuple[str, ...]:
        """Entries of the observation that an actor may read: all except "joint"."""
        return (OWN, AGENT) if self.agent_ids else (OWN,)

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment, with dict observations."""
        start = self.env.reset(key)
        out = jnp.zeros(count_agents(self.num_agents), bool)
        obs = self._observe(start, out)
        return start._replace(state=TeamState(start.state, out), obs=obs, global_state=None)

    def inside(self, state: TeamState) -> tuple[Environment, PyTree]:
        """Return the inner environment and its state."""
        return self.env, state.inner

    def step(self, state: TeamState, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment, with dict observations."""
        step = self.env.step(state.inner, action, key)
        obs = self._observe(step, state.out)  # includes final observations of agents that end in this step
        out = state.out | step.terminated | step.truncated
        return step._replace(state=TeamState(step.state, out), obs=obs, global_state=None)

    def _observe(self, now: EnvReset | EnvStep, out: Array) -> dict[str, PyTree]:
        """Return observations of all A agents with the additional entries, [A, ...] each; with groups a dict by group.

        Agents that are marked in `out` [A], as their episode has ended, count as zeros in "joint".
        """
        count = count_agents(self.num_agents)
        added: dict[str, Array] = {}
        if self.agent_ids:
            added[AGENT] = jnp.arange(count, dtype=_dtype(spaces.Discrete(count)))
        if self.joint_size:
            joint = _joint(self.num_agents, now.obs, out) if now.global_state is None else _flat(now.global_state, 0)
            added[JOINT] = jnp.broadcast_to(joint, (count, self.joint_size))
        if not isinstance(self.num_agents, dict):
            return {OWN: now.obs, **added}
        rows = slices(self.num_agents)
        return {name: {OWN: now.obs[name]} | {key: x[rows[name]] for key, x in added.items()} for name in rows}


def team_view(env: Environment, agent_ids: bool, central_critic: bool, name: str) -> Environment:
    """Return `env` with agent indices (`agent_ids`) or a joint observation (`central_critic`) added to observations.

    It is `env` itself if neither is requested. `name` is the name of `env` in errors. Raises ConfigError for
    environments with one agent, and with observations that cannot be flattened to a vector.
    """
    if not agent_ids and not central_critic:
        return env
    option = "agent_ids" if agent_ids else "central_critic"
    if env.num_agents is None:
        raise ConfigError(f"{option} = true: {name} has one agent and no others; set it to false")
    if not central_critic:
        return TeamView(env, agent_ids)
    start = jax.eval_shape(env.reset, jax.random.key(0))
    if start.global_state is None and not _is_numbers(env.observation_space):
        raise ConfigError(
            f"central_critic = true: {name} gives observations of {env.observation_space}; a vector is made of Box and "
            "Dict of Box only. Let the environment give `global_state` in EnvReset and EnvStep, or set it to false"
        )
    out = jax.ShapeDtypeStruct((count_agents(env.num_agents),), bool)
    joint = jax.eval_shape(partial(_joint, env.num_agents), start.obs, out) if start.global_state is None else None
    size = joint.size if joint is not None else sum(x.size for x in jax.tree.leaves(start.global_state))
    return TeamView(env, agent_ids, size)


def _joint(num_agents: int | dict[str, int] | None, obs: PyTree, out: Array) -> Array:
    """Return the observations [A, ...] of all A agents as one vector, with zeros for agents marked in `out` [A].

    `num_agents` is that of the environment. With groups, `num_agents` and `obs` are dicts by group, and the vectors of
    the groups follow each other.
    """
    if not isinstance(num_agents, dict):
        return jnp.where(out[:, None], 0.0, _flat(obs, 1)).reshape(-1)
    rows = slices(num_agents)
    return jnp.concatenate([_joint(size, obs[name], out[rows[name]]) for name, size in num_agents.items()])


def _flat(tree: PyTree, axes: int) -> Array:
    """Return all leaves of a tree as one float32 array: their first `axes` axes are kept, all others flattened.

    The flattened leaves are concatenated along the last axis.
    """
    return jnp.concatenate([x.reshape(*x.shape[:axes], -1).astype(jnp.float32) for x in jax.tree.leaves(tree)], axes)


def _is_numbers(space: spaces.Space) -> bool:
    """Return whether the space consists of Box only, and so can be flattened to a vector."""
    if isinstance(space, spaces.Dict):
        return all(map(_is_numbers, space.spaces.values()))
    return isinstance(space, spaces.Box)


def _dtype(space: spaces.Space) -> np.dtype:
    """Return the dtype that elements of `space` have in JAX: 32 bits unless JAX_ENABLE_X64 is set."""
    return np.dtype(jax.dtypes.canonicalize_dtype(space.dtype))
