"""Distillation: an extension in which a student follows the action distributions of a teacher, or of several.

The student learns in the states that its actions lead to, or with DAgger also in those to which the teacher's lead. A
teacher may read entries of the observation that the student's actor does not see, such as privileged state.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import where_rows, zero_rows
from ppax.core.imports import Untrusted
from ppax.core.parts import PATH, slot
from ppax.core.types import ConfigError, ExtensionState, Key, PyTree, Rollout, Scalar, number, part, static
from ppax.envs.hosting.arrays import leaves_of
from ppax.extensions.imitation.selection import ByTask, Selection
from ppax.extensions.imitation.views import entry_at, follow_path, require_entries, seen_by_teacher
from ppax.ppo.extension import Acted, Before, Choice, Extension, Rows, Terms
from ppax.ppo.forward import forward, sample
from ppax.ppo.losses import NoPolicyLoss
from ppax.ppo.ppo import PPO

READ = ("network", "critic", "normalize_obs", "normalization", "compute_dtype")  # options that acting reads
REMOTE = "hf://"
# array of a memory; before it the number of its teacher, if there are several
ARRAY = re.compile(r"(?:\d+: )?(float(?:16|32)|bfloat16|u?int(?:8|16|32)|bool)\[((?:\d+(?:,\d+)*)?)\]")
REMEDY = 'teacher = "runs/teacher", a run directory or bundle; in Python ppax.imitation.distill(env, teacher)'


def _unset(source: str) -> Any:
    raise NotImplementedError


# `ppax.load`, of a room above this one: ppax/__init__.py sets it
load_policy: Callable[[str], Any] = _unset


@part
class Distillation(Extension):
    """Distillation of a teacher policy: coef * KL(teacher || student) on the steps of rollouts. Rusu et al. 2016,
    https://arxiv.org/abs/1511.06295

    The student collects the rollouts; with `beta`, the teacher acts in some of their steps (DAgger, Ross et al. 2011,
    https://arxiv.org/abs/1011.0686). The teacher must have the student's action space, and a distribution of the same
    class with the same bounds; of the environment's observation it may read other entries than the student's actor. Of
    several teachers, `select` chooses one in each step. In Python `ppax.imitation.distill` makes this part.
    """

    teacher: str = static(
        "run directory or exported bundle of the teacher, as ppax.load reads it", default="", outside=PATH
    )
    checksum: str = static(
        "SHA-256 of the teacher, which ppax writes into the run file: another teacher is refused; of several with "
        "blanks between them",
        default="",
    )
    coef: Scalar = number("weight of the divergence of the student from the teacher in the loss", default=1.0, low=0.0)
    beta: Scalar | None = number(
        "DAgger: probability that the teacher acts in a step, with loss = none; none: the student acts always",
        default=None,
        low=0.0,
        high=1.0,
    )
    memory: tuple[str, ...] = static(
        "arrays of the teacher's memory in one stream, which ppax writes into the run file; empty without one",
        default=(),
    )
    teachers: tuple[str, ...] = static(
        "run directories or bundles of several teachers, in place of teacher; select chooses one in each step",
        default=(),
        outside=PATH,
    )
    select: Selection = slot("selection", "rule that chooses one of several teachers in each step", default=ByTask())
    teacher_obs: tuple[str, ...] = static(
        "entry of a Dict observation that is a teacher's whole observation: one for all teachers, or one for each; "
        "empty: the observation, of which a teacher gets the entries that it knows",
        default=(),
    )
    policy: Teachers | None = static("the teachers, as `distill` holds them", default=None)

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> ExtensionState:
        """Return an empty state and no parameters: distillation keeps none in the learner.

        Raises ConfigError where the teacher acts (`beta`) and the agent has a policy loss, whose probability ratios
        would be wrong.
        """
        if self.beta is not None and not isinstance(agent.loss, NoPolicyLoss):
            raise ConfigError(
                f"distillation.beta: some actions are the teacher's, whose probability ratio in "
                f'{type(agent.loss).__name__} would be wrong; must be none, or with agent.loss = "none", in Python '
                "loss=ppax.losses.NoPolicyLoss()"
            )
        return ExtensionState()

    def terms(self, rows: Rows) -> Terms:
        """Return coef * KL(teacher || student) for each row, [N].

        If there are several teachers, the divergence is from the one that `select` chose in the row's step. Raises
        ConfigError where the distributions of teacher and student differ in their class or bounds.
        """
        wanted, own = rows.extras, rows.policy.distribution
        _require_alike(wanted, own)
        # rows that are not valid are zeros, of which some densities have no logarithm: NaN would reach the gradient
        divergence = where_rows(rows.batch.steps.valid, wanted, jax.lax.stop_gradient(own)).kl(own)
        return Terms({"distillation_loss": self.coef * divergence}, {"teacher_kl": divergence})

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the teacher's initial memory in each stream (one agent in one environment), for the hook `before`.

        The hook advances it by a whole rollout at a time.
        """
        return initial_memory(self.memory, num_streams)

    def before(self, agent: Any, state: PyTree, streams: PyTree, rollout: Rollout, reward: Array) -> Before:
        """Return the distributions of the teacher's actions in a rollout's steps [T, B], and its memory after them.

        Rewards are returned as they are; the distributions are inputs of `terms`. Raises ConfigError for a teacher with
        memory where agents act in turns.
        """
        if self.memory and rollout.played is not None:
            # a rollout of turns has rows in which the stream waits, which would advance the teacher's memory, too
            raise ConfigError(
                "distillation.teacher: has a memory, and the agents of this environment act in turns, where it would "
                "also remember steps of waiting; must be a teacher without memory"
            )
        steps = rollout.steps
        obs, action_mask = zero_rows(steps.valid, (steps.obs, steps.action_mask))
        taught = self._teacher().follow(streams, obs, steps.first, action_mask, self.select)
        return Before(state, reward, taught.distribution, taught.memory)

    def init_acting(self, agent: Any, num_streams: int) -> PyTree:
        """Return each stream's initial state of acting: the teacher's memory, and False, as no teacher has acted yet.

        A stream is one agent in one environment. The result is () without `beta`, the probability that the teacher
        acts. This memory advances at every step; the one of `init_streams` advances once per rollout.
        """
        if self.beta is None:
            return ()
        return initial_memory(self.memory, num_streams), jnp.zeros(num_streams, bool)

    def act(self, agent: Any, acting: PyTree, choice: Choice, key: Key) -> Acted:
        """Return the action of every stream: with probability `beta` a sample of the teacher's, else the student's.

        A stream is one agent in one environment.
        """
        act_key, choice_key = (jax.vmap(jax.random.fold_in, (0, None))(key, number) for number in range(2))
        acted = self._teacher().act(acting[0], choice.obs, choice.first, choice.action_mask, act_key, self.select)
        _require_alike(acted.distribution, choice.policy.distribution)
        beta = 0.0 if self.beta is None else self.beta  # without it nothing calls this
        acts = jax.vmap(lambda one: jax.random.bernoulli(one, beta))(choice_key)
        return Acted((acted.memory, acts), where_rows(acts, acted.action, choice.action))

    def _teacher(self) -> Teachers:
        if self.policy is None:
            raise ConfigError(f"distillation.teacher: distillation needs a teacher: {REMEDY}")
        return self.policy


def distill(
    env: Any,
    teacher: Any = "",
    checksum: str = "",
    coef: Scalar = 1.0,
    beta: Scalar | None = None,
    memory: tuple[str, ...] = (),
    teachers: Sequence[Any] = (),
    select: Selection = ByTask(),  # noqa: B008  # frozen
    teacher_obs: Sequence[str] = (),
) -> Distillation:
    """Return the extension that distils `teacher`, or several `teachers`, for the spaces of `env`.

    `teacher` is the path of a run directory or bundle, which `ppax.load` reads, "hf://OWNER/NAME", or a `ppax.Policy`.
    With `beta`, each step's action is the teacher's with this probability (DAgger), which needs
    `loss=ppax.losses.NoPolicyLoss()`. A path is kept in the run file, and read again when the run is continued; a
    policy has to be passed again. `checksum` and `memory` are options that ppax records in the run file: `memory`
    describes the arrays of the teacher's recurrent state in one stream, such as "float32[64]". With a `checksum`, the
    teacher is read only when it is first needed, and must then have this checksum and these arrays.

    If several `teachers` are given instead, `select` chooses one in each step: `ByTask("task")` by the number in the
    entry "task" of the observation, `ByValue()` by the teachers' own critics. The observation of `env` must have all
    entries that a teacher reads. `teacher_obs` names an entry of a Dict observation that is the whole observation of
    the teacher: one for all teachers, or one for each.

    Raises ConfigError, naming the field, for a teacher that does not exist or has another checksum, that reads what
    `env` lacks, has another action space, or has several agents.
    """
    if isinstance(teacher, str) and not teacher and not len(teachers):
        raise ConfigError(f'distillation.teacher = "": must be {REMEDY}')
    if isinstance(teachers, str):
        raise ConfigError(f'distillation.teachers = {teachers!r}: must be a list; for one write teacher = "{teachers}"')
    several = len(teachers) > 0
    if several and not (isinstance(teacher, str) and not teacher):
        raise ConfigError("distillation.teachers: there is a teacher, too; must be one of the two options")
    sources = list(teachers) if several else [teacher]
    entries = list(teacher_obs) or [""]
    if len(entries) not in (1, len(sources)):
        raise ConfigError(
            f"distillation.teacher_obs = {entries}: must be one entry for all {len(sources)} teachers, or one for each"
        )
    entries = entries * len(sources) if len(entries) == 1 else entries
    for entry in entries:
        entry_at(env.observation_space, entry, "distillation.teacher_obs")
    known, arrays = _split(checksum, len(sources)), _memory_of_each(memory, len(sources))
    needs_value = several and select.needs_value
    made = [
        teacher_of(
            str(source) if isinstance(source, Path) else source,
            known[i],
            arrays[i],
            Wanted(
                env.observation_space,
                env.action_space,
                entries[i],
                needs_value,
                f"distillation.teachers[{i}]" if several else "distillation.teacher",
            ),
        )
        for i, source in enumerate(sources)
    ]
    held = Teachers(tuple(made))
    if several:
        select.check(env.observation_space, [one.policy for one in made])
    return Distillation(
        teacher="" if several else made[0].source,
        checksum=held.checksum if held.sources else "",
        coef=coef,
        beta=beta,
        memory=held.memory,
        teachers=held.sources if several else (),
        select=select,
        teacher_obs=tuple(teacher_obs),
        policy=held,
    )


def _split(checksum: str, count: int) -> list[str]:
    """Return the checksum of each of `count` teachers, from a text with blanks between the checksums.

    For an empty text each is "". Raises ConfigError where the text has another number of checksums.
    """
    each = checksum.split()
    if len(each) not in (0, count):
        raise ConfigError(
            f"distillation.checksum: has {len(each)}, and there are {count} teachers: remove it; ppax writes it"
        )
    return each or [""] * count


def _memory_of_each(memory: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """Return, for each of `count` teachers, the descriptions of its arrays of memory, such as ("float32[64]",).

    `memory` has the descriptions of all teachers. If there are several teachers, a description in `memory` begins with
    its teacher's number, as "0: float32[64]"; the result is without these numbers.
    """
    if count == 1:
        return [tuple(memory)]
    pairs = [text.partition(": ") for text in memory]
    return [tuple(array for number, _, array in pairs if number == str(i)) for i in range(count)]


def _require_alike(wanted: Any, own: Any) -> None:
    """Raise ConfigError unless the distributions of teacher and student have the same class and the same bounds.

    `wanted` is the teacher's distribution, `own` the student's.
    """
    if jax.tree.structure(wanted) != jax.tree.structure(own):  # type: ignore[operator]
        names = type(wanted).__name__, type(own).__name__
        raise ConfigError(
            f"distillation.teacher: its actions have the distribution {names[0]}, those of the student {names[1]}; "
            "must be the same with the same bounds: give agent.network.distribution of the teacher's run"
        )


class Teacher:
    """Policy that a student imitates, read at its first use.

    Its weights are constants of the compiled program, which is compiled for one teacher. They are no leaves of the
    agent as a JAX tree, because a sweep, or agents with separate parameters, map over all leaves. The teacher's memory
    of each stream (one agent in one environment) is a tuple of arrays [B, ...], whose shapes and types are known before
    the policy is read. Teachers compare equal if they have equal checksums, and read the same entry of the same
    observation space; policies that were passed in Python must also have equal static options.
    """

    def __init__(self, source: str, checksum: str, memory: tuple[str, ...], wanted: Wanted, policy: Any = None):
        """Keep the teacher's path `source`, its checksum, the descriptions `memory`, and the requirements `wanted`.

        `memory` describes each array of the teacher's memory in one stream, as "float32[64]". `wanted` has the spaces
        of the student's environment. Without a `policy`, the teacher is read from `source` at its first use.
        """
        self.source, self.checksum, self.memory, self.wanted, self.policy = source, checksum, memory, wanted, policy
        # two policies of Python may have equal weights and other activations
        structure = "" if source else jax.tree.structure(policy.agent)
        self._key: Hashable = (checksum, structure, wanted.entry, str(wanted.observation))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Teacher) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return f"Teacher({self.source or 'a policy'}, {self.checksum[:12]})"

    def follow(
        self, memory: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, with_value: bool = False
    ) -> Taught:
        """Return the teacher's distributions in the steps [T, B, ...] of a rollout, and its memory after these steps.

        `memory` [B, ...] is the teacher's memory before them, `obs` the observation of the student's environment. The
        result has V of the teacher's critic only if `with_value` is True.
        """
        agent, learner = self._read()
        num_steps, streams = first.shape
        obs = self._seen(obs, first.shape)
        sequences: PyTree = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), (obs, first, action_mask))
        rows = agent.program.rows(num_steps, agent.compute_dtype, sequences[0], agent.network)

        def one(sequence: PyTree) -> tuple[Any, PyTree]:
            inputs = jax.tree.map(lambda x: x[None], sequence)
            out = forward(agent.network, agent.critic, agent.compute_dtype, learner, *inputs)
            rows = (out.distribution, out.value) if with_value else (out.distribution,)
            return rows, jax.tree.map(lambda x: x[0], out.carry)

        at_once = min(max(1, rows // num_steps), streams)  # in chunks, so that activations stay in the cache
        taught = jax.lax.map(one, (self._carry(agent, memory), *sequences), batch_size=at_once)
        rows_of = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), taught[0])
        return Taught(rows_of[0], tuple(jax.tree.leaves(taught[1])), rows_of[1] if with_value else None)

    def act(self, memory: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key) -> TeacherActed:
        """Return a sampled action of the teacher for every stream (one agent in one environment), and its next memory.

        `key` is [B], one for each stream.
        """
        agent, learner = self._read()
        out = agent.policy(learner, self._carry(agent, memory), self._seen(obs, first.shape), first, action_mask)
        return TeacherActed(tuple(jax.tree.leaves(out.carry)), out.distribution, sample(out, key), out.value)

    def _seen(self, obs: PyTree, lead: tuple[int, ...]) -> PyTree:
        """Return the teacher's observation [*lead, ...], made from an observation of the student's environment."""
        assert self.policy is not None  # `_read` has read it
        student = entry_at(self.wanted.observation, self.wanted.entry, "")[1]
        own = follow_path(obs, self.wanted.entry)
        return seen_by_teacher(own, student, self.policy.spec.observation_space, lead)

    def _carry(self, agent: Any, memory: PyTree) -> PyTree:
        return jax.tree.unflatten(jax.tree.structure(_carry_of(agent)), memory)

    def _read(self) -> tuple[Any, Any]:
        """Return the teacher's agent and learner; the first call reads them from the teacher's path.

        Raises ConfigError where the checksum or the arrays of memory are not those that the run file has recorded.
        """
        if self.policy is None:
            policy = _checked(_loaded(self.source, self.wanted.field), self.source, self.wanted)
            _require_same(self.wanted.field, self.source, self.checksum, checksum_of(policy))
            if teacher_memory(policy) != self.memory:
                raise ConfigError(
                    f"distillation.memory = {list(self.memory)}: the teacher {self.source!r} has "
                    f"{list(teacher_memory(policy))}"
                )
            self.policy = policy
        return self.policy.agent, jax.tree.map(jnp.asarray, self.policy.learner)


