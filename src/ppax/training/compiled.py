"""Compilation of training ahead of time; arguments that would compile it again are an error."""

from __future__ import annotations

import ctypes
import dataclasses
import math
import sys
import time
from typing import Any

import jax
import numpy as np

from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, PyTree, TrainState
from ppax.devices import sharding
from ppax.devices.platforms import rules
from ppax.devices.tracing import renewed, unchecked
from ppax.envs.vector import VectorEnv
from ppax.training.loop import Trained, num_devices, place_state, state_specs, train


class CompiledTraining:
    """Training compiled ahead of time, called like `ppax.train`; a call donates (reuses) the buffers of its state.

    Hyperparameters (leaves of agent and environment) may change from call to call. Shapes and static fields are
    compiled in: a call with others raises ConfigError with the name of the field. `compile_seconds` is the sum of
    `trace_seconds`, `lower_seconds` and `xla_seconds`. `chunk_seconds` and `overlap`, settings of training on host
    environments, have no effect here.
    """

    overlap = 0
    chunk_seconds = math.inf
    collect_seconds = None

    def __init__(self, agent: Agent, env: VectorEnv, state: TrainState):
        begin = time.perf_counter()
        self._devices = num_devices(agent, env, state.num_steps)
        shapes = sharding.shapes_of(state, state_specs(state), self._devices)
        self._arguments = (strong_types(_with_floats(agent)), strong_types(env), shapes)
        # by the user, to look into the operations
        self.interpreted: bool = jax.config.jax_disable_jit  # type: ignore[attr-defined]
        one = np.int32(1)
        jitted = jax.jit(renewed(train), donate_argnames="state", compiler_options=rules().compiler_options)
        traced = jitted.trace(*self._arguments, one, one)
        traced_at = time.perf_counter()
        lowered = traced.lower()
        lowered_at = time.perf_counter()
        self.program: Any = None if self.interpreted else lowered.compile()
        self.metric_names: tuple[str, ...] = traced.out_info.metrics.names
        self._arguments = jax.tree.map(_shape_of, self._arguments)
        self._seen: tuple[Any, Any] = (None, None)  # agent and environment of the last call
        _release_compiler_memory()
        done = time.perf_counter()
        self.trace_seconds, self.lower_seconds = traced_at - begin, lowered_at - traced_at
        self.xla_seconds, self.compile_seconds = done - lowered_at, done - begin

    def __call__(
        self,
        agent: Agent,
        env: VectorEnv,
        state: TrainState,
        num_iterations: int,
        total_iterations: int | None = None,
    ) -> Trained:
        """Return the state after `num_iterations` iterations, and their metrics; see `ppax.train`.

        Schedules take `total_iterations` as the whole training; None: it ends with these iterations. Raises ConfigError
        if shapes or static fields differ from those that the program was compiled for.
        """
        if self.interpreted:
            return train(agent, env, state, num_iterations, total_iterations)
        if self._seen[0] is not agent or self._seen[1] is not env:  # else their leaves are on the devices already
            self._placed, self._seen = self._on_devices(agent, env, state), (agent, env)
        if total_iterations is None:
            total_iterations = int(state.iteration) + num_iterations
        if len(state.actor.first.sharding.device_set) != self._devices:  # not yet sharded as the program expects
            self._guard(agent, env, state)
            state = place_state(agent, env, state)
        try:
            with unchecked():  # an iteration that is not finite is discarded, and `grad_norm` is NaN
                trained: Trained = self.program(
                    *self._placed, state, np.int32(num_iterations), np.int32(total_iterations)
                )
        except TypeError:  # from JAX's own comparison, which is faster than `differences`
            self._guard(agent, env, state)
            raise
        return trained

    def _on_devices(self, agent: Agent, env: VectorEnv, state: TrainState) -> tuple[Agent, VectorEnv]:
        """Return agent and environment with their leaves on the program's devices, after checking them."""
        self._guard(agent, env, state)
        leaves = _like(self._arguments[:2], (strong_types(agent), strong_types(env)))
        placed: tuple[Agent, VectorEnv] = jax.device_put(leaves, self.program.input_shardings[0][:2])
        return placed

    def _guard(self, agent: Agent, env: VectorEnv, state: TrainState) -> None:
        """Raise ConfigError if shapes or static fields differ from those that the program was compiled for.

        The message names the first difference.
        """
        given = (*_like(self._arguments[:2], (strong_types(agent), strong_types(env))), state)
        changed = next(differences(self._arguments, given, ("agent", "env", "state")), None)
        if changed is not None:
            raise ConfigError(f"this program was compiled for another run: {changed}; call ppax.compile again")


