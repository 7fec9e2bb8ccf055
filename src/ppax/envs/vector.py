"""Many copies of one environment as streams, with next-step autoreset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays import masks
from ppax.arrays.sequences import where_rows
from ppax.core.protocols import Environment, Schedule
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, VectorStep, part, static
from ppax.devices.hoisting import constant_result
from ppax.envs.hosting.arrays import element_of, in_32_bits, leaves_of
from ppax.envs.settings import DEFAULT, EnvSettings
from ppax.envs.stagger import first_lengths
from ppax.envs.wrappers.agent_groups import (
    Group,
    Grouped,
    agent_groups_of,
    count_agents,
    default_names,
    own_limit,
    own_names,
)
from ppax.envs.wrappers.time import TimeLimit
from ppax.envs.wrappers.views import TeamView
from ppax.envs.wrappers.wrapper import Wrapper

# Resets within a step of many environments: one for each environment, or a small pool that they share.


def fresh_resets(env: Environment, needed: Array, key: Key) -> EnvReset:
    """Return new episodes of all E environments, [E, ...], each from its own key in `key` [E].

    `needed` is not read: it is an argument because PoolResets, which may take the place of this function, needs it.
    """
    return jax.vmap(env.reset)(key)


POOL = 2**32 - 3  # folded into the keys of resets from a pool


@part
class PoolResets:
    """Resets from a pool: `size` new initial states in each step, assigned in turn to environments that need one.

    It is for environments whose reset costs as much as many steps. If more than `size` environments reset in the same
    step, some share an initial state; the next step has new ones. With several devices each has its own pool, so that
    initial states, unlike everything else, depend on the number of devices.
    """

    size: int = static("number of resets that are computed in each step", default=8, low=1)

    def __call__(self, env: Environment, needed: Array, key: Key) -> EnvReset:
        """Return initial states of E environments, [E, ...], from the pool; they have meaning where `needed` is True.

        `needed` [E] marks the environments to reset; `key` has one key for each environment, [E].
        """
        size = min(self.size, needed.shape[0])
        own = jax.vmap(partial(jax.random.fold_in, data=POOL))(key[:size])  # the keys are those of steps, too
        resets = jax.vmap(env.reset)(own)
        place = (jnp.cumsum(needed) - 1) % size  # [E]
        assigned: EnvReset = jax.tree.map(lambda x: x[place], resets)
        return assigned


class VectorState(NamedTuple):
    """States of all E environments, and which of their A agents' episodes have ended, [E, A].

    If all agents of an environment have ended, the next step resets it. `left` [E] is the number of steps until
    `stagger` truncates an environment's first episode, 0 where it does not; None without `stagger`.
    """

    env: PyTree  # [E, ...]
    ended: Array  # [E, A] the agent's episode has ended, and its environment has not been reset yet
    left: Array | None = None  # [E] int32 steps until a first episode is truncated, 0: it is not; None: none is


@part
class VectorEnv:
    """Compiled environments: `num_envs` copies of `env`, with a stream for each agent in each environment."""

    env: Environment
    num_envs: int = static("number of parallel environments", default=64, low=1)
    name: str = static("name of the environment in `make`", default="")
    resets: Callable[[Environment, Array, Key], EnvReset] = static(default=fresh_resets)
    made: EnvSettings = static("settings of `make`, without name and number", default=DEFAULT)
    schedule: Schedule | None = None  # annealing of the numbers of `env` over training (envs/curriculum.py)
    stagger: int = static(
        "truncate the first episode of each environment at a random length, at most this or, if True, the time limit",
        default=False,
        low=2,
        switch=True,
    )

    def __repr__(self) -> str:
        name = self.name or type(self.env).__name__
        agents = f" of {self.num_agents} agents" if self.num_agents > 1 else ""
        seen = f"observations {self.observation_space}, actions {self.action_space}"
        return f"VectorEnv({name}: {self.num_envs} environments{agents}, {seen})"

    @property
    def settings(self) -> EnvSettings:
        """Settings that this environment was made with, as recorded in a run file."""
        own: Any = {"env": self.name, "num_envs": self.num_envs, "schedule": self.schedule, "stagger": self.stagger}
        return dataclasses.replace(self.made, **own)

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one stream's observation; a stream is one agent in one environment."""
        return self.env.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """Space of one stream's action; a stream is one agent in one environment."""
        return self.env.action_space

    @property
    def unwrapped(self) -> Environment:
        """Environment inside all wrappers of `env`, such as its time limit; its states are those of a trajectory."""
        inner = self.env
        while isinstance(inner, Wrapper):
            inner = inner.env
        return inner

    @property
    def actor_obs(self) -> tuple[str, ...]:
        """Entries of a Dict observation that the actor may read; () stands for all entries."""
        inner = self.env.env if isinstance(self.env, Grouped) else self.env
        return inner.actor_obs if isinstance(inner, TeamView) else ()

    @property
    def num_agents(self) -> int:
        """Number of agents in each environment; 1 without an agent axis."""
        return count_agents(self.env.num_agents)

    @property
    def agent_names(self) -> tuple[str, ...]:
        """Names of the agents in one environment, by stream; () for one agent.

        They are the environment's `agent_names`, else "agent_0", ..., with groups "GROUP_0", ...
        """
        names = own_names(self.env) if self.num_agents > 1 else None
        if names is not None and (len(names) != self.num_agents or len(set(names)) < len(names)):
            raise ConfigError(
                f"agent_names of {self.name or type(self.env).__name__}: {', '.join(names)}; must be "
                f"{self.num_agents} different names, one for each agent"
            )
        return default_names(self.env.num_agents) if names is None else names

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Name and number of agents of each group; () if all agents have the same spaces."""
        agents = self.env.num_agents
        return tuple(agents.items()) if isinstance(agents, dict) else ()

    @property
    def groups(self) -> dict[str, Group]:
        """Spaces and number of agents of each group, by the group's name; {} if all agents have the same spaces."""
        return agent_groups_of(self)

    @property
    def max_num_envs(self) -> int | None:
        """Largest number of environments that `env` allows, as its `max_num_envs`; None if it has no limit."""
        return own_limit(self.env, "max_num_envs")

    @property
    def max_horizon(self) -> int | None:
        """Largest number of steps of a rollout that `env` allows, as its `max_horizon`; None if it has no limit."""
        return own_limit(self.env, "max_horizon")

    @property
    def num_streams(self) -> int:
        """Number of streams: num_envs * num_agents, as each is one agent in one environment."""
        return self.num_envs * self.num_agents

    def close(self) -> None:
        """Do nothing, as compiled environments hold no resources; `with ppax.make(...) as env` needs the method."""

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def reset(self, key: Key) -> tuple[VectorState, PyTree, PyTree | None]:
        """Return state, observations [B, ...] and action masks [B, n] after a reset of all environments.

        The B streams are one agent in one environment each. `key` is one key, or one for each environment, [E].
        """
        key = jax.random.split(key, self.num_envs) if key.ndim == 0 else key
        left = first_lengths(self.env, self.stagger, key)
        start = fresh_resets(self.env, jnp.ones(self.num_envs, bool), key)
        ended = jnp.zeros((self.num_envs, self.num_agents), bool)
        return (
            VectorState(start.state, ended, left),
            narrow(self.observation_space, self._to_streams(start.obs)),
            self._to_masks(start.action_mask),
        )

    def step(self, state: VectorState, action: PyTree, key: Key) -> VectorStep:
        """Return the result of one step of every stream with actions [B, ...].

        Environments whose episode has ended are reset instead. `key` is one key for each environment, [E], or a single
        key, which is split.
        """
        key = jax.random.split(key, self.num_envs) if key.ndim == 0 else key
        over = state.ended.all(axis=1)  # [E]
        taken = jax.vmap(self.env.step)(state.env, self._to_envs(action), key)
        stepped = _without_reward(taken)
        now = jax.lax.cond(  # few environments: mostly no episode has ended, and resets cost more than steps
            over.any(),
            # reuse the keys: where an environment is reset, its step is discarded
            lambda: where_rows(over, _without_reward(self.resets(self.env, over, jax.random.clone(key))), stepped),
            lambda: stepped,
        )
        valid = ~state.ended  # [E, A]
        terminated, truncated = (x.reshape(valid.shape) & valid for x in (taken.terminated, taken.truncated))
        left, logged = state.left, None
        if left is not None:  # `stagger`: the first episode of an environment is truncated for all of its agents
            cut = (left == 1)[:, None] & valid & ~(terminated | truncated)
            left = jnp.where(over, 0, jnp.maximum(left - 1, 0))
            truncated, logged = truncated | cut, (~cut).reshape(self.num_streams)
        ended = (state.ended & ~over[:, None]) | terminated | truncated
        first = jnp.broadcast_to(over[:, None], valid.shape)
        reward = jnp.where(valid, taken.reward.reshape(valid.shape), 0.0).astype(jnp.float32)
        streams = self.num_streams
        return VectorStep(
            VectorState(now.state, ended, left),
            narrow(self.observation_space, self._to_streams(now.obs)),
            reward.reshape(streams),
            terminated.reshape(streams),
            truncated.reshape(streams),
            valid.reshape(streams),
            first.reshape(streams),
            self._to_masks(now.action_mask),
            {name: self._to_metric(x) for name, x in taken.metrics.items()},
            logged,
        )

    def _to_streams(self, tree: PyTree) -> PyTree:
        """Return a tree [E, A, ...] of E environments with A agents as [B, ...], with a row for each of B streams.

        A stream is one agent in one environment. Without an agent axis a tree [E, ...] is returned unchanged.
        """
        if self.env.num_agents is None:
            return tree
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]), tree)

    def _to_metric(self, x: Array) -> Array:
        """Return a metric of E environments, [E] or [E, A], as float32 [B], with a number for each of B streams.

        A stream is one of the A agents in one environment. In a metric without an agent axis the number of an
        environment counts for all of its agents.
        """
        rows = x.reshape(self.num_envs, -1).astype(jnp.float32)
        return jnp.broadcast_to(rows, (self.num_envs, self.num_agents)).reshape(self.num_streams)

    def _to_masks(self, mask: PyTree | None) -> PyTree | None:
        """Return the environments' action masks as [B, n], for n choices; None if there are none.

        B is the number of streams (one agent in one environment each). arrays/masks.py describes the layout. With
        groups of agents the masks are a dict by group.
        """
        flat = self._to_streams(mask)
        if flat is None or not self.sizes:
            return masks.complete(self.action_space, flat, self.num_streams)
        return {
            name: masks.complete(group.action_space, flat.get(name), self.num_envs * group.num_agents)
            for name, group in self.groups.items()
        }

    def _to_envs(self, tree: PyTree) -> PyTree:
        """Return a tree [B, ...] of B streams (one agent in one environment each) as [E, A, ...].

        E is the number of environments and A that of the agents in each. Without an agent axis the tree is unchanged.
        """
        if self.env.num_agents is None:
            return tree
        return jax.tree.map(lambda x: x.reshape(self.num_envs, -1, *x.shape[1:]), tree)