class Teachers:
    """Teachers of a student, one or several, of which a rule selects one in each step.

    Their memory of each stream (one agent in one environment) is one tuple of arrays [B, ...], teacher by teacher.
    Objects compare equal if their teachers do, in the same order; `Teacher` says when two of these do.
    """

    def __init__(self, each: tuple[Teacher, ...]):
        """Keep the teachers, at least one."""
        self.each = each

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Teachers) and self.each == other.each

    def __hash__(self) -> int:
        return hash(self.each)

    def __repr__(self) -> str:
        return ", ".join(map(repr, self.each))

    @property
    def sources(self) -> tuple[str, ...]:
        """Path of each teacher; () unless all have one."""
        return tuple(one.source for one in self.each) if all(one.source for one in self.each) else ()

    @property
    def checksum(self) -> str:
        """Checksum of the teacher; if there are several, their checksums with blanks between them."""
        return " ".join(one.checksum for one in self.each)

    @property
    def memory(self) -> tuple[str, ...]:
        """Text for each array of memory in one stream, such as "float32[64]"; for several teachers "0: float32[64]".

        A stream is one agent in one environment; the number is the teacher's.
        """
        if len(self.each) == 1:
            return self.each[0].memory
        return tuple(f"{i}: {array}" for i, one in enumerate(self.each) for array in one.memory)

    def follow(
        self, memory: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, select: Selection | None = None
    ) -> Taught:
        """Return the distributions [T, B] of the selected teachers in a rollout, and the memory of all after it.

        The arguments are those of `Teacher.follow`; `memory` is that of all teachers, and `select` the rule that
        selects one of several.
        """
        own = self._memories(memory)
        if len(self.each) == 1:
            return self.each[0].follow(own[0], obs, first, action_mask)
        assert select is not None
        needs = select.needs_value
        taught = [one.follow(mine, obs, first, action_mask, needs) for one, mine in zip(self.each, own, strict=True)]
        values = _stacked([one.value for one in taught]) if needs else None
        index = jax.vmap(jax.vmap(partial(select, space=self._space)))(obs, values)
        distribution = _selected(index, [one.distribution for one in taught])
        return Taught(distribution, tuple(array for one in taught for array in one.memory))

    def act(
        self, memory: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key, select: Selection
    ) -> TeacherActed:
        """Return a sampled action of the selected teacher for every stream, and the next memory of all teachers.

        A stream is one agent in one environment; `key` is [B], one for each stream.
        """
        pairs = zip(self.each, self._memories(memory), strict=True)
        acted = [
            one.act(mine, obs, first, action_mask, key if i == 0 else jax.vmap(jax.random.fold_in, (0, None))(key, i))
            for i, (one, mine) in enumerate(pairs)
        ]
        if len(acted) == 1:
            return acted[0]
        values = _stacked([one.value for one in acted]) if select.needs_value else None
        index = jax.vmap(partial(select, space=self._space))(obs, values)
        return TeacherActed(
            tuple(array for one in acted for array in one.memory),
            _selected(index, [one.distribution for one in acted]),
            _selected(index, [one.action for one in acted]),
        )

    @property
    def _space(self) -> spaces.Space:
        """Observation space of the student's environment."""
        return self.each[0].wanted.observation

    def _memories(self, memory: PyTree) -> list[tuple[Array, ...]]:
        """Return the memory of each teacher, from the arrays of all."""
        arrays = iter(memory)
        return [tuple(next(arrays) for _ in one.memory) for one in self.each]


