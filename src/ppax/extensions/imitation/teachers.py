"""Teacher of a distillation: a policy, held as a constant of the program and known by its checksum.

Its weights are not leaves of the agent, over which sweeps and independent players map. They are static: a program is
compiled for one teacher, as it is for one size.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.imports import Untrusted
from ppax.core.types import ConfigError, Key, PyTree
from ppax.ppo.exploration import sample
from ppax.ppo.forward import forward
from ppax.ppo.ppo import PPO

READ = ("network", "critic", "normalize_obs", "compute_dtype")  # options that acting reads


def _unset(source: str) -> Any:
    raise NotImplementedError


load_policy: Callable[[str], Any] = _unset  # `ppax.load`, of a room above this one: ppax/__init__.py sets it
REMOTE = "hf://"
ARRAY = re.compile(r"(float(?:16|32)|bfloat16|u?int(?:8|16|32)|bool)\[((?:\d+(?:,\d+)*)?)\]")  # of a memory


class Taught(NamedTuple):
    """Distributions of a teacher's actions in a rollout, and its memory after it."""

    distribution: Any  # [T, B]
    memory: PyTree  # [B, ...]


class Acted(NamedTuple):
    """One step of a teacher in every stream."""

    memory: PyTree  # [B, ...]
    distribution: Any  # [B]
    action: PyTree  # [B, ...] as sampled


class Teacher:
    """Policy that is imitated. Teachers with equal checksums compare equal; `policy` is read at its first use.

    Its memory of each stream is a tuple of arrays [B, ...], whose shapes and types are known without reading it.
    """

    def __init__(
        self,
        source: str,
        checksum: str,
        memory: tuple[str, ...],
        wanted: tuple[spaces.Space, spaces.Space],
        policy: Any = None,
    ):
        """Keep path, checksum, arrays of the memory and spaces; without a `policy` it is to be read from `source`."""
        self.source, self.checksum, self.memory, self._wanted, self._policy = source, checksum, memory, wanted, policy
        # two policies of Python may have equal weights and other activations
        self._key: Hashable = (checksum, "" if source else jax.tree.structure(policy.agent))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Teacher) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Teacher({self.source or 'a policy'}, {self.checksum[:12]})"

    def follow(self, memory: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None) -> Taught:
        """Follow the steps [T, B, ...] of a rollout from the memory [B, ...] before it."""
        agent, learner = self._read()
        num_steps, streams = first.shape
        sequences: PyTree = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (obs, first, action_mask))
        rows = agent.program.rows(num_steps, agent.compute_dtype, sequences[0], agent.network)

        def one(sequence: PyTree) -> tuple[Any, PyTree]:
            inputs = jax.tree.map(lambda x: x[None], sequence)
            out = forward(agent.network, agent.critic, agent.compute_dtype, learner, *inputs)
            return out.distribution, jax.tree.map(lambda x: x[0], out.carry)

        at_once = min(max(1, rows // num_steps), streams)  # in chunks, so that activations stay in the cache
        taught = jax.lax.map(one, (self._carry(agent, memory), *sequences), batch_size=at_once)
        distribution = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), taught[0])
        return Taught(distribution, tuple(jax.tree.leaves(taught[1])))

    def act(self, memory: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key) -> Acted:
        """Act for every stream [B, ...] by a sample; `key` is [B]."""
        agent, learner = self._read()
        out = agent.policy(learner, self._carry(agent, memory), obs, first, action_mask)
        return Acted(tuple(jax.tree.leaves(out.carry)), out.distribution, sample(out, key))

    def _carry(self, agent: Any, memory: PyTree) -> PyTree:
        return jax.tree.unflatten(jax.tree.structure(_carry_of(agent)), memory)

    def _read(self) -> tuple[Any, Any]:
        """Return the teacher's agent and learner; ConfigError unless they are those of the run's start."""
        if self._policy is None:
            policy = _checked(_loaded(self.source), self.source, self._wanted)
            _require_same(self.source, self.checksum, checksum_of(policy))
            if memory_of(policy) != self.memory:
                raise ConfigError(
                    f"distillation.memory = {list(self.memory)}: the teacher {self.source!r} has "
                    f"{list(memory_of(policy))}"
                )
            self._policy = policy
        return self._policy.agent, jax.tree.map(jnp.asarray, self._policy.learner)


