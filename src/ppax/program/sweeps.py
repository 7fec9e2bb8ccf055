"""Many runs at once in one program: seeds, or any number of the agent or the environment."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from ppax.agents.arguments import require_env, require_ppo
from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.multi_agent import Agent, with_program
from ppax.agents.self_play import SelfPlay
from ppax.envs import require_native
from ppax.envs.vector import VectorEnv
from ppax.ppo import PPO
from ppax.program import sharding
from ppax.program.sharding import SAME
from ppax.training import Trained, start, train
from ppax.types import ConfigError, Key, PyTree, TrainState

ONE_BY_ONE = "call ppax.fit once for each seed or setting"
MEMBERS = "ppax.sweep"  # an axis of its own: members have nothing to tell each other, unlike the parts of one run


def start_sweep(
    agent: Agent, env: VectorEnv, num_steps: int, keys: Key, iterations_per_env_reset: int | None = None
) -> TrainState:
    """Fresh states for `sweep`, one for each key [S], on the devices on which it runs. See `ppax.start`.

    Raises ConfigError for environments on the host.
    """
    members = len(keys)
    _require(agent, env)
    require_native(env, "ppax.start_sweep", ONE_BY_ONE)
    begin = partial(start, num_steps=num_steps, iterations_per_env_reset=iterations_per_env_reset)
    states: TrainState = jax.vmap(lambda agent, env, key: begin(agent, env, key=key))(
        *_members(agent, env, members), keys
    )
    return sharding.place(states, PartitionSpec(MEMBERS), _num_devices(members), MEMBERS)


def sweep(
    agent: Agent,
    env: VectorEnv,
    states: TrainState,
    num_iterations: int | Array,
    total_iterations: int | Array | None = None,
) -> Trained:
    """`train` for many members; all results have a leading axis of members, [S].

    `states` come from `start_sweep`. A number of `agent` or `env` is one for all, or [S], one for each; that of
    independent players may also be [A], one for each player, or [S, A]. The result is
    that of `jax.vmap(train)`, but for rounding. On a CPU it is faster: members are split over the cores, and each core
    takes one after the other, so that what a member needs stays in the cache. Elsewhere it is `jax.vmap(train)`.
    Raises ConfigError where lengths differ, and for environments on the host.
    """
    _require(agent, env)
    require_native(env, "ppax.sweep", ONE_BY_ONE)
    members = states.iteration.shape[0]
    if total_iterations is None:
        total_iterations = states.iteration[0] + num_iterations
    alone, env = _members(agent, env, members)
    counts = (jnp.int32(num_iterations), jnp.int32(total_iterations))

    if jax.default_backend() != "cpu":
        return jax.vmap(train, (0, 0, 0, None, None))(alone, env, states, *counts)

    def one_by_one(alone: Agent, env: VectorEnv, states: TrainState, counts: tuple[Array, Array]) -> Trained:
        trained: Trained = jax.lax.map(
            lambda member: train(member[0], member[1], member[2], *counts), (alone, env, states)
        )
        return trained

    def share(alone: Agent, env: VectorEnv, states: TrainState, counts: tuple[Array, Array]) -> Trained:
        # An exchange that changes nothing: without any, XLA runs the devices of a CPU one after the other
        return one_by_one(alone, env, states, jax.lax.pmax(counts, MEMBERS))

    devices, axis = _num_devices(members), PartitionSpec(MEMBERS)
    if devices == 1:
        return one_by_one(alone, env, states, counts)
    return sharding.split(share, devices, (axis, axis, axis, SAME), axis, MEMBERS)(alone, env, states, counts)


def _require(agent: Agent, env: VectorEnv) -> None:
    """What `start` says too, here before JAX asks whether static fields can be hashed."""
    require_env(env)
    for learner, _ in agent.learners(env.num_streams) if isinstance(agent, Agent) else ((agent, 0),):
        require_ppo(learner)


def _num_devices(members: int) -> int:
    if jax.default_backend() != "cpu":
        return 1
    return next(d for d in range(min(sharding.available(), members), 0, -1) if members % d == 0)


def _members(agent: Agent, env: VectorEnv, members: int) -> tuple[Agent, VectorEnv]:
    """Agent and environment of every member; each trains on one device."""
    alone = with_program(agent, dataclasses.replace(agent.program, devices=1))
    return _of_agent(alone, members, "agent"), _for_each(env, members, "env")


def _of_agent(agent: Agent, members: int, name: str) -> Agent:
    """Every number with the axis of members; those of independent players may have one for each player behind it."""
    inner: Any = {}
    if isinstance(agent, Independent):
        inner["agent"] = _for_each(agent.agent, members, f"{name}.agent", agent.num_agents)
    elif isinstance(agent, Groups):
        names = agent.agents.items()
        inner["agents"] = {group: _of_agent(one, members, f"{name}.agents[{group!r}]") for group, one in names}
    elif isinstance(agent, SelfPlay):
        inner["agent"] = _of_agent(agent.agent, members, f"{name}.agent")
        inner["pool"] = _for_each(agent.pool, members, f"{name}.pool")
    else:
        alone: PPO = _for_each(agent, members, name)
        return alone
    return dataclasses.replace(agent, **inner)


def _for_each(tree: PyTree, members: int, name: str, players: int = 1) -> PyTree:
    """Every number with the axis of members; with `players`, [players] is one for each of them."""

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
