"""Policy: what acting needs of a trained agent, for use outside of its run."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ppax.agents.precision import in_float32
from ppax.arrays import masks
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, Key, PyTree
from ppax.envs import Env
from ppax.envs.hosting.arrays import element_of
from ppax.policy.actor import Actor, Stepped, acting_agent, actor_of, names_left_out, step, unread_entries
from ppax.policy.bundle.writing import Exported, write_bundle
from ppax.policy.inputs import Inputs, as_flags
from ppax.policy.mlflow_model import write_mlflow_model
from ppax.policy.programs import Program, make_program
from ppax.policy.spec import PolicySpec, memory_of
from ppax.training.arguments import require_arguments, require_fit
from ppax.training.evaluation import Evaluation, evaluate, evaluation_key
from ppax.training.host.policy import PolicyInputs
from ppax.training.host.streams import hold_carry


class ActionValue(NamedTuple):
    """Result of `Policy.act` with `return_value`: actions and V, each for one observation or a batch, as it was given.

    V is [], or [b] for a batch. Where an observation is that of all agents, V is [agents] or [b, agents], with groups
    in a dict by group. For observations in a dict by agent, both are dicts by agent.
    """

    action: Any  # as the environment takes it
    value: Any  # float32: V, the critic's estimate of the discounted return, for each agent of the observation


class Source(NamedTuple):
    """Run that trained a policy, and how far it was when the policy was saved."""

    run_dir: Path | None
    iteration: int  # of the policy; the run's evaluation belongs to one iteration
    env_steps: int


class ActingState(NamedTuple):
    """Actor of a policy, the reader of its inputs, and its memory between calls of `Policy.act`."""

    actor: Actor
    inputs: Inputs
    memory: StreamMemory


class Policy:
    """Trained policy: `act` for observations in NumPy, `step` for compiled programs, `evaluate` on environments.

    `agent` is PPO, Independent or Groups; `learner` is the part of its learner that acting reads (parameters,
    observation statistics), NumPy arrays on the host; `spec` describes inputs and outputs. `actor` is the agent
    without what only its critic reads, `actor_critic` the agent that gives V, too.
    """

    def __init__(self, agent: Agent, learner: Any, spec: PolicySpec, source: Source | None = None):
        """Make the policy of `agent` and `learner`.

        The learner may be whole, or reduced already to what acting reads. `spec` describes inputs and outputs; `source`
        is the run that trained the policy (None: unknown).
        """
        self.source = source
        self.agent, learner = acting_agent(agent, learner)
        self.learner = jax.device_get(learner)
        self.actor = actor_of(self.agent, self.learner, spec)
        left_out = unread_entries(self.actor, spec.observation_space)
        names = names_left_out(spec.observation_space, left_out)
        self.spec = dataclasses.replace(spec, unread=names, memory=memory_of(self.actor, spec.num_agents))
        inputs = Inputs(spec, left_out)
        self._acting = ActingState(self.actor, inputs, StreamMemory(self.actor, inputs.streams_per_unit))
        self._with_value: bool | None = None  # `return_value` of the last call of `act` since `reset`; None: no call
        self._rng = np.random.default_rng(0)
        self._programs: dict[Any, Program] = {}

    def __repr__(self) -> str:
        return f"Policy({self.spec.summary()})"

    @functools.cached_property
    def actor_critic(self) -> Actor:
        """Agent that acts and gives V: observations and memory lack only what neither actions nor V depend on."""
        return actor_of(self.agent, self.learner, self.spec, return_value=True)

    @functools.cached_property
    def critic_entries(self) -> tuple[str, ...]:
        """Entries of an observation, by path joined by dots, that V depends on and actions do not; () for none."""
        space = self.spec.observation_space
        left_out = unread_entries(self.actor, space) - unread_entries(self.actor_critic, space)
        return names_left_out(space, left_out)

    def act(self, obs: Any, *, mask: Any = None, deterministic: bool = True, return_value: bool = False) -> Any:
        """Return the action for one observation, or the actions for a batch of them, as NumPy arrays.

        One and a batch are told apart by the shapes of `spec.observation_space`. Actions are as the environment takes
        them. Entries of a Dict that the actor does not read (`spec.unread`), such as those of the critic alone, may be
        left out. `mask` is True where an action is allowed. The mode of the distribution is taken; with `deterministic
        = False` the action is sampled. Memory is kept from call to call, for each observation of a batch: call `reset`
        where episodes begin. Where agents have parameters of their own or are in groups, an observation is that of all
        agents.

        With `return_value` the result is an `ActionValue(action, value)`: V of the observation is the critic's estimate
        of the discounted return, in the scale in which it was learned (with `normalize_reward` that of normalised
        rewards). It needs the entries that only the critic reads (`critic_entries`).

        Raises ConfigError for observations and masks that do not fit the spaces, and for a batch of another size than
        the one before, if the policy has memory. Also raises it if V is asked for in some calls since `reset` and not
        in others, and the critic has a memory of its own.
        """
        if self._with_value not in (None, return_value):
            self._require_one_memory()
        acting = self._acting_with_value if return_value else self._acting
        read = self._entries_read(acting.inputs.observations, obs, return_value)
        mask = acting.inputs.masks(mask, read)
        units = 1 << (read.units - 1).bit_length()  # padded, so that few sizes are traced
        obs_leaves, mask_leaves = _padded(read.leaves, read.units, units), []
        if mask is not None:
            mask_leaves = _padded(jax.tree.leaves(mask), read.units, units)
        carry, first = acting.memory.begin(read.units, units * acting.inputs.streams_per_unit)
        which = (units, deterministic, return_value, None if mask is None else jax.tree.structure(mask))
        if which not in self._programs:
            example = PolicyInputs(
                jax.tree.map(np.asarray, acting.actor.initial_carry(len(first))),
                element_of(acting.inputs.space, iter(obs_leaves)),
                first,
                None if mask is None else jax.tree.unflatten(jax.tree.structure(mask), mask_leaves),
            )
            rng = None if deterministic else self._rng
            self._programs[which] = make_program(acting.actor, self.learner, example, rng, return_value)
        out = self._programs[which](carry, [*obs_leaves, first, *mask_leaves])
        acting.memory.keep(out.carry, acting.inputs.present(read))
        self._with_value = return_value
        action = acting.inputs.actions(out.action, read)
        return action if out.value is None else ActionValue(action, acting.inputs.values(np.asarray(out.value), read))

    def reset(self, where: Any = None, *, seed: int | None = None) -> None:
        """Begin new episodes: forget the memory of all N observations, or of those for which `where` [N] is True.

        With agents by name, `where` may be a dict by name. `seed` restarts the random numbers of sampled actions.
        """
        acting = self._acting_with_value if self._with_value else self._acting  # the other memory is empty
        if where is None:
            acting.memory.clear()
            self._with_value = None
        else:
            acting.memory.reset(acting.inputs.where(where))
        if seed is not None:
            self._rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state

    def step(
        self,
        carry: PyTree,
        obs: PyTree,
        first: Array,
        mask: PyTree | None = None,
        key: Key | None = None,
        *,
        return_value: bool = False,
    ) -> Stepped:
        """Act for B streams (one agent in one environment each), and return memory, actions and log-probabilities.

        It is a pure function, for use inside `jax.jit`, `jax.vmap` and `jax.lax.scan`. `carry` is the memory after the
        step before, at the start `initial_carry(B)`; `obs` is [B, ...]; `first` [B] is True where an episode begins,
        and the memory starts anew; `mask` is [B, n] as the environment gives it. Without `key` the action is the mode
        of the distribution; with a key, [] or [B], it is sampled. Integers and masks in NumPy arrays are checked as by
        `act`; JAX arrays are not, as their values may be traced. With `return_value` the result has V [B] as `value`;
        `obs` must have the entries that only the critic reads, and `carry` begins as `initial_carry(B,
        return_value=True)`.
        """
        if mask is None and self.spec.masked:
            raise ConfigError("mask: this policy was trained with action masks: pass one, True where allowed")
        acting = self._acting_with_value if return_value else self._acting
        obs = self._entries_read(acting.inputs.stored, obs, return_value)
        self._require_carry(acting.actor, carry, first.shape[0], return_value)
        mask = self._complete(mask, first.shape[0])
        return step(acting.actor, self.learner, carry, obs, first, mask, key, return_value=return_value)

    def initial_carry(self, batch: int, *, return_value: bool = False) -> PyTree:
        """Return the memory of `batch` streams at the start of an episode, [B, ...]; () without memory.

        `return_value` adds the memory of the critic, for `step` with `return_value`.
        """
        return (self.actor_critic if return_value else self.actor).initial_carry(batch)

    def evaluate(
        self, env: Env, episodes: int = 128, deterministic: bool = True, seed: int = 0, **options: Any
    ) -> Evaluation:
        """Play whole episodes in `env` and return their returns and lengths; see `ppax.evaluate`.

        ConfigError where the spaces, agents or groups of `env` are not those of the policy.
        """
        require_arguments(self.agent, env)
        require_fit(self.agent, env)
        key = evaluation_key(seed)
        return evaluate(self.agent, env, self.learner, key, episodes, deterministic, **options)

    def in_float32(self) -> Policy:
        """Return the policy with the same weights, whose matrix products are in float32 whatever `compute_dtype` is."""
        return Policy(in_float32(self.agent), self.learner, self.spec, self.source)

    def export(
        self,
        path: str | Path,
        formats: Sequence[str] | None = None,
        scores: Mapping[str, Any] | None = None,
        *,
        return_value: bool = False,
    ) -> Exported:
        """Write the bundle `path` (.zip): the policy as plain data that loads without ppax (docs/policies.md).

        `formats` are of "numpy", "stablehlo" and "onnx" (extra `onnx`); by default all that this policy and this
        machine have. Each is compared with the policy first: ConfigError, and no file, where one gives other actions.
        `scores` (numbers by name) are written into the bundle. With `return_value` every format has the output `value`,
        V, and takes the entries that only the critic reads. `ppax.load` reads bundles too.
        """
        return write_bundle(self, path, formats, scores, return_value=return_value)

    def export_mlflow(
        self, path: str | Path, scores: Mapping[str, Any] | None = None, *, return_value: bool = False
    ) -> Exported:
        """Write the new directory `path`: an MLflow model for `mlflow.pyfunc.load_model` and `mlflow models serve`.

        It holds a bundle (`export`), and needs NumPy alone where it is loaded; JAX, if the policy has no NumPy version.
        `scores` and `return_value` are those of `export`. Needs the extra `mlflow`. ConfigError if `path` exists.
        """
        return write_mlflow_model(self, path, scores, return_value=return_value)

    @functools.cached_property
    def _acting_with_value(self) -> ActingState:
        """Actor, reader of inputs, and memory for calls with `return_value`.

        Calls without `return_value` share the memory, unless the critic has a memory of its own.
        """
        actor = self.actor_critic
        inputs = Inputs(self.spec, unread_entries(actor, self.spec.observation_space))
        shared = actor.memory.read == self.actor.memory.read
        return ActingState(
            actor, inputs, self._acting.memory if shared else StreamMemory(actor, inputs.streams_per_unit)
        )

    def _require_one_memory(self) -> None:
        """Raise ConfigError if the critic has a memory of its own.

        `act` calls this where V was asked for in some calls since `reset` and not in others: calls without V do not
        update the critic's memory.
        """
        if self._acting_with_value.memory is not self._acting.memory:
            raise ConfigError(
                "return_value: the critic has a memory of its own, which goes on only in calls with return_value=True: "
                "give it in every call of `act` since `reset`, or in none; call policy.reset() to change"
            )

    def _entries_read(self, reader: Callable[[Any], Any], obs: Any, return_value: bool) -> Any:
        """Return `reader(obs)`; if V was asked for, a ConfigError of the reader also says which entries V needs."""
        try:
            return reader(obs)
        except ConfigError as error:
            if not return_value or not self.critic_entries:
                raise
            entries = ", ".join(map(repr, self.critic_entries))
            raise ConfigError(f"{error}. V (return_value=True) needs {entries}, which only the critic reads") from error

    def _require_carry(self, actor: Actor, carry: PyTree, batch: int, return_value: bool) -> None:
        """Raise ConfigError for a memory of another policy, or of another number of streams than `batch`.

        `actor` is the actor that takes the memory.
        """
        if not actor.memory.shapes and not jax.tree.leaves(carry):
            return
        wanted = jax.eval_shape(lambda: actor.initial_carry(batch))
        given = jax.tree.map(lambda x: (np.shape(x), jax.numpy.result_type(x)), carry)
        if given != jax.tree.map(lambda x: (x.shape, x.dtype), wanted):
            option = ", return_value=True" if return_value else ""
            raise ConfigError(
                f"carry: not the memory of {batch} streams of this policy: give that of the step before, at the start "
                f"policy.initial_carry({batch}{option})"
            )

    def _complete(self, mask: PyTree | None, streams: int) -> PyTree | None:
        """Return the argument `mask` of `step` as the agent takes it: arrays [B, n] in a tree like the action, or None.

        Entries of Dict and Tuple actions without a mask get one that allows all actions. With groups the result is a
        dict by group, with None for a group without masks. `streams` is B.
        """
        mask = jax.tree.map(lambda x: as_flags(x, "mask") if isinstance(x, np.ndarray) else x, mask)
        if mask is None or not self.spec.sizes:
            return masks.complete(self.spec.action_space, mask, streams, "mask")
        envs = streams // self.spec.num_agents
        return {
            name: masks.complete(group.action_space, mask.get(name), envs * group.num_agents, f"mask[{name!r}]")
            for name, group in self.spec.groups.items()
        }


def _padded(leaves: list[np.ndarray], units: int, wanted: int) -> list[np.ndarray]:
    """Return arrays of `units` observations, padded with zeros to `wanted` observations, so that few sizes compile.

    Axis 0 of an array has one row for each stream: one for each observation, or, where an observation is that of all
    agents, one for each agent of each observation.
    """
    if units == wanted:
        return leaves
    return [np.concatenate([x, np.zeros((len(x) // units * (wanted - units), *x.shape[1:]), x.dtype)]) for x in leaves]


class StreamMemory:
    """Memory of a policy's streams (one agent in one environment each), kept between calls for batches of one size.

    A feedforward policy has none: nothing is kept.
    """

    def __init__(self, agent: Actor, streams_per_unit: int):
        self._agent, self._size = agent, streams_per_unit
        self.needed = bool(jax.tree.leaves(jax.eval_shape(lambda: agent.initial_carry(streams_per_unit))))
        self.clear()

    def clear(self) -> None:
        """Forget the memory of all streams; the next batch may have another size."""
        self._carry: list[Any] = []
        self._units = 0
        self._first = np.ones(0, bool)

    def reset(self, where: Any) -> None:
        """Begin an episode where `where` [units] or [units, agents] is True; ConfigError for another shape.

        `units` is the number of observations in the batch.
        """
        if not self.needed or not self._units:
            return
        where = as_flags(where, "where")
        shapes = [(self._units,), (self._units, self._size)] + [()] * (self._units == 1)
        if where.shape not in shapes:
            raise ConfigError(
                f"where has the shape {list(where.shape)}: the memory is of {self._units} observations: [{self._units}]"
            )
        rows = np.broadcast_to(where.reshape(self._units, -1), (self._units, self._size)).reshape(-1)
        self._first[: len(rows)] |= rows

    def begin(self, units: int, rows: int) -> tuple[list[Any], np.ndarray]:
        """Return the memory before a step, and `first` [rows], for a batch of `units` observations.

        `first` is True where episodes begin. `rows` is the number of streams in the padded batch. The memory is a list
        of arrays [rows, ...] in JAX's order, [] for a feedforward policy. Raises ConfigError where it is of another
        number of observations than `units`.
        """
        if not self.needed:
            return [], np.zeros(rows, bool)
        if not self._units:
            leaves, self._structure = jax.tree.flatten(self._agent.initial_carry(rows))
            self._carry = [np.asarray(x) for x in leaves]
            self._units, self._first = units, np.ones(rows, bool)
        if units != self._units:
            raise ConfigError(
                f"obs has {units} observations, and the memory is of {self._units}: the batch of a policy with memory "
                "keeps its size and order; call policy.reset() before another batch"
            )
        return self._carry, self._first

    def keep(self, carry: list[Any], present: np.ndarray | None) -> None:
        """Keep `carry`, the memory after a step, for all streams; if `present` [B] is given, only where it is True.

        A stream is one agent in one environment.
        """
        if not self.needed:
            return
        if present is None:
            self._carry, self._first = carry, np.zeros_like(self._first)
            return
        rows = np.zeros(len(self._first), bool)
        rows[: len(present)] = present
        before, after = (jax.tree.unflatten(self._structure, x) for x in (self._carry, carry))
        self._carry = jax.tree.leaves(hold_carry(self._agent.requires, rows, before, after))
        self._first = self._first & ~rows
