"""Policy: what acting needs of a trained agent, for use outside of its run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ppax.arrays import masks
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError, Key, PyTree
from ppax.envs import Env
from ppax.envs.hosting.arrays import element_of
from ppax.policy.actor import Actor, Stepped, acting_agent, actor_of, names_of, step, unread_entries
from ppax.policy.bundle.writing import Exported, write_bundle
from ppax.policy.inputs import Inputs, as_flags
from ppax.policy.programs import Program, make_program
from ppax.policy.spec import PolicySpec, memory_of
from ppax.training.arguments import require_arguments, require_fit
from ppax.training.evaluation import Evaluation, evaluate, evaluation_key
from ppax.training.host.policy import PolicyInputs
from ppax.training.host.streams import hold_carry


class Source(NamedTuple):
    """Run that trained a policy, and how far it was when the policy was saved."""

    run_dir: Path | None
    iteration: int  # of the policy; the run's evaluation belongs to one iteration
    env_steps: int


class Policy:
    """Trained policy: `act` for observations in NumPy, `step` for compiled programs, `evaluate` on environments.

    `agent` is PPO, Independent or Groups; `learner` is the part of its learner that acting reads (parameters,
    observation statistics), NumPy arrays on the host; `spec` describes inputs and outputs. `actor` is the agent
    without what only its critic reads.
    """

    def __init__(self, agent: Agent, learner: Any, spec: PolicySpec, source: Source | None = None):
        """Make the policy of `agent` and `learner`, a whole one or one reduced already to what acting reads.

        `spec` describes inputs and outputs; `source` is the run that trained it (None: unknown).
        """
        self.source = source
        self.agent, learner = acting_agent(agent, learner)
        self.learner = jax.device_get(learner)
        self.actor = actor_of(self.agent, self.learner, spec)
        left_out = unread_entries(self.actor, spec.observation_space)
        names = names_of(spec.observation_space, left_out)
        self.spec = dataclasses.replace(spec, unread=names, memory=memory_of(self.actor, spec.num_agents))
        self._inputs = Inputs(spec, left_out)
        self._memory = StreamMemory(self.actor, self._inputs.streams_per_unit)
        self._rng = np.random.default_rng(0)
        self._programs: dict[Any, Program] = {}

    def __repr__(self) -> str:
        return f"Policy({self.spec.summary()})"

    def act(self, obs: Any, *, mask: Any = None, deterministic: bool = True) -> Any:
        """Return the action for one observation, or the actions for a batch of them, as NumPy arrays.

        One and a batch are told apart by the shapes of `spec.observation_space`. Actions are as the environment takes
        them. Entries of a Dict that the actor does not read (`spec.unread`), such as those of the critic alone, may be
        left out. `mask` is True where an action is allowed. The mode of the distribution is taken; with `deterministic
        = False` the action is sampled. Memory is kept from call to call, for each observation of a batch: call `reset`
        where episodes begin. Where agents are trained apart or in groups, an observation is that of all agents.

        Raises ConfigError for observations and masks that do not fit the spaces, and for a batch of another size than
        the one before, if the policy has memory.
        """
        read = self._inputs.observations(obs)
        mask = self._inputs.masks(mask, read)
        units = 1 << (read.units - 1).bit_length()  # padded, so that few sizes are traced
        obs_leaves, mask_leaves = _padded(read.leaves, read.units, units), []
        if mask is not None:
            mask_leaves = _padded(jax.tree.leaves(mask), read.units, units)
        carry, first = self._memory.begin(read.units, units * self._inputs.streams_per_unit)
        which = (units, deterministic, None if mask is None else jax.tree.structure(mask))
        if which not in self._programs:
            self._programs[which] = self._program(obs_leaves, first, mask, mask_leaves, deterministic)
        out = self._programs[which](carry, [*obs_leaves, first, *mask_leaves])
        self._memory.keep(out.carry, self._inputs.present(read))
        return self._inputs.actions(out.action, read)

    def reset(self, where: Any = None, *, seed: int | None = None) -> None:
        """Begin new episodes: forget the memory of all N observations, or of those for which `where` [N] is True.

        With agents by name, `where` may be a dict by name. `seed` restarts the random numbers of sampled actions.
        """
        if where is None:
            self._memory.clear()
        else:
            self._memory.reset(self._inputs.where(where))
        if seed is not None:
            self._rng.bit_generator.state = np.random.default_rng(seed).bit_generator.state

    def step(
        self, carry: PyTree, obs: PyTree, first: Array, mask: PyTree | None = None, key: Key | None = None
    ) -> Stepped:
        """Act for B streams (one agent in one environment each), and return memory, actions and log-probabilities.

        It is a pure function, for use inside `jax.jit`, `jax.vmap` and `jax.lax.scan`. `carry` is the memory after the
        step before, at the start `initial_carry(B)`; `obs` is [B, ...]; `first` [B] is True where an episode begins,
        and the memory starts anew; `mask` is [B, n] as the environment gives it. Without `key` the action is the mode
        of the distribution; with a key, [] or [B], it is sampled. Whole numbers and masks in NumPy arrays are checked
        as by `act`; numbers of JAX's arrays are not known here.
        """
        if mask is None and self.spec.masked:
            raise ConfigError("mask: this policy was trained with action masks: pass one, True where allowed")
        obs = self._inputs.stored(obs)
        self._require_carry(carry, first.shape[0])
        return step(self.actor, self.learner, carry, obs, first, self._complete(mask, first.shape[0]), key)

    def initial_carry(self, batch: int) -> PyTree:
        """Return the memory of `batch` streams at the start of an episode, [B, ...]; () without memory."""
        return self.actor.initial_carry(batch)

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

    def export(
        self, path: str | Path, formats: Sequence[str] | None = None, scores: Mapping[str, Any] | None = None
    ) -> Exported:
        """Write the bundle `path` (.zip): the policy as plain data that loads without ppax (docs/policies.md).

        `formats` are of "numpy", "stablehlo" and "onnx" (extra `onnx`); by default all that this policy and this
        machine have. Each is compared with the policy first: ConfigError, and no file, where one gives other actions.
        `scores` (numbers by name) are written into the bundle. `ppax.load` reads bundles too.
        """
        return write_bundle(self, path, formats, scores)

    def _program(
        self, obs: list[np.ndarray], first: np.ndarray, mask: Any, mask_leaves: list[np.ndarray], deterministic: bool
    ) -> Program:
        """Return the policy as a program for inputs of these shapes; lists are leaves in JAX's order."""
        example = PolicyInputs(
            jax.tree.map(np.asarray, self.actor.initial_carry(len(first))),
            element_of(self._inputs.space, iter(obs)),
            first,
            None if mask is None else jax.tree.unflatten(jax.tree.structure(mask), mask_leaves),
        )
        return make_program(self.actor, self.learner, example, None if deterministic else self._rng)

    def _require_carry(self, carry: PyTree, batch: int) -> None:
        """Raise ConfigError for a memory of another policy, or of another number of streams than `batch`."""
        if not self._memory.needed and not jax.tree.leaves(carry):
            return
        wanted = jax.eval_shape(lambda: self.actor.initial_carry(batch))
        given = jax.tree.map(lambda x: (np.shape(x), jax.numpy.result_type(x)), carry)
        if given != jax.tree.map(lambda x: (x.shape, x.dtype), wanted):
            raise ConfigError(
                f"carry: not the memory of {batch} streams of this policy: give that of the step before, at the start "
                f"policy.initial_carry({batch})"
            )

    def _complete(self, mask: PyTree | None, streams: int) -> PyTree | None:
        """Return masks as the agent takes them, arrays [B, n] in a tree like the action; None without masks."""
        mask = jax.tree.map(lambda x: as_flags(x, "mask") if isinstance(x, np.ndarray) else x, mask)
        if mask is None or not self.spec.sizes:
            return masks.complete(self.spec.action_space, mask, streams, "mask")
        envs = streams // self.spec.num_agents
        return {
            name: masks.complete(group.action_space, mask.get(name), envs * group.num_agents, f"mask[{name!r}]")
            for name, group in self.spec.groups.items()
        }


def _padded(leaves: list[np.ndarray], units: int, wanted: int) -> list[np.ndarray]:
    """Return arrays of `units` observations, padded with zeros to `wanted` observations."""
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
        """Return the memory before a step and `first` (where episodes begin), [rows] each, for `units` observations.

        The memory is a list of arrays in JAX's order, [] for a feedforward policy. Raises ConfigError where it is of
        another number of observations.
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
