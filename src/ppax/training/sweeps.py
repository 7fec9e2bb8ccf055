"""Sweeps: many runs in one compiled program, over seeds or any hyperparameter of agent or environment.

A member is one run of a sweep; arrays of all members have a leading axis [S].
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from ppax.agents.independent import Independent
from ppax.agents.metrics import NO_STREAMS
from ppax.agents.self_play import SelfPlayState, with_own_games
from ppax.arrays import counter
from ppax.core.options import check_numbers
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, Key, PyTree, TrainState
from ppax.core.unknown_names import refusing_unknown
from ppax.devices import sharding
from ppax.devices.footprint import Footprint
from ppax.devices.layout import with_devices
from ppax.devices.platforms import rules
from ppax.devices.sharding import SAME
from ppax.devices.tracing import renewed, unchecked
from ppax.envs import require_native
from ppax.envs.vector import VectorEnv
from ppax.training.arguments import require_arguments, require_consistent, require_key
from ppax.training.compiled import strong_types
from ppax.training.loop import Trained, start, train

Tree = TypeVar("Tree")
ONE_BY_ONE = "call ppax.fit once for each seed or setting"
MEMBERS = "ppax.sweep"  # mesh axis of members; not sharding.AXIS, as members do not communicate
MOST = 128  # members of a program: beyond it a program gains nothing, and each member has files open
COPIES = 3  # copies of a member's state: before and after an iteration, and on the host for its checkpoint
SHARE = 0.5  # share of the available memory that members may take


@refusing_unknown
def start_sweep(
    agent: Agent, env: VectorEnv, num_steps: int, keys: Key, iterations_per_env_reset: int | None = None
) -> TrainState:
    """Return initial states for `ppax.sweep`, one for each of `keys` [S], sharded as `ppax.sweep` needs them.

    `agent`, `env`, `num_steps` and `iterations_per_env_reset` are those of `ppax.start`. Raises ConfigError for host
    environments, and where `ppax.start` would for the agent of one of the members.
    """
    require_key(keys, axis=True)
    members = len(keys)
    require_arguments(agent, _first(env))
    require_native(env, "ppax.start_sweep", ONE_BY_ONE)
    agents, envs = _members(agent, env, members)
    _check_each(agent, agents)
    begin = partial(start, num_steps=num_steps, iterations_per_env_reset=iterations_per_env_reset)
    states: TrainState = jax.vmap(lambda agent, env, key: begin(agent, env, key=key))(agents, envs, keys)
    return sharding.place_on_devices(states, PartitionSpec(MEMBERS), devices_of_members(members), MEMBERS)


@refusing_unknown
def sweep(
    agent: Agent,
    env: VectorEnv,
    states: TrainState,
    num_iterations: int | Array,
    total_iterations: int | Array | None = None,
) -> Trained:
    """Return states and metrics after training many members, each a run of its own; all have a leading axis [S].

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
        total_iterations = states.iteration + num_iterations  # members differ after an iteration that was discarded
    return sweep_members(*_members(agent, env, members), states, num_iterations, total_iterations)


def sweep_members(
    agents: Agent, envs: VectorEnv, states: TrainState, num_iterations: int | Array, total_iterations: int | Array
) -> Trained:
    """Return states and metrics after training members (runs of a sweep), as `sweep` does.

    Here every hyperparameter of `agents` and `envs` has the leading axis [S] already. `total_iterations` is one number
    for all, or [S].
    """
    number = jnp.int32(num_iterations)
    totals = jnp.broadcast_to(jnp.asarray(total_iterations, jnp.int32), states.iteration.shape)
    if rules().mapped_members:
        return jax.vmap(train, (0, 0, 0, None, 0))(agents, envs, states, number, totals)

    def one_by_one(agents: Agent, envs: VectorEnv, states: TrainState, number: Array, totals: Array) -> Trained:
        trained: Trained = jax.lax.map(
            lambda member: train(member[0], member[1], member[2], number, member[3]), (agents, envs, states, totals)
        )
        return trained

    def share(agents: Agent, envs: VectorEnv, states: TrainState, number: Array, totals: Array) -> Trained:
        # A no-op collective: without any collective, XLA runs the CPU devices one after the other
        return one_by_one(agents, envs, states, jax.lax.pmax(number, MEMBERS), totals)

    devices, axis = devices_of_members(len(states.iteration)), PartitionSpec(MEMBERS)
    if devices == 1:
        return one_by_one(agents, envs, states, number, totals)
    split = sharding.split(share, devices, (axis, axis, axis, SAME, axis), axis, MEMBERS)
    return split(agents, envs, states, number, totals)


def devices_of_members(members: int) -> int:
    """Return the number of devices over which `members` runs of a sweep are sharded."""
    if rules().mapped_members:
        return 1
    return next(d for d in range(min(sharding.available(), members), 0, -1) if members % d == 0)


