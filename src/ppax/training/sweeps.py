"""Sweeps: many runs in one compiled program, over seeds or any hyperparameter of agent or environment."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from ppax.agents.arguments import require_arguments
from ppax.agents.independent import Independent
from ppax.core.names import refusing_unknown
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, Key, PyTree, TrainState
from ppax.devices import sharding
from ppax.devices.layout import with_devices
from ppax.devices.platforms import rules
from ppax.devices.sharding import SAME
from ppax.envs import require_native
from ppax.envs.vector import VectorEnv
from ppax.training.loop import Trained, start, train

ONE_BY_ONE = "call ppax.fit once for each seed or setting"
MEMBERS = "ppax.sweep"  # mesh axis of members; not sharding.AXIS, as members do not communicate


@refusing_unknown
def start_sweep(
    agent: Agent, env: VectorEnv, num_steps: int, keys: Key, iterations_per_env_reset: int | None = None
) -> TrainState:
    """Return initial states for `sweep`, one for each key [S], sharded as it needs them. See `ppax.start`.

    Raises ConfigError for host environments.
    """
    members = len(keys)
    require_arguments(agent, _first(env))
    require_native(env, "ppax.start_sweep", ONE_BY_ONE)
    begin = partial(start, num_steps=num_steps, iterations_per_env_reset=iterations_per_env_reset)
    states: TrainState = jax.vmap(lambda agent, env, key: begin(agent, env, key=key))(
        *_members(agent, env, members), keys
    )
    return sharding.place(states, PartitionSpec(MEMBERS), num_devices(members), MEMBERS)


@refusing_unknown
def sweep(
    agent: Agent,
    env: VectorEnv,
    states: TrainState,
    num_iterations: int | Array,
    total_iterations: int | Array | None = None,
) -> Trained:
    """Train many members, each a run of its own; all results have a leading axis [S].

    `states` come from `start_sweep`. A hyperparameter of `agent` or `env` is a scalar, shared by all members, or [S],
    one value per member; for independent players also [A], one per player, or [S, A]. The result equals that of
    `jax.vmap(train)`, except for rounding. On a CPU, members are sharded over the cores and each core runs its members
    one by one, which keeps a member's data in the cache; on other devices this is `jax.vmap(train)`. Raises
    ConfigError for other shapes, and for host environments.
    """
    require_arguments(agent, _first(env))
    require_native(env, "ppax.sweep", ONE_BY_ONE)
    members = states.iteration.shape[0]
    if total_iterations is None:
        total_iterations = states.iteration[0] + num_iterations
    return sweep_members(*_members(agent, env, members), states, num_iterations, total_iterations)


def sweep_members(
    agents: Agent, envs: VectorEnv, states: TrainState, num_iterations: int | Array, total_iterations: int | Array
) -> Trained:
    """Train members whose every hyperparameter already has the leading axis [S]; otherwise as `sweep`."""
    number, total = jnp.int32(num_iterations), jnp.int32(total_iterations)
    if rules().mapped_members:
        return jax.vmap(train, (0, 0, 0, None, None))(agents, envs, states, number, total)

    def one_by_one(agents: Agent, envs: VectorEnv, states: TrainState, number: Array, total: Array) -> Trained:
        trained: Trained = jax.lax.map(
            lambda member: train(member[0], member[1], member[2], number, total), (agents, envs, states)
        )
        return trained

    def share(agents: Agent, envs: VectorEnv, states: TrainState, number: Array, total: Array) -> Trained:
        # A no-op collective: without any collective, XLA runs the CPU devices one after the other
        number, total = jax.lax.pmax((number, total), MEMBERS)
        return one_by_one(agents, envs, states, number, total)

    devices, axis = num_devices(len(states.iteration)), PartitionSpec(MEMBERS)
    if devices == 1:
        return one_by_one(agents, envs, states, number, total)
    split = sharding.split(share, devices, (axis, axis, axis, SAME, SAME), axis, MEMBERS)
    return split(agents, envs, states, number, total)


def num_devices(members: int) -> int:
    """Return the number of devices over which `members` members are sharded."""
    if rules().mapped_members:
        return 1
    return next(d for d in range(min(sharding.available(), members), 0, -1) if members % d == 0)


def _first(env: Any) -> Any:
    """Environment of the first member: spaces of some suites are computed from parameters, which must not be [S]."""
    return jax.tree.map(lambda x: x[0] if np.ndim(x) else x, env)


def _members(agent: Agent, env: VectorEnv, members: int) -> tuple[Agent, VectorEnv]:
    """Return agent and environment with a leading axis [S] on every leaf; each member runs on one device."""
    return _of_agent(with_devices(agent, 1), members), _for_each(env, members, "env")


def _of_agent(agent: Agent, members: int) -> Agent:
    """Return the agent with hyperparameters [S]; those of independent players may be [S, A]."""

    def one(path: tuple[object, ...], node: Any) -> Any:
        name = f"agent{jax.tree_util.keystr(path)}"
        if isinstance(node, Independent):
            own = _for_each(node.agent, members, f"{name}.agent", node.num_agents)
            return dataclasses.replace(node, agent=own)
        return _for_each(node, members, name)

    return jax.tree_util.tree_map_with_path(one, agent, is_leaf=lambda node: isinstance(node, Independent))


def _for_each(tree: PyTree, members: int, name: str, players: int = 1) -> PyTree:
    """Broadcast every leaf to [S]; with several `players`, a leaf [players] becomes [S, players]."""

    def one(path: tuple[object, ...], x: Array) -> Array:
        if np.ndim(x) == 0:
            return jnp.broadcast_to(x, (members,))
        where = name + jax.tree_util.keystr(path)
        if players > 1 and np.shape(x) == (players,):
            if players == members:
                raise ConfigError(
                    f"{where} has {players} values, for {members} states and for {players} players: must have shape "
                    f"({members}, {players}); jnp.tile(x, ({members}, 1)) is one for each player, "
                    f"jnp.repeat(x[:, None], {players}, axis=1) one for each state"
                )
            return jnp.broadcast_to(x, (members, players))
        if np.shape(x)[0] != members:
            raise ConfigError(f"{where} has {np.shape(x)[0]} values for {members} states: must be one, or {members}")
        return jnp.asarray(x)

    return jax.tree_util.tree_map_with_path(one, tree)