def _stacked(values: Sequence[Array | None]) -> Array:
    """Return V of K teachers, [...] each, as one array [..., K]; called only where all teachers have computed V."""
    return jnp.stack([value for value in values if value is not None], axis=-1)


def _selected(index: Array, trees: Sequence[PyTree]) -> PyTree:
    """Return one tree with each row taken from one of `trees`: row i from `trees[index[i]]`.

    `index` is [...], and the leaves of all trees are [..., any]; an index beyond the ends takes the first or the last
    tree. Raises ConfigError where the structures of the trees differ, because teachers have distributions of different
    classes or bounds.
    """
    chosen = trees[0]
    for i, tree in enumerate(trees[1:], start=1):
        if jax.tree.structure(tree) != jax.tree.structure(chosen):  # type: ignore[operator]
            names = type(chosen).__name__, type(tree).__name__
            raise ConfigError(
                f"distillation.teachers[{i}]: its actions have the distribution {names[1]}, those of teacher 0 "
                f"{names[0]}; must be the same with the same bounds"
            )
        chosen = where_rows(index >= i, tree, chosen)
    return chosen


class Taught(NamedTuple):
    """Result of `follow`: a teacher's distributions in a rollout, the teacher's memory after it, and V if asked for.

    `Teachers.follow` returns the distributions of the teacher selected in each step, all teachers' memory, and no V.
    """

    distribution: Any  # [T, B]
    memory: PyTree  # [B, ...]
    value: Array | None = None  # [T, B] V of the teacher's critic, if it is asked for


