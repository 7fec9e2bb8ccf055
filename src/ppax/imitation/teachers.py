"""Teacher of a distillation: a policy, held as a constant of the program and known by its checksum.

Its weights are no numbers of the agent, which sweeps and independent players map over, so they are static: a program
depends on the teacher as on a size.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Hashable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppax.agents.arguments import require_single_policy
from ppax.imports import Untrusted
from ppax.types import ConfigError, PyTree

READ = ("network", "critic", "normalize_obs", "compute_dtype")  # options that acting reads
REMOTE = "hf://"
_of_record: ContextVar[bool] = ContextVar("_of_record", default=False)


@contextlib.contextmanager
def without_downloads() -> Iterator[None]:
    """Context for agents that a run directory describes, maybe a stranger's: their teachers are never downloaded."""
    token = _of_record.set(True)
    try:
        yield
    finally:
        _of_record.reset(token)


class Teacher:
    """Policy that is imitated. Two are equal where their checksums are; `policy` is read when it is first used."""

    def __init__(self, source: str, checksum: str, wanted: tuple[spaces.Space, spaces.Space], policy: Any = None):
        """Keep the path, checksum and spaces; `policy` is None where it is to be read from `source`."""
        self.source, self.checksum, self._wanted, self._policy = source, checksum, wanted, policy
        self._download = not _of_record.get()
        # two policies of Python may have equal weights and other activations
        self._key: Hashable = (checksum, "" if source else jax.tree.structure(policy.agent))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Teacher) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Teacher({self.source or 'a policy'}, {self.checksum[:12]})"

    def distribution(self, obs: PyTree, action_mask: PyTree | None) -> Any:
        """Distribution of the teacher's actions at observations [N, ...]."""
        policy = self._read()
        rows = jax.tree.leaves(obs)[0].shape[0]
        first = jnp.ones(rows, bool)
        learner = jax.tree.map(jnp.asarray, policy.learner)
        out = policy.agent.policy(learner, policy.agent.initial_carry(rows), obs, first, action_mask)
        return out.distribution

    def _read(self) -> Any:
        if self._policy is None:
            self._policy = _checked(_loaded(self.source, self._download), self.source, self._wanted)
            _require_same(self.source, self.checksum, checksum_of(self._policy))
        return self._policy


def teacher_of(teacher: Any, checksum: str, observation: spaces.Space, action: spaces.Space) -> Teacher:
    """Return the teacher that a path or a policy names; it is read at once unless its checksum is known."""
    wanted = observation, action
    if not isinstance(teacher, str):
        policy = _checked(teacher, "a policy of Python", wanted)
        return Teacher("", checksum_of(policy), wanted, policy)
    # absolute: a run is continued from any working directory
    source = teacher if teacher.startswith(REMOTE) else os.path.abspath(teacher)
    if checksum:
        return Teacher(source, checksum, wanted)
    policy = _checked(_loaded(source, not _of_record.get()), source, wanted)
    return Teacher(source, checksum_of(policy), wanted, policy)


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


def _loaded(source: str, download: bool) -> Any:
    """Read a policy with `ppax.load`; ConfigError, naming the option, where there is none.

    Without `download`, one of the Hugging Face Hub must be in the cache on this machine.
    """
    # above this room: it builds agents, of which a teacher is a part
    from ppax.policy.loading import downloaded, load

    place = source if download or not source.startswith(REMOTE) else downloaded(source)
    if place is None:
        raise ConfigError(
            f"auxiliary.teacher = {source!r}: the run directory names it, and what a run directory names is not "
            f"downloaded without being asked for; it is not in the cache of this machine. If you trust it, call "
            f"ppax.load({source!r}) once, or pass an agent with ppax.imitation.distill(env, {source!r}): "
            "ppax.resume(run_dir, agent=agent)"
        )
    if not (source.startswith(REMOTE) or os.path.exists(source)):
        raise ConfigError(
            f"auxiliary.teacher = {source!r}: does not exist; must be the run directory or bundle of the teacher. Put "
            "it back, or write its new place there (in run.toml, for a run that is continued)"
        )
    try:
        return load(place)
    except Untrusted:  # says how to trust the packages of the teacher's network
        raise
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"auxiliary.teacher = {source!r}: {error}") from error


def _checked(policy: Any, name: str, wanted: tuple[spaces.Space, spaces.Space]) -> Any:
    """Return a policy; ConfigError unless it is one policy without memory for the spaces `wanted`."""
    field = f"auxiliary.teacher: {name}"
    try:
        agent, spec, _ = policy.agent, policy.spec, policy.learner
    except AttributeError:
        remedy = "must be a path, or what ppax.load or run.policy() returns"
        raise ConfigError(f"{field}: a {type(policy).__name__}; {remedy}") from None
    require_single_policy(agent, field)
    given = spec.observation_space, spec.action_space
    for kind, own, student in zip(("observation", "action"), given, wanted, strict=True):
        if own != student:
            raise ConfigError(f"{field} has the {kind} space {own}; must be that of the student, {student}")
    if jax.tree.leaves(jax.eval_shape(lambda: agent.initial_carry(1))):
        raise ConfigError(f"{field} has a memory; must be a policy without memory, as its state is not in the rollout")
    return policy


def _require_same(source: str, recorded: str, found: str) -> None:
    if found != recorded:
        raise ConfigError(
            f"auxiliary.teacher = {source!r}: another policy than that of the run's start (SHA-256 {found[:12]}, "
            f"recorded {recorded[:12]}): put the first one back, or remove auxiliary.checksum to go on with this one"
        )