def differences(old: Any, new: Any, names: tuple[str, ...] = (), path: str = "") -> Any:
    """Yield a sentence on each difference between two trees in shape, dtype, structure or a static field.

    Each sentence begins with the path of the differing entry. Paths begin with `path`, the path of the trees
    themselves. If the trees are tuples, `names` are the names of their entries.
    """
    if type(old) is not type(new) and not (_is_array(old) and _is_array(new)):
        yield f"{path} was {_short(old)} and is {_short(new)}"
    elif _is_array(old):
        before, now = _shape(old), _shape(new)
        if before != now:
            yield f"{path} was {before} and is {now}"
    elif dataclasses.is_dataclass(old):
        for field in dataclasses.fields(old):
            one, other = getattr(old, field.name), getattr(new, field.name)
            where = f"{path}.{field.name}"
            if not field.metadata.get("static"):
                yield from differences(one, other, (), where)
            elif one != other:
                yield f"{where} was {_short(one)} and is {_short(other)}"
    elif isinstance(old, dict):
        if old.keys() != new.keys():
            yield f"{path} had {sorted(old)} and has {sorted(new)}"
        else:
            for name in old:
                yield from differences(old[name], new[name], (), f"{path}.{name}")
    elif isinstance(old, tuple):
        labels = names or getattr(old, "_fields", tuple(map(str, range(len(old)))))
        if len(old) != len(new):
            yield f"{path} had {len(old)} entries and has {len(new)}"
        else:
            for label, one, other in zip(labels, old, new, strict=True):
                yield from differences(one, other, (), f"{path}.{label}" if path else label)


def _shape_of(x: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _shape(x: Any) -> str:
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"


def _short(x: Any) -> str:
    return _shape(x) if _is_array(x) else repr(x) if not dataclasses.is_dataclass(x) else type(x).__name__


def strong_types(tree: PyTree) -> PyTree:
    """Return the tree with Python numbers as NumPy scalars of 32 bits, so that they have the dtypes of array leaves."""
    kinds = {bool: np.bool_, int: np.int32, float: np.float32}
    return jax.tree.map(lambda x: kinds[type(x)](x) if type(x) in kinds else x, tree)


def _with_floats(part: Any) -> Any:
    """Return an agent or a part of it with floats in place of integers such as gamma = 1, which may become 0.99 later.

    Integers stay where the default of the field is an integer. A part is a swappable component, such as the loss.
    """
    if isinstance(part, tuple) and not hasattr(part, "_fields"):
        return tuple(map(_with_floats, part))
    if isinstance(part, dict):
        return {name: _with_floats(x) for name, x in part.items()}
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    changed = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        whole = type(value) is int and type(field.default) is not int
        if field.metadata and not field.metadata.get("static"):
            changed[field.name] = float(value) if whole else _with_floats(value)
    return dataclasses.replace(part, **changed)


def _like(old: PyTree, new: PyTree) -> PyTree:
    """Return `new` with integers converted to floats where `old` has floats, such as 1 to 1.0.

    If the tree structures differ, `new` is returned unchanged.
    """
    if jax.tree.structure(old) != jax.tree.structure(new):  # type: ignore[operator]
        return new  # `_guard` raises the error
    integers = (np.bool_, np.int32)
    return jax.tree.map(lambda a, b: a.dtype.type(b) if isinstance(b, integers) else b, old, new)


def _release_compiler_memory() -> None:
    """Give the compiler's freed memory, some hundred MB, back to the operating system; glibc would keep it."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
