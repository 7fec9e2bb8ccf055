"""Actor: the part of an agent that acts, without what only its critic reads; and one step of it as a pure function."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array
from jax.interpreters import partial_eval

from ppax.arrays import masks
from ppax.core.protocols import Agent
from ppax.core.types import OF_LEARNING, Decision, ForwardPass, Key, LearnerState, PyTree, Requirements, part, static
from ppax.devices.tracing import renewed
from ppax.envs.hosting.arrays import leaves_of


class Stepped(NamedTuple):
    """Result of `step` for B streams: next carry, actions, their log-probabilities, and V if it was asked for.

    A stream is one agent in one environment. The carry is the recurrent state of the policy's memory.
    """

    carry: PyTree  # [B, ...] memory after this observation; () if the policy has none
    action: PyTree  # [B, ...] as the environment takes it: clipped or squashed, with the starts of Discrete
    log_prob: Array  # [B] log-probability of the action as sampled, before clipping
    value: Array | None = None  # [B] V of the observation, in the scale in which it was learned; None: not asked for


def step(
    agent: Agent | Actor,
    learner: Any,
    carry: PyTree,
    obs: PyTree,
    first: Array,
    mask: PyTree | None,
    key: Key | None,
    *,
    return_value: bool = False,
) -> Stepped:
    """Act for all streams, [B, ...] each, and return the next carry, the actions and their log-probabilities.

    A stream is one agent in one environment. Without `key` the action is the mode of the distribution, else a sample;
    `key` is [] or [B]. The other arguments are those of `Agent.act`; with groups they are dicts by group, except for
    `first` [B]. `return_value` adds V, which is correct only if `agent` is a whole agent, or an `Actor` that reads what
    V depends on.
    """
    if key is None:
        out = agent.policy(learner, carry, obs, first, mask)
        action = out.distribution.mode()
        env_action, log_prob = out.distribution.env_action(action), out.distribution.log_prob(action)
        return Stepped(out.carry, env_action, log_prob, out.value if return_value else None)
    decision = agent.act(learner, carry, obs, first, mask, key)
    value = decision.value if return_value else None
    return Stepped(decision.carry, decision.env_action, decision.log_prob, value)


class ActingAgent(NamedTuple):
    """Parts of a trained agent that acting needs, from `acting_agent`.

    `agent` is without the pool of earlier policies that self-play trains against. `learner` has only parameters and the
    statistics that acting reads, such as those of observations.
    """

    agent: Agent
    learner: Any  # LearnerState with empty optimiser and reward statistics, or a dict of them by group


def acting_agent(agent: Any, learner: Any) -> ActingAgent:
    """Return the part of `agent` and `learner` that acting needs: the current networks, parameters and statistics.

    Leaves of `learner` may be anything, such as shapes.
    """
    if agent.pool is not None:  # self-play: the current learners act, as in evaluations
        agent, learner = agent.agent, learner.current
    return ActingAgent(agent, jax.tree.map(_needed, learner, is_leaf=_is_learner))


def _needed(learner: LearnerState) -> LearnerState:
    """Return the learner with empty values in place of the optimiser's state, reward statistics and extensions' states.

    Acting does not read these fields; OF_LEARNING has the empty values.
    """
    return learner._replace(**OF_LEARNING)


def _is_learner(node: object) -> bool:
    return isinstance(node, LearnerState)


ArrayPath = tuple[str | int, ...]  # of one array of an observation


class ReadArrays(NamedTuple):
    """Shapes of the arrays of an observation or a carry, in JAX's order of leaves, and whether the actor reads each.

    A carry is the recurrent state of the policy's memory. `structure` is the tree's structure.
    """

    structure: Any
    shapes: tuple[jax.ShapeDtypeStruct, ...]  # of `Actor.unit` streams
    read: tuple[bool, ...]

    def reduced(self, tree: PyTree) -> PyTree:
        """Return `tree`, an observation or a carry, with None in place of the arrays that the actor does not read."""
        leaves = zip(jax.tree.leaves(tree), self.read, strict=True)
        return jax.tree.unflatten(self.structure, [x if read else None for x, read in leaves])

    def complete(self, tree: PyTree, units: Any) -> PyTree:
        """Return the tree from which `reduced` made `tree`, with zeros for the arrays that the actor does not read.

        `units` is the number of observations that the user of the policy has passed: observations of one agent each, or
        of all agents where they act together. `shapes` are those for one such observation; in axis 0, the zeros are
        `units` times as long.
        """
        given = iter(jax.tree.leaves(tree))
        kept = [
            next(given) if read else jnp.zeros((units * x.shape[0], *x.shape[1:]), x.dtype)
            for x, read in zip(self.shapes, self.read, strict=True)
        ]
        return jax.tree.unflatten(self.structure, kept)


@part
class Actor:
    """Agent that acts and does nothing else; observations and carries lack the arrays that only its critic reads.

    Methods are those of an agent (`protocols.Agent`), with observations and carries (states of the memory) that lack
    these arrays. An actor that also gives V (`actor_of(..., return_value=True)`) lacks only the arrays that neither
    actions nor V depend on.
    """

    agent: Agent
    unit: int = static()  # streams of one observation of the user's: agents, where they act together
    obs: ReadArrays = static()
    memory: ReadArrays = static()

    @property
    def requires(self) -> Requirements:
        """Agents and groups that an environment must have so that this actor can act in it."""
        return self.agent.requires

    def policy(self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None) -> ForwardPass:
        """Return the distribution and the next carry (memory) for the current observation of every stream, [B, ...].

        A stream is one agent in one environment.
        """
        out = self.agent.policy(learner, *self._complete(carry, obs, first), first, action_mask)
        return out._replace(carry=self.memory.reduced(out.carry))

    def act(
        self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key
    ) -> Decision:
        """Return a sampled action for every stream; arguments are [B, ...], `key` is one key or [B].

        A stream is one agent in one environment.
        """
        out = self.agent.act(learner, *self._complete(carry, obs, first), first, action_mask, key)
        return out._replace(carry=self.memory.reduced(out.carry))

    def initial_carry(self, num_streams: int) -> PyTree:
        """Return the actor's carry for `num_streams` streams at the start of an episode, [num_streams, ...].

        A stream is one agent in one environment; the carry is the recurrent state of the memory.
        """
        return self.memory.reduced(self.agent.initial_carry(num_streams))

    def learners(self, num_streams: int) -> Any:
        """Return pairs (PPO agent, number of its streams), one for each PPO inside this actor.

        A stream is one agent in one environment; `num_streams` is the number of all streams. See `Agent.learners`.
        """
        return self.agent.learners(num_streams)

    def _complete(self, carry: PyTree, obs: PyTree, first: Array) -> tuple[PyTree, PyTree]:
        units = first.shape[0] // self.unit
        return self.memory.complete(carry, units), self.obs.complete(obs, units)


def actor_of(agent: Agent, learner: Any, spec: Any, *, return_value: bool = False) -> Actor:
    """Return the actor of `agent`: the agent for acting alone, without the inputs that its actions do not depend on.

    `spec` is the PolicySpec, whose spaces give the shapes of the inputs. Of `learner` only shapes are read. With
    `return_value` the actor also reads what V depends on.
    """
    unit = spec.num_agents if apart(spec) else 1
    obs, structure = jax.tree.flatten(by_group(spec, spec.observation_space, (unit,), observation_shapes))
    carry = jax.eval_shape(lambda: agent.initial_carry(unit))
    memory, memory_structure = jax.tree.flatten(carry)
    first = jax.ShapeDtypeStruct((unit,), bool)
    mask = by_group(spec, spec.action_space, (unit,), mask_shapes) if spec.masked else None
    read = [True] * (len(memory) + len(obs))
    if memory or len(obs) > max(1, len(spec.sizes)):
        read = _read(agent, learner, carry, jax.tree.unflatten(structure, obs), first, mask, return_value)
    of_obs = _something(spec, read[len(memory) :])
    return Actor(
        agent,
        unit=unit,
        obs=ReadArrays(structure, tuple(obs), of_obs),
        memory=ReadArrays(memory_structure, tuple(memory), tuple(read[: len(memory)])),
    )


def _read(
    agent: Agent,
    learner: Any,
    carry: PyTree,
    obs: PyTree,
    first: Any,
    mask: PyTree | None,
    return_value: bool = False,
) -> list[bool]:
    """Return flags, True for the arrays of carry and observation that the actions of an episode depend on.

    With `return_value`, those that V depends on count as well. Flags are in JAX's order of leaves, those of the carry
    first. Arguments are shapes for a step of all streams, [B, ...].
    """

    def policy(carry: PyTree, obs: PyTree, learner: Any, first: Array, mask: PyTree | None) -> tuple[PyTree, PyTree]:
        out = agent.policy(learner, carry, obs, first, mask)
        return out.carry, (out.distribution, out.value if return_value else None)

    traced = jax.make_jaxpr(renewed(policy))(carry, obs, learner, first, mask)
    size, inputs = len(jax.tree.leaves(carry)), len(jax.tree.leaves((carry, obs)))
    of_memory = [False] * size
    while True:  # what the memory is made of is read too, if an action depends on it a step later
        wanted = of_memory + [True] * (len(traced.jaxpr.outvars) - size)
        read = partial_eval.dce_jaxpr(traced.jaxpr, wanted)[1][:inputs]
        if read[:size] == of_memory:
            return list(read)
        of_memory = [a or b for a, b in zip(of_memory, read[:size], strict=True)]


def _something(spec: Any, read: list[bool]) -> tuple[bool, ...]:
    """Return flags, True for the arrays of an observation that a user must give: those that the actor reads.

    If the actor reads no array of a group (without groups, of the observation), the user must give all arrays of that
    group: from empty observations the size of a batch could not be read. `read` has the flags of the arrays that the
    actor reads, and both are in JAX's order.
    """
    groups = [leaf.path[0] if spec.sizes else "" for leaf in leaves_of(spec.observation_space)]
    reading = {group for group, one in zip(groups, read, strict=True) if one}
    return tuple(one or group not in reading for group, one in zip(groups, read, strict=True))


def unread_entries(actor: Actor, space: spaces.Space) -> frozenset[ArrayPath]:
    """Return the paths of the arrays of an observation of `space` that the actor does not read."""
    return frozenset(leaf.path for leaf, read in zip(leaves_of(space), actor.obs.read, strict=True) if not read)


def reduced_space(space: spaces.Space, left_out: frozenset[ArrayPath], path: ArrayPath = ()) -> spaces.Space:
    """Return `space` without the arrays at the paths `left_out`.

    `path` is the path of `space` in the whole observation space.
    """
    if not left_out or not isinstance(space, spaces.Dict | spaces.Tuple):
        return space
    kept = {
        key: reduced_space(inner, left_out, (*path, key))
        for key, inner in _inner(space)
        if not _within(inner, left_out, (*path, key))
    }
    if isinstance(space, spaces.Dict):
        return spaces.Dict(kept)
    return spaces.Tuple([kept.get(i, spaces.Dict({})) for i in range(len(space.spaces))])


def without_critic_entries(obs: Any, space: spaces.Space, left_out: frozenset[ArrayPath], path: ArrayPath = ()) -> Any:
    """Return an observation of `space` without the arrays at the paths `left_out`, which it may lack already.

    `path` is the path of `space` in the whole observation space. An observation of another form is returned unchanged.
    """
    if isinstance(space, spaces.Dict) and isinstance(obs, dict):
        absent = {key for key, inner in _inner(space) if _within(inner, left_out, (*path, key))}
        return {
            key: without_critic_entries(x, space.spaces[key], left_out, (*path, key)) if key in space.spaces else x
            for key, x in obs.items()
            if key not in absent
        }
    if isinstance(space, spaces.Tuple) and isinstance(obs, tuple | list) and len(obs) == len(space.spaces):
        return tuple(
            {} if _within(inner, left_out, (*path, i)) else without_critic_entries(x, inner, left_out, (*path, i))
            for x, (i, inner) in zip(obs, _inner(space), strict=True)
        )
    return obs


def names_left_out(space: spaces.Space, left_out: frozenset[ArrayPath], path: ArrayPath = ()) -> tuple[str, ...]:
    """Return the names, joined by dots, of the entries of `space` in which all arrays are `left_out`.

    An entry inside a named one is not named again. `path` is the path of `space` in the whole observation space.
    """
    if path and _within(space, left_out, path):
        return (".".join(map(str, path)),)
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return ()
    return tuple(name for key, inner in _inner(space) for name in names_left_out(inner, left_out, (*path, key)))


def _within(space: spaces.Space, left_out: frozenset[ArrayPath], path: ArrayPath) -> bool:
    """Return whether the space at `path` has arrays, and all of them are among the paths `left_out`."""
    paths = [leaf.path for leaf in leaves_of(space, path)]
    return bool(paths) and left_out.issuperset(paths)


def _inner(space: spaces.Dict | spaces.Tuple) -> Iterator[tuple[Any, spaces.Space]]:
    return iter(space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def apart(spec: Any) -> bool:
    """Return True if the agents of a PolicySpec are in groups or have parameters of their own.

    Then an observation of the policy is that of all agents together; otherwise it is that of one agent.
    """
    return bool(spec.sizes) or spec.sharing == "independent"


def by_group(spec: Any, space: Any, lead: tuple[int, ...], shapes: Callable[[Any, tuple[int, ...]], Any]) -> Any:
    """Return the shapes of arrays for `space`: without groups `shapes(space, lead)`, with groups a dict by group.

    The dict has, for each group, `shapes(its space, (its number of agents,))`; `lead`, the leading axes, is then not
    used. `spec` is a PolicySpec with the groups; `shapes` is a function such as `observation_shapes`.
    """
    if spec.sizes:
        return {name: shapes(space[name], (size,)) for name, size in spec.sizes}
    return shapes(space, lead)


def observation_shapes(space: Any, lead: tuple[int, ...]) -> Any:
    """Return the shapes and dtypes of an observation of `space`, with the axes `lead` in front."""
    if isinstance(space, spaces.Dict):
        return {name: observation_shapes(inner, lead) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(observation_shapes(inner, lead) for inner in space.spaces)
    return jax.ShapeDtypeStruct((*lead, *(space.shape or ())), np.dtype(next(leaves_of(space)).dtype))


def mask_shapes(space: Any, lead: tuple[int, ...]) -> Any:
    """Return the shapes of an action mask for the action space `space`, with the axes `lead` in front."""
    if isinstance(space, spaces.Dict):
        return {name: mask_shapes(inner, lead) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(mask_shapes(inner, lead) for inner in space.spaces)
    return jax.ShapeDtypeStruct((*lead, masks.size_of(space) or 1), np.dtype(bool))
