"""Members of a sweep in one compiled program: stacked and taken apart on the host, compiled ahead of time."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec

from ppax.agents.opponents import SelfPlayState, with_own_games
from ppax.arrays import counter
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, TrainState
from ppax.devices import sharding
from ppax.devices.footprint import Footprint
from ppax.devices.layout import compiler_options, with_devices
from ppax.devices.platforms import rules
from ppax.devices.tracing import current, unchecked
from ppax.envs.vector import VectorEnv
from ppax.training.compiled import strong
from ppax.training.loop import Trained
from ppax.training.sweeps import MEMBERS, num_devices, sweep_members

Tree = TypeVar("Tree")

MOST = 128  # members of a program: beyond it a program gains nothing, and each member has files open
COPIES = 3  # copies of a member's state: before and after an iteration, and on the host for its checkpoint
SHARE = 0.5  # share of the available memory that members may take


def stacked(trees: Sequence[Tree]) -> Tree:
    """Stack the leaves of equal trees along a leading axis [S], on the host; random keys stay keys."""

    def one(*leaves: Any) -> Any:
        if _is_key(leaves[0]):
            data = np.stack([np.asarray(jax.random.key_data(x)) for x in leaves])
            return jax.random.wrap_key_data(jnp.asarray(data), impl=jax.random.key_impl(leaves[0]))
        return np.stack([np.asarray(x) for x in leaves])

    result: Tree = jax.tree.map(one, *map(strong, trees))
    return result


class Apart(Sequence[TrainState]):
    """States of the first `members` members of a stacked state, [S]; copied to the host when one is asked for."""

    def __init__(self, states: TrainState, members: int):
        self._states, self._members = states, members
        self.iterations, self._env_steps = np.array(states.iteration), np.array(states.env_steps)

    def __len__(self) -> int:
        return self._members

    def __getitem__(self, member: Any) -> Any:
        """Return the state of one member: the inverse of `stacked`."""
        own = [
            x[member] if impl is None else jax.random.wrap_key_data(x[member], impl=impl)
            for x, impl in zip(self._leaves, self._impls, strict=True)
        ]
        return jax.tree.unflatten(self._structure, own)

    def env_steps(self, member: int) -> int:
        """Return the valid steps of a member."""
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


def members_that_fit(needed: Footprint, available: int | None) -> int:
    """Return how many members a program may have, by a lower bound on the memory of one; at least one.

    On a CPU, members train one after the other on each device: only their states are kept for all.
    """
    if available is None:
        return MOST
    each = COPIES * (needed.learner + needed.environments)
    each += 0 if not rules().mapped_members else needed.rollout
    return max(1, min(MOST, int(SHARE * available) // max(1, each)))


def filled(members: int) -> int:
    """Return `members`, rounded up so that each of the CPU's devices trains as many."""
    devices = min(sharding.available(), members) if not rules().mapped_members else 1
    return -(-members // devices) * devices


@jax.jit
def with_learners(states: TrainState, sources: Array) -> TrainState:
    """Return states [S] in which member i has the learner of member `sources[i]`.

    Environments, with the running games of self-play, and keys are its own.
    """
    copied = sources != jnp.arange(len(sources))

    def one(own: Any) -> Any:
        learner = jax.tree.map(lambda x: x[sources], own)
        return jax.vmap(with_own_games)(own, learner, copied) if isinstance(own, SelfPlayState) else learner

    learners = jax.tree.map(one, states.learner, is_leaf=lambda x: isinstance(x, SelfPlayState))
    return dataclasses.replace(states, learner=learners)


class MembersTraining:
    """Ahead-of-time compiled training of `agents` and `envs`, all of equal static parts; states [S] are donated.

    `num_bytes` is the memory that the compiled program needs, as XLA has measured it; 0 where it reports none.
    """

    def __init__(self, agents: Sequence[Agent], envs: Sequence[VectorEnv], shapes: TrainState):
        """Compile for agents and environments of the members, and for `shapes`, those of the state of one member."""
        if jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            raise ConfigError("jax_disable_jit: a sweep is one compiled program; call ppax.fit for one of its settings")
        begin = time.perf_counter()
        self.members, self.devices = len(agents), num_devices(len(agents))
        self.set_members(agents, envs)
        many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((self.members, *x.shape), x.dtype), shapes)
        states = sharding.shapes_of(many, PartitionSpec(MEMBERS), self.devices, MEMBERS)
        one = np.int32(1)
        function = current(sweep_members, *self._arguments, states, one, one)
        jitted = jax.jit(function, donate_argnames="states", compiler_options=compiler_options())
        traced = jitted.trace(*self._arguments, states, one, one)
        self.metric_names: tuple[str, ...] = traced.out_info.metrics.names
        self._program = traced.lower().compile()
        self.num_bytes = self._measured_bytes()
        self.compile_seconds = time.perf_counter() - begin

    def __call__(self, states: TrainState, num_iterations: int, total_iterations: int) -> Trained:
        """Run `num_iterations` iterations of all members; `states` from here or from `stacked`."""
        with unchecked():  # an iteration that is not finite is discarded, and `grad_norm` is NaN
            trained: Trained = self._program(
                *self._arguments, self._placed(states), np.int32(num_iterations), np.int32(total_iterations)
            )
        return trained

    def set_members(self, agents: Sequence[Agent], envs: Sequence[VectorEnv]) -> None:
        """Replace the members by others with the same static fields."""
        self._arguments = self._placed((stacked([with_devices(agent, 1) for agent in agents]), stacked(envs)))

    def _placed(self, tree: Tree) -> Tree:
        """Place members on the devices that train them."""
        if self.devices == 1:
            return jax.device_put(tree, jax.local_devices()[0])
        return jax.device_put(tree, sharding.shardings(PartitionSpec(MEMBERS), self.devices, MEMBERS))

    def _measured_bytes(self) -> int:
        measured = self._program.memory_analysis()
        if measured is None:
            return 0
        held = measured.argument_size_in_bytes + measured.output_size_in_bytes - measured.alias_size_in_bytes
        return int(self.devices * (held + measured.temp_size_in_bytes))


def _is_key(x: Any) -> bool:
    return hasattr(x, "dtype") and bool(jnp.issubdtype(x.dtype, jax.dtypes.prng_key))