def narrow(space: spaces.Space, obs: PyTree) -> PyTree:
    """Return observations with 64-bit arrays cast to 32 bits.

    With JAX_ENABLE_X64 an environment without explicit dtypes returns 64 bits. Whole numbers of a space whose bounds
    exceed 32 bits become float32.
    """
    leaves, structure = jax.tree.flatten(obs)
    wide = [leaf.wide for leaf in leaves_of(space)]
    wide = wide if len(wide) == len(leaves) else [False] * len(leaves)  # other entries: check_env names them
    dtypes = [np.dtype(np.float32) if own else in_32_bits(x.dtype) for own, x in zip(wide, leaves, strict=True)]
    return jax.tree.unflatten(structure, [x.astype(dtype) for x, dtype in zip(leaves, dtypes, strict=True)])


def never_ends(env: Environment) -> bool:
    """Return whether `terminated` and `truncated` of `env` are the constant False, so that no step ends an episode.

    Evaluations then need a limit of steps, and metrics of whole episodes never get a value. The result is False, too,
    if that cannot be seen, for example if a flag depends on the state but is never set. `env.step` is traced, and
    nothing is computed.
    """
    inner: Any = env
    while inner is not None:
        if isinstance(inner, TimeLimit):  # most environments of suites, whose steps take long to trace
            return False
        inner = getattr(inner, "env", None)

    def ends(state: PyTree, action: PyTree, key: Key) -> tuple[Array, Array]:
        step = env.step(state, action, key)
        return jnp.asarray(step.terminated), jnp.asarray(step.truncated)

    key = jax.eval_shape(lambda: jax.random.key(0))
    flags = constant_result(ends, jax.eval_shape(env.reset, key).state, _actions_like(env), key)
    return flags is not None and not any(np.any(flag) for flag in flags)


def _actions_like(env: Environment) -> PyTree:
    """Return the shapes and dtypes of the actions that `env.step` takes, of all agents; with groups a dict by group."""

    def like(space: spaces.Space, axis: tuple[int, ...]) -> PyTree:
        return element_of(space, (jax.ShapeDtypeStruct((*axis, *x.shape), x.dtype) for x in leaves_of(space)))

    agents, space = env.num_agents, env.action_space
    if isinstance(agents, Mapping):
        return {name: like(space[name], (count,)) for name, count in agents.items()}  # type: ignore[index]
    return like(space, () if agents is None else (agents,))


def _without_reward(now: EnvReset | EnvStep) -> EnvReset:
    """Return state, observation and mask of a step or a reset, the part that both have in common."""
    return EnvReset(now.state, now.obs, now.action_mask)