class TeacherActed(NamedTuple):
    """Result of `act`: a teacher's next memory, distribution, sampled action and V in every stream.

    A stream is one agent in one environment. Of several teachers, `Teachers.act` returns the memory of all,
    distribution and action of the selected one, and no V.
    """

    memory: PyTree  # [B, ...]
    distribution: Any  # [B]
    action: PyTree  # [B, ...] as sampled
    value: Array | None = None  # [B] V of the teacher's critic


class Wanted(NamedTuple):
    """Requirements on a teacher: the student's spaces, the entry that the teacher reads, and whether V is needed.

    `field` is the option that names the teacher, for messages.
    """

    observation: spaces.Space
    action: spaces.Space
    entry: str = ""  # of the observation, which is the teacher's whole observation
    needs_value: bool = False  # V of the teacher's critic is read
    field: str = "distillation.teacher"  # its name in messages


def teacher_of(teacher: Any, checksum: str, memory: tuple[str, ...], wanted: Wanted) -> Teacher:
    """Return the teacher that a path or a policy stands for; it is read at once unless a `checksum` is given.

    `wanted` has the spaces of the student's environment. `memory` describes the arrays of the teacher's memory, if it
    is not read at once.
    """
    if not isinstance(teacher, str):
        policy = _checked(teacher, "a policy of Python", wanted)
        return Teacher("", checksum_of(policy), teacher_memory(policy), wanted, policy)
    # absolute: a run is continued from any working directory
    source = teacher if teacher.startswith(REMOTE) else os.path.abspath(teacher)
    if checksum:
        return Teacher(source, checksum, memory, wanted)
    policy = _checked(_loaded(source, wanted.field), source, wanted)
    return Teacher(source, checksum_of(policy), teacher_memory(policy), wanted, policy)