def _first(env: Any) -> Any:
    """Return the environment of the first member (run of a sweep), without the axis [S] of swept hyperparameters.

    Spaces of some suites are computed from parameters, and must not get an axis [S].
    """
    return jax.tree.map(lambda x: x[0] if np.ndim(x) else x, env)


def _members(agent: Agent, env: VectorEnv, members: int) -> tuple[Agent, VectorEnv]:
    """Return agent and environment with a leading axis [S] on every leaf, for `members` runs of a sweep.

    The agent's number of devices is set to 1: devices share out the runs, and each run is trained on one of them.
    """
    return _of_agent(with_devices(agent, 1), members), _for_each(env, members, "env")


def _of_agent(agent: Agent, members: int) -> Agent:
    """Return the agent with hyperparameters [S], for `members` runs of a sweep; those of independent players [S, A]."""

    def one(path: tuple[object, ...], node: Any) -> Any:
        name = f"agent{jax.tree_util.keystr(path)}"
        if isinstance(node, Independent):
            own = _for_each(node.agent, members, f"{name}.agent", node.num_agents)
            return dataclasses.replace(node, agent=own)
        return _for_each(node, members, name)

    return jax.tree_util.tree_map_with_path(one, agent, is_leaf=lambda node: isinstance(node, Independent))


def _check_each(agent: Agent, agents: Agent) -> None:
    """Raise ConfigError where a number of a member's agent is out of range, or its options contradict each other.

    `agents` is `agent` with a leading axis [S] on every leaf. Tracers, as all leaves of `agents` are in a program, are
    not checked. Of members that differ only in
    numbers that no option can contradict, such as learning rates, one is checked, as a check takes some ms.
    """
    check_numbers(agent)
    given, structure = jax.tree_util.tree_flatten_with_path(agent)
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(agents)):
        return
    leaves = [np.asarray(x) for x in jax.device_get(jax.tree.leaves(agents))]
    extended = any(ppo.extensions for ppo, _ in agent.learners(NO_STREAMS))  # which may check any number
    swept = [
        x.reshape(len(x), -1)
        for x, (path, one) in zip(leaves, given, strict=True)
        if np.ndim(one) and (extended or any(getattr(step, "name", "") in ("critic", "schedule") for step in path))
    ]
    members = np.unique(np.concatenate(swept, axis=1), axis=0, return_index=True)[1] if swept else [0]
    for member in members:
        own = [x[member] if np.ndim(one) else one for x, (_, one) in zip(leaves, given, strict=True)]
        require_consistent(jax.tree.unflatten(structure, own))


def _for_each(tree: PyTree, members: int, name: str, players: int = 1) -> PyTree:
    """Return the tree with every leaf broadcast to [S], one value for each of `members` runs.

    With `players` = A agents inside a multi-agent environment, a leaf [A] becomes [S, A]. `name` is the path of the
    tree in messages. Raises ConfigError for leaves of other shapes.
    """

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
            message = f"{where} has {np.shape(x)[0]} values for {members} states: must be one, or {members}"
            array = f"jnp.broadcast_to(x, ({members}, {', '.join(map(str, np.shape(x)))}))"
            raise ConfigError(message + (f"; an array that all states share: {array}" if name == "env" else ""))
        return jnp.asarray(x)

    return jax.tree_util.tree_map_with_path(one, tree)


class MembersTraining:
    """Ahead-of-time compiled training of the members (runs) of a sweep, all with equal static fields.

    The states [S] given to a call are donated. `num_bytes` is the memory that the compiled program needs, as XLA has
    measured it; 0 where it reports none.
    """

    def __init__(self, agents: Sequence[Agent], envs: Sequence[VectorEnv], shapes: TrainState):
        """Compile the training of members: member i trains `agents[i]` in `envs[i]`.

        `shapes` are the shapes of one member's state.
        """
        if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            raise ConfigError("jax_disable_jit: a sweep is one compiled program; call ppax.fit for one of its settings")
        begin = time.perf_counter()
        self.members, self.devices = len(agents), devices_of_members(len(agents))
        self.set_members(agents, envs)
        many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.members, *x.shape), x.dtype), shapes)
        states = sharding.shapes_of(many, PartitionSpec(MEMBERS), self.devices, MEMBERS)
        one = np.int32(1)
        options = rules().compiler_options
        jitted = jax.jit(renewed(sweep_members), donate_argnames="states", compiler_options=options)
        traced = jitted.trace(*self._arguments, states, one, one)
        self.metric_names: tuple[str, ...] = traced.out_info.metrics.names
        self._program = traced.lower().compile()
        self.num_bytes = self._measured_bytes()
        self.compile_seconds = time.perf_counter() - begin

    def __call__(self, states: TrainState, num_iterations: int, total_iterations: int) -> Trained:
        """Return states [S] and metrics after `num_iterations` iterations of all members.

        `states` are those of the last call, or from `stacked`; `total_iterations` is the length of the whole training,
        for schedules.
        """
        with unchecked():  # an iteration that is not finite is discarded, and `grad_norm` is NaN
            trained: Trained = self._program(
                *self._arguments, self._placed(states), np.int32(num_iterations), np.int32(total_iterations)
            )
        return trained

    def set_members(self, agents: Sequence[Agent], envs: Sequence[VectorEnv]) -> None:
        """Replace the members, the runs that the program trains, by others with the same static fields."""
        self._arguments = self._placed((stacked([with_devices(agent, 1) for agent in agents]), stacked(envs)))

    def _placed(self, tree: Tree) -> Tree:
        """Return `tree`, whose leaves are [S, ...], on the devices that train the members (runs of the sweep)."""
        if self.devices == 1:
            return jax.device_put(tree, jax.local_devices()[0])
        return jax.device_put(tree, sharding.shardings(PartitionSpec(MEMBERS), self.devices, MEMBERS))

    def _measured_bytes(self) -> int:
        measured = self._program.memory_analysis()
        if measured is None:
            return 0
        held = measured.argument_size_in_bytes + measured.output_size_in_bytes - measured.alias_size_in_bytes
        return int(self.devices * (held + measured.temp_size_in_bytes))


