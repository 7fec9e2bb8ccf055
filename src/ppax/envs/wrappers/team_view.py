"""What an agent sees beside its own observation: who it is, and, for a central critic, what all of them see.

One policy for all agents that is told which of them it is: Foerster et al. 2016, https://arxiv.org/abs/1605.06676.
A critic that sees everything while each actor sees its own (MAPPO): Yu et al. 2022, https://arxiv.org/abs/2103.01955.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.hosting.parallel_env import AGENT, JOINT, OWN
from ppax.envs.wrappers.agent_groups import count
from ppax.types import ConfigError, Environment, EnvReset, EnvStep, Key, PyTree, part, static


class TeamState(NamedTuple):
    """The environment's own state, and who is out."""

    inner: PyTree
    out: Array  # [A] since the last step's end: what such an agent sees means nothing


@part
class TeamView:
    """`env`, whose observations are dicts: "own", and "agent", "joint" where asked for. Make it with `team_view`.

    "agent" is the agent's number. "joint" is the same for all agents: `global_state` of the environment where it gives
    one, else the observations of all in one vector, zeros for those who are out.
    """

    env: Environment
    agent_ids: bool = static("whether agents see who they are")
    joint_size: int = static("numbers in what the critic alone sees; 0: nothing", default=0, low=0)

    @property
    def observation_space(self) -> spaces.Dict:
        """Dict of what one agent sees."""
        entries: dict[str, spaces.Space] = {OWN: self.env.observation_space}
        if self.agent_ids:
            entries[AGENT] = spaces.Discrete(self.num_agents)
        if self.joint_size:
            entries[JOINT] = spaces.Box(-np.inf, np.inf, (self.joint_size,), np.float32)
        return spaces.Dict(entries)

    @property
    def action_space(self) -> spaces.Space:
        """That of `env`."""
        return self.env.action_space

    @property
    def num_agents(self) -> int:
        """That of `env`."""
        return count(self.env.num_agents)

    @property
    def central_critic(self) -> bool:
        """Whether the critic sees what all agents see."""
        return self.joint_size > 0

    @property
    def actor_obs(self) -> tuple[str, ...]:
        """Entries that an actor may read: all but those of the critic alone."""
        return (OWN, AGENT) if self.agent_ids else (OWN,)

    def reset(self, key: Key) -> EnvReset:
        """Reset `env`; nobody is out."""
        start = self.env.reset(key)
        out = jnp.zeros(self.num_agents, bool)
        obs = self._observe(start, out)
        return start._replace(state=TeamState(start.state, out), obs=obs, global_state=None)

    def step(self, state: TeamState, action: PyTree, key: Key) -> EnvStep:
        """Step `env`."""
        step = self.env.step(state.inner, action, key)
        obs = self._observe(step, state.out)  # who ends here is still seen, at its end
        out = state.out | step.terminated | step.truncated
        return step._replace(state=TeamState(step.state, out), obs=obs, global_state=None)

    def _observe(self, now: EnvReset | EnvStep, out: Array) -> dict[str, PyTree]:
        entries = {OWN: now.obs}
        if self.agent_ids:
            entries[AGENT] = jnp.arange(self.num_agents, dtype=_dtype(spaces.Discrete(self.num_agents)))
        if self.joint_size:
            joint = _joint(now.obs, out) if now.global_state is None else _flat(now.global_state, 0)
            entries[JOINT] = jnp.broadcast_to(joint, (self.num_agents, self.joint_size))
        return entries


def team_view(env: Environment, agent_ids: bool, central_critic: bool, name: str) -> Environment:
    """`env` with what agents and critic see beside; ConfigError where that cannot be, which calls it `name`."""
    if not agent_ids and not central_critic:
        return env
    option = "agent_ids" if agent_ids else "central_critic"
    if env.num_agents is None:
        raise ConfigError(f"{option} = true: {name} has one agent and no others; set it to false")
    if not isinstance(env.num_agents, int):
        raise ConfigError(f"{option} = true: the agents of {name} are unlike; set it to false")
    if not central_critic:
        return TeamView(env, agent_ids)
    start = jax.eval_shape(env.reset, jax.random.key(0))
    if start.global_state is None and not _is_numbers(env.observation_space):
        raise ConfigError(
            f"central_critic = true: {name} gives observations of {env.observation_space}; a vector is made of Box and "
            "Dict of Box only. Let the environment give `global_state` in EnvReset and EnvStep, or set it to false"
        )
    out = jax.ShapeDtypeStruct((count(env.num_agents),), bool)
    seen = jax.eval_shape(_joint, start.obs, out) if start.global_state is None else None
    size = seen.size if seen is not None else sum(x.size for x in jax.tree.leaves(start.global_state))
    return TeamView(env, agent_ids, size)


def _joint(obs: PyTree, out: Array) -> Array:
    """Observations [A, ...] of all agents as one vector."""
    return jnp.where(out[:, None], 0.0, _flat(obs, 1)).reshape(-1)


def _flat(tree: PyTree, axes: int) -> Array:
    """All numbers behind the first `axes` axes, in a row."""
    return jnp.concatenate([x.reshape(*x.shape[:axes], -1).astype(jnp.float32) for x in jax.tree.leaves(tree)], axes)


def _is_numbers(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Dict):
        return all(map(_is_numbers, space.spaces.values()))
    return isinstance(space, spaces.Box)


def _dtype(space: spaces.Space) -> np.dtype:
    """What an element of `space` is inside a program."""
    return np.dtype(jax.dtypes.canonicalize_dtype(space.dtype))