def _loaded(source: str, field: str) -> Any:
    """Return the policy that `ppax.load` reads from `source`; ConfigError, naming the option, where there is none."""
    if not (source.startswith(REMOTE) or os.path.exists(source)):
        raise ConfigError(
            f"{field} = {source!r}: does not exist; must be the run directory or bundle of the teacher. "
            "Put it back, or write its new place there (in run.toml, for a run that is continued)"
        )
    try:
        return load_policy(source)
    except Untrusted:  # says how to trust the packages of the teacher's network
        raise
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{field} = {source!r}: {error}") from error


def _checked(policy: Any, name: str, wanted: Wanted) -> Any:
    """Return `policy`; ConfigError unless it is a PPO policy that all agents share, and fits the student's environment.

    `name` is what the message calls the policy; `wanted` has the spaces of the environment.
    """
    field = f"{wanted.field}: {name}"
    try:
        agent, spec, _ = policy.agent, policy.spec, policy.learner
    except AttributeError:
        remedy = "must be a path, or what ppax.load or run.policy() returns"
        raise ConfigError(f"{field}: a {type(policy).__name__}; {remedy}") from None
    if not isinstance(agent, PPO):
        raise ConfigError(f"{field} works with one policy for all agents; this run has {type(agent).__name__}")
    student = entry_at(wanted.observation, wanted.entry, "distillation.teacher_obs")[1]
    if spec.observation_space != student:
        actor = policy.actor_critic if wanted.needs_value else policy.actor
        leaves = zip(leaves_of(spec.observation_space), actor.obs.read, strict=True)
        read = {leaf.path for leaf, is_read in leaves if is_read}
        require_entries(student, spec.observation_space, read, field, "distillation.teacher_obs")
    if spec.action_space != wanted.action:
        raise ConfigError(
            f"{field} has the action space {spec.action_space}; must be that of the student, {wanted.action}"
        )
    return policy