class MemberStates(Sequence[TrainState]):
    """Sequence of the states of the first `members` runs of a sweep, which are stacked in `states` [S].

    All states are copied to the host at once, when one of them is first asked for.
    """

    def __init__(self, states: TrainState, members: int):
        self._states, self._members = states, members
        self.iterations, self._env_steps = np.array(states.iteration), np.array(states.env_steps)

    def __len__(self) -> int:
        return self._members

    def __getitem__(self, member: Any) -> Any:
        """Return the state of one member (run of a sweep), without the axis [S]."""
        own = [
            x[member] if impl is None else jax.random.wrap_key_data(x[member], impl=impl)
            for x, impl in zip(self._leaves, self._impls, strict=True)
        ]
        return jax.tree.unflatten(self._structure, own)

    def env_steps(self, member: int) -> int:
        """Return the number of valid environment steps that a member (run of a sweep) has trained for."""
        return counter.to_int(self._env_steps[member])

    @functools.cached_property
    def _impls(self) -> list[Any]:
        return [jax.random.key_impl(x) if _is_key(x) else None for x in jax.tree.leaves(self._states)]

    @functools.cached_property
    def _leaves(self) -> list[Any]:
        leaves = jax.tree.leaves(self._states)
        numbers = [x if impl is None else jax.random.key_data(x) for x, impl in zip(leaves, self._impls, strict=True)]
        # copied: the next iterations reuse the memory of these states (buffer donation)
        return [np.array(x, copy=True) for x in jax.device_get(numbers)]

    @property
    def _structure(self) -> Any:
        return jax.tree.structure(self._states)


def stacked(trees: Sequence[Tree]) -> Tree:
    """Return one tree with the leaves of `trees` stacked along a leading axis [S], on the host; random keys stay keys.

    All trees must have the same structure.
    """

    def one(*leaves: Any) -> Any:
        if _is_key(leaves[0]):
            data = np.stack([np.asarray(jax.random.key_data(x)) for x in leaves])
            return jax.random.wrap_key_data(jnp.asarray(data), impl=jax.random.key_impl(leaves[0]))
        return np.stack([np.asarray(x) for x in leaves])

    result: Tree = jax.tree.map(one, *map(strong_types, trees))
    return result


def _is_key(x: Any) -> bool:
    return hasattr(x, "dtype") and bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))


@jax.jit
def with_learners(states: TrainState, sources: Array) -> TrainState:
    """Return states [S] of a sweep's members (runs) in which member i has the learner of member `sources[i]`.

    Member i keeps its own environments, running games of self-play and keys.
    """
    copied = sources != jnp.arange(len(sources))

    def one(own: Any) -> Any:
        learner = jax.tree.map(lambda x: x[sources], own)
        return jax.vmap(with_own_games)(own, learner, copied) if isinstance(own, SelfPlayState) else learner

    learners = jax.tree.map(one, states.learner, is_leaf=lambda x: isinstance(x, SelfPlayState))
    return dataclasses.replace(states, learner=learners)


def members_that_fit(needed: Footprint, available: int | None) -> int:
    """Return the number of runs of a sweep that fit into memory in one program; at least 1, at most MOST (128).

    `needed` is a lower bound on the memory of one run. `available` is the memory in bytes; if it is None (unknown), the
    result is MOST. On a CPU, runs train one after the other on each device: only their states are kept for all.
    """
    if available is None:
        return MOST
    each = COPIES * (needed.learner + needed.environments)
    each += 0 if not rules().mapped_members else needed.rollout
    return max(1, min(MOST, int(SHARE * available) // max(1, each)))


def filled(members: int) -> int:
    """Return `members`, a number of runs of a sweep, rounded up so that each of the CPU's devices trains equally many.

    On other devices it is returned unchanged.
    """
    devices = min(sharding.available(), members) if not rules().mapped_members else 1
    return -(-members // devices) * devices
