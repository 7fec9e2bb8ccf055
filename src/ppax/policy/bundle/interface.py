"""Inference function of a policy, as a bundle exports it: named observations and carry to named actions and next carry.

The names are the same in every exported format. Actions are modes of the distribution; a carry is the recurrent state
of the policy's memory. Inputs are `obs` and `first`, for policies with action masks `mask`, and for policies with
memory `carry`. Outputs are `action`, `log_prob` (of the mode, before clipping), for policies with memory `next_carry`,
and on demand `value`, V of the observation. Entries of a Dict have names such as `obs.position`, of a Tuple `action.0`.
The leading axes are [b] for agents that share a policy, [b, agents] for independent agents and groups, with any batch
size b. Entries of observations and arrays of carries that only the critic reads are neither inputs nor outputs, unless
there is `value`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import ConfigError, PyTree
from ppax.policy.actor import (
    apart,
    by_group,
    mask_shapes,
    observation_shapes,
    reduced_space,
    step,
    unread_entries,
    without_critic_entries,
)

if TYPE_CHECKING:
    from ppax.policy.policy import Policy

Arrays = dict[str, Any]  # by name


class InterfaceArray(NamedTuple):
    """Input or output of an exported policy: name, shape and dtype of an array."""

    name: str
    shape: tuple[int, ...]  # without the batch axis
    dtype: str


class Interface:
    """Inference function of a policy, a pure function (learner, inputs by name) -> outputs by name, and its shapes."""

    def __init__(self, policy: Policy, *, return_value: bool = False):
        """Find names and shapes of a policy's inputs and outputs; ConfigError where two would have the same name.

        With `return_value` there is the output `value`, V, too.
        """
        self._actor, self._spec = policy.actor_critic if return_value else policy.actor, policy.spec
        self._return_value = return_value
        self._apart, self._unread = apart(self._spec), unread_entries(self._actor, self._spec.observation_space)
        self._space = reduced_space(self._spec.observation_space, self._unread)
        self._template = self._input_template()
        self.inputs = _leaves(self._template)
        out = jax.eval_shape(self, policy.learner, {x.name: _shape(x, 1) for x in self.inputs})
        self.outputs = tuple(InterfaceArray(name, x.shape[1:], np.dtype(x.dtype).name) for name, x in out.items())
        for kind, leaves in (("input", self.inputs), ("output", self.outputs)):
            names = [leaf.name for leaf in leaves]
            double = next((name for name in names if names.count(name) > 1), None)
            if double is not None:
                raise ConfigError(f"{kind} {double!r}: two entries have this name; rename one of the space's entries")

    def __call__(self, learner: PyTree, inputs: Arrays) -> Arrays:
        """Return the outputs by name for a batch [b, ...]: actions (modes), their log-probabilities, next carry, V."""
        paths, structure = jax.tree_util.tree_flatten_with_path(self._template)
        flat = [self._to_streams(inputs[_name(path)]) for path, _ in paths]
        given = jax.tree.unflatten(structure, flat)
        # without memory a carry has no arrays, but with groups it is a dict by group all the same
        carry = given["carry"] if "carry" in given else self._actor.initial_carry(self._spec.num_agents)
        mask, return_value = given.get("mask"), self._return_value
        out = step(self._actor, learner, carry, given["obs"], given["first"], mask, None, return_value=return_value)
        tree = {"action": out.action, "log_prob": out.log_prob, "next_carry": out.carry, "value": out.value}
        leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
        batch = inputs["first"].shape[0]
        return {_name(path): self._from_streams(x, path, batch) for path, x in leaves}

    def shapes(self, batch: Any) -> Arrays:
        """Return the shapes of the inputs, by name, for a batch size, which may be symbolic."""
        return {leaf.name: _shape(leaf, batch) for leaf in self.inputs}

    def examples(self, rows: int, seed: int) -> Arrays:
        """Return example inputs by name, [rows, ...] each: sampled observations, random masks and a memory of zeros."""
        rng, out = np.random.default_rng(seed), {}
        self._spec.observation_space.seed(seed)
        for leaf in self.inputs:
            out[leaf.name] = np.zeros((rows, *leaf.shape), leaf.dtype)
            if leaf.name == "mask" or leaf.name.startswith("mask."):
                out[leaf.name] = rng.random((rows, *leaf.shape)) < 0.6
        for row in range(rows):
            for agent in range(self._spec.num_agents if self._apart else 1):
                self._put(out, self._spec.observation_space.sample(), row, agent)
        return out

    def _put(self, out: Arrays, sample: Any, row: int, agent: int) -> None:
        """Write a sampled observation into the arrays `out` at `row` and, if they have an axis of agents, at `agent`.

        The keys of `out` are the inputs' names. With groups, arrays of a group that has no such agent are left
        unchanged.
        """
        sample = without_critic_entries(_plain(sample), self._spec.observation_space, self._unread)
        for path, x in jax.tree_util.tree_flatten_with_path({"obs": sample})[0]:
            array = out[_name(path)]
            if not self._apart:
                array[row] = x
            elif agent < array.shape[1]:
                array[row, agent] = x

    def _input_template(self) -> Any:
        """Return the shapes of the inputs as a tree, for one environment, without the batch axis."""
        spec = self._spec
        lead = (spec.num_agents,) if self._apart else ()
        tree: dict[str, Any] = {
            "obs": by_group(spec, self._space, lead, observation_shapes),
            "first": _struct(lead, bool),
        }
        if spec.masked:
            tree["mask"] = by_group(spec, spec.action_space, lead, mask_shapes)
        carry = jax.eval_shape(lambda: self._actor.initial_carry(spec.num_agents))
        if jax.tree.leaves(carry):
            tree["carry"] = jax.tree.map(lambda x: _struct(x.shape if self._apart else x.shape[1:], x.dtype), carry)
        return tree

    def _to_streams(self, x: Any) -> Any:
        """Return an input with batch and agents in one axis: [b, agents, ...] becomes [b * agents, ...].

        Without an axis of agents it is unchanged.
        """
        return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:]) if self._apart else x

    def _from_streams(self, x: Array, path: Any, batch: Any) -> Array:
        """Return an output with batch and agents in two axes: [b * agents, ...] becomes [b, agents, ...].

        It is unchanged if the interface has no axis of agents. `path` is the output's key path in the tree of outputs:
        with groups, it says which group's agents the output is of. `batch` is b.
        """
        if not self._apart:
            return x
        sizes = dict(self._spec.sizes)
        size = self._spec.num_agents
        if sizes and path[0].key not in ("log_prob", "value"):  # which are of all agents, in the order of `sizes`
            size = sizes[path[1].key]
        return x.reshape(batch, size, *x.shape[1:])


def _plain(sample: Any) -> Any:
    """Return a sample of a space with plain dicts in place of Gymnasium's ordered dicts, which are other pytrees."""
    if isinstance(sample, dict):
        return {name: _plain(x) for name, x in sample.items()}
    return tuple(map(_plain, sample)) if isinstance(sample, tuple) else sample


def _struct(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))


def _shape(leaf: InterfaceArray, batch: Any) -> jax.ShapeDtypeStruct:
    return _struct((batch, *leaf.shape), leaf.dtype)


def _leaves(tree: Any) -> tuple[InterfaceArray, ...]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return tuple(InterfaceArray(_name(path), x.shape, np.dtype(x.dtype).name) for path, x in leaves)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