def _require_same(field: str, source: str, recorded: str, found: str) -> None:
    if found != recorded:
        raise ConfigError(
            f"{field} = {source!r}: another policy than that of the run's start (SHA-256 {found[:12]}, "
            f"recorded {recorded[:12]}): put the first one back, or remove distillation.checksum to go on with this one"
        )


def checksum_of(policy: Any) -> str:
    """Return the SHA-256 of a policy: of its weights and statistics, and of the options that its actions depend on."""
    agent = policy.spec.config.get("agent", {})
    options = {name: agent[name] for name in READ if name in agent}
    digest = hashlib.sha256(json.dumps(options, sort_keys=True, default=str).encode())
    leaves, _ = jax.tree_util.tree_flatten_with_path(policy.learner)
    for path, leaf in leaves:
        x = np.ascontiguousarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {x.dtype} {x.shape}".encode())
        digest.update(x.tobytes())
    return digest.hexdigest()


def teacher_memory(policy: Any) -> tuple[str, ...]:
    """Return a description of a policy's memory in one stream, a text for each array, such as ("float32[64]",).

    The run file stores it as the option `memory`; it is () for a policy without memory. A stream is one agent in one
    environment.
    """
    arrays = jax.tree.leaves(_carry_of(policy.agent))
    return tuple(f"{x.dtype}[{','.join(map(str, x.shape[1:]))}]" for x in arrays)


def _carry_of(agent: Any) -> PyTree:
    """Return the shapes of an agent's memory in one stream (one agent in one environment), [1, ...] each."""
    return jax.eval_shape(lambda: agent.initial_carry(1))


def initial_memory(arrays: tuple[str, ...], num_streams: int) -> tuple[Array, ...]:
    """Return a teacher's memory of zeros [B, ...] for all streams, which the first step of an episode replaces.

    `arrays` describe it as `teacher_memory` does; ConfigError for a text of another form. A stream is one agent in one
    environment.
    """
    found = [(text, ARRAY.fullmatch(text)) for text in arrays]
    for text, match in found:
        if match is None:
            raise ConfigError(f"distillation.memory: {text!r}; must be as 'float32[64]': leave it out, ppax writes it")
    pairs = [(match[1], match[2]) for _, match in found if match is not None]
    return tuple(jnp.zeros((num_streams, *map(int, filter(None, sizes.split(",")))), kind) for kind, sizes in pairs)