def teacher_of(
    teacher: Any, checksum: str, memory: tuple[str, ...], observation: spaces.Space, action: spaces.Space
) -> Teacher:
    """Return the teacher that a path or a policy names; it is read at once unless its checksum is known."""
    wanted = observation, action
    if not isinstance(teacher, str):
        policy = _checked(teacher, "a policy of Python", wanted)
        return Teacher("", checksum_of(policy), memory_of(policy), wanted, policy)
    # absolute: a run is continued from any working directory
    source = teacher if teacher.startswith(REMOTE) else os.path.abspath(teacher)
    if checksum:
        return Teacher(source, checksum, memory, wanted)
    policy = _checked(_loaded(source), source, wanted)
    return Teacher(source, checksum_of(policy), memory_of(policy), wanted, policy)


def memory_of(policy: Any) -> tuple[str, ...]:
    """Return the arrays of a policy's memory in one stream, as ("float32[64]",): data for run files."""
    arrays = jax.tree.leaves(_carry_of(policy.agent))
    return tuple(f"{x.dtype}[{','.join(map(str, x.shape[1:]))}]" for x in arrays)


def initial_memory(arrays: tuple[str, ...], num_streams: int) -> tuple[Array, ...]:
    """Return zeros [B, ...] for a memory, which the first step of an episode resets; ConfigError for another text."""
    found = [(text, ARRAY.fullmatch(text)) for text in arrays]
    for text, match in found:
        if match is None:
            raise ConfigError(f"distillation.memory: {text!r}; must be as 'float32[64]': leave it out, ppax writes it")
    pairs = [(match[1], match[2]) for _, match in found if match is not None]
    return tuple(jnp.zeros((num_streams, *map(int, filter(None, sizes.split(",")))), kind) for kind, sizes in pairs)


def _carry_of(agent: Any) -> PyTree:
    """Return the shapes of an agent's memory [1, ...]."""
    return jax.eval_shape(lambda: agent.initial_carry(1))


def checksum_of(policy: Any) -> str:
    """Return the SHA-256 of a policy's weights, statistics and the options that acting reads."""
    agent = policy.spec.config.get("agent", {})
    options = {name: agent[name] for name in READ if name in agent}
    digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode())
    leaves, _ = jax.tree_util.tree_flatten_with_path(policy.learner)
    for path, leaf in leaves:
        x = np.ascontiguousarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {x.dtype} {x.shape}".encode())
        digest.update(x.tobytes())
    return digest.hexdigest()


def _loaded(source: str) -> Any:
    """Read a policy with `ppax.load`; ConfigError, naming the option, where there is none."""
    if not (source.startswith(REMOTE) or os.path.exists(source)):
        raise ConfigError(
            f"distillation.teacher = {source!r}: does not exist; must be the run directory or bundle of the teacher. "
            "Put it back, or write its new place there (in run.toml, for a run that is continued)"
        )
    try:
        return load_policy(source)
    except Untrusted:  # says how to trust the packages of the teacher's network
        raise
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"distillation.teacher = {source!r}: {error}") from error


def _checked(policy: Any, name: str, wanted: tuple[spaces.Space, spaces.Space]) -> Any:
    """Return a policy; ConfigError unless it is one policy for the spaces `wanted`."""
    field = f"distillation.teacher: {name}"
    try:
        agent, spec, _ = policy.agent, policy.spec, policy.learner
    except AttributeError:
        remedy = "must be a path, or what ppax.load or run.policy() returns"
        raise ConfigError(f"{field}: a {type(policy).__name__}; {remedy}") from None
    if not isinstance(agent, PPO):
        raise ConfigError(f"{field} works with one policy for all agents; this run has {type(agent).__name__}")
    given = spec.observation_space, spec.action_space
    for kind, own, student in zip(("observation", "action"), given, wanted, strict=True):
        if own != student:
            raise ConfigError(f"{field} has the {kind} space {own}; must be that of the student, {student}")
    return policy


def _require_same(source: str, recorded: str, found: str) -> None:
    if found != recorded:
        raise ConfigError(
            f"distillation.teacher = {source!r}: another policy than that of the run's start (SHA-256 {found[:12]}, "
            f"recorded {recorded[:12]}): put the first one back, or remove distillation.checksum to go on with this one"
        )
