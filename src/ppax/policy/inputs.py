"""Observations and masks of a user as arrays [B, ...] of a policy's streams, and actions back in the user's form.

One observation has the shapes of the observation space, a batch one axis more. Where agents have parameters of their
own, one observation is that of all agents of an environment, [A, ...]; with groups it is a dict of them by group. A
dict by the names of agents is one observation of those agents that are in it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from ppax.arrays import masks
from ppax.envs.hosting.arrays import Leaf, element_of, leaves_of, number_mismatches
from ppax.policy.actor import Path, reduced, reduced_space
from ppax.policy.reader import Read, Reader, flags
from ppax.policy.spec import PolicySpec
from ppax.types import ConfigError


class Inputs:
    """Reader of observations and masks of a policy, and writer of its actions."""

    def __init__(self, spec: PolicySpec, unread: frozenset[Path] = frozenset()):
        """Read what a policy with this specification takes, and ignore the arrays of observations at paths `unread`."""
        self._whole, self._unread = spec.observation_space, unread
        self.space = reduced_space(spec.observation_space, unread)
        spec = dataclasses.replace(spec, observation_space=self.space)
        self._spec, self._own = spec, spec.sharing == "independent" and spec.num_agents > 1
        everyone: tuple[int, ...] = (spec.num_agents,) if self._own else ()
        by_group: dict[str, tuple[int, ...]] = {name: (size,) for name, size in sorted(spec.sizes)}
        self._axes = by_group or {"": everyone}  # of agents
        named = {name: (group.observation_space, group.action_space) for name, group in spec.groups.items()}
        self._spaces: dict[str, Any] = named or {"": (spec.observation_space, spec.action_space)}
        self._readers = {
            name: Reader(self._spaces[name][0], axis, f"obs[{name!r}]" if name else "obs")
            for name, axis in self._axes.items()
        }
        self._action_leaves = {name: list(leaves_of(space)) for name, (_, space) in self._spaces.items()}
        self._of_one = None if spec.sizes else Reader(spec.observation_space, (), "obs")
        self._stored = {leaf.path: leaf for leaf in leaves_of(spec.observation_space)}
        self.streams_per_unit = spec.num_agents if self._own or spec.sizes else 1

    def observations(self, obs: Any) -> Read:
        """Return the arrays [B, ...] of `obs`; ConfigError where it does not belong to the observation space."""
        if self._spec.sizes:
            return self._of_groups(self._reduced(obs))
        if self._is_named(obs):
            return self._named({name: self._reduced(one) for name, one in obs.items()})
        return self._readers[""](self._reduced(obs))

    def stored(self, obs: Any) -> Any:
        """Return arrays of observations [B, ...] of NumPy or JAX in the dtypes of training.

        Raises ConfigError for missing entries, for numbers of NumPy arrays that JAX would change, and for categories
        that do not exist.
        """
        obs = self._reduced(obs)
        for path in self._stored:
            _require(obs, path)

        def one(path: Any, x: Any) -> Any:
            leaf = self._stored.get(tuple(getattr(step, "key", getattr(step, "idx", "")) for step in path))
            if leaf is None:
                return x
            if isinstance(x, np.ndarray | np.generic):
                for problem in number_mismatches(leaf, np.asarray(x), "obs"):
                    raise ConfigError(problem)
            return x.astype(leaf.dtype) if leaf.wide and x.dtype != leaf.dtype else x

        return jax.tree_util.tree_map_with_path(one, obs)

    def masks(self, mask: Any, read: Read) -> Any:
        """Return action masks [B, n] for these observations, a tree as of arrays/masks.py; None without masks."""
        if mask is None:
            if self._spec.masked:
                raise ConfigError(
                    "mask: this policy was trained with action masks, and none was given: pass mask=..., True where an "
                    "action is allowed"
                )
            return None
        if read.names:
            mask = self._stack_masks(mask, read.names)
        parts = mask if self._spec.sizes else {"": mask}
        trees = {
            name: self._mask(parts.get(name), axis, self._spaces[name][1], read, f"mask[{name!r}]" if name else "mask")
            for name, axis in self._axes.items()
        }
        return trees if self._spec.sizes else trees[""]

    def actions(self, leaves: Sequence[np.ndarray], read: Read) -> Any:
        """Return actions [B, ...], a list of leaves, in the form of the observations and the dtypes of the space."""
        if read.names:
            return self._named_actions(leaves, read.names)
        each, parts = iter(leaves), {}
        for name, axis in self._axes.items():
            lead = (read.units, *axis) if read.batch else axis
            shaped = [_shaped(next(each), lead, leaf) for leaf in self._action_leaves[name]]
            parts[name] = element_of(self._spaces[name][1], iter(shaped))
        return {name: parts[name] for name, _ in self._spec.sizes} if self._spec.sizes else parts[""]

    def where(self, where: Any) -> Any:
        """Return `where` of `Policy.reset` as an array; a dict by agent becomes an array over all agents."""
        if not isinstance(where, dict):
            return where
        flags = np.zeros(len(self._spec.names), bool)
        flags[self._places(where)] = list(where.values())
        return flags[None] if self._own else flags

    def _reduced(self, obs: Any) -> Any:
        """Return an observation without what acting does not read."""
        return reduced(obs, self._whole, self._unread) if self._unread else obs

    def _of_groups(self, obs: Any) -> Read:
        if not isinstance(obs, dict) or set(obs) != set(self._axes):
            given = sorted(map(str, obs)) if isinstance(obs, dict) else f"a {type(obs).__name__}"
            raise ConfigError(f"obs: {given}; must be a dict by group: {', '.join(map(repr, self._axes))}")
        reads = {name: reader(obs[name]) for name, reader in self._readers.items()}
        forms = {(one.units, one.batch) for one in reads.values()}
        if len(forms) > 1:
            sizes = ", ".join(f"{name!r}: {one.units if one.batch else 'one'}" for name, one in reads.items())
            raise ConfigError(f"obs: the groups must have equally many observations; there are {sizes}")
        units, batch = forms.pop()
        return Read([x for one in reads.values() for x in one.leaves], units, batch)

    def _is_named(self, obs: Any) -> bool:
        """Return whether `obs` is a dict by agent, and not an element of a Dict space."""
        if not isinstance(obs, dict) or not self._spec.names:
            return False
        entries = self._spec.observation_space
        return not isinstance(entries, spaces.Dict) or not set(map(str, obs)) & set(entries.spaces)

    def _named(self, obs: dict[str, Any]) -> Read:
        """Return rows of all agents; those of agents that are not in `obs` are zeros."""
        places = self._places(obs)
        assert self._of_one is not None
        rows = [self._of_one(one) for one in obs.values()]
        if any(one.batch for one in rows):
            raise ConfigError(
                f"obs: give one observation for each agent, [...], or arrays [N, {len(self._spec.names)}, ...]"
            )
        leaves = []
        for i, leaf in enumerate(leaves_of(self._spec.observation_space)):
            every = np.zeros((len(self._spec.names), *leaf.shape), leaf.dtype)
            every[places] = np.concatenate([one.leaves[i] for one in rows])
            leaves.append(every)
        return Read(leaves, 1 if self._own else len(self._spec.names), False, tuple(obs))

    def _places(self, names: Any) -> list[int]:
        """Return the rows of agents; ConfigError for a name that no agent has."""
        for name in names:
            if str(name) not in self._spec.names:
                raise ConfigError(f"obs[{name!r}]: no such agent; there are {', '.join(map(repr, self._spec.names))}")
        return [self._spec.names.index(str(name)) for name in names]

    def present(self, read: Read) -> np.ndarray | None:
        """Return which rows of a dict by agent were given, [B]; None: all."""
        if not read.names:
            return None
        given = np.zeros(len(self._spec.names), bool)
        given[self._places(read.names)] = True
        return given

    def _named_actions(self, leaves: Sequence[np.ndarray], names: tuple[str, ...]) -> dict[str, Any]:
        space, kinds = self._spec.action_space, self._action_leaves[""]
        return {
            name: element_of(space, (_shaped(x[i : i + 1], (), kind) for x, kind in zip(leaves, kinds, strict=True)))
            for name, i in zip(names, self._places(names), strict=True)
        }

    def _stack_masks(self, mask: Any, names: tuple[str, ...]) -> Any:
        """Return masks of all agents from a dict by agent; all actions are allowed to agents that are not in it."""
        if not isinstance(mask, dict) or set(mask) != set(names):
            raise ConfigError(f"mask: must be a dict with the agents of obs: {', '.join(map(repr, names))}")
        given = dict(zip(self._places(mask), mask.values(), strict=True))
        free = jax.tree.map(np.ones_like, next(iter(mask.values())))
        return jax.tree.map(lambda *x: np.stack(x), *(given.get(i, free) for i in range(len(self._spec.names))))

    def _mask(self, mask: Any, axis: tuple[int, ...], space: spaces.Space, read: Read, name: str) -> Any:
        """Return the masks of one group in the layout of arrays/masks.py, NumPy arrays [B, n]."""
        if mask is None:
            return None
        lead = (read.units, *axis) if read.batch else axis
        if read.names:
            lead = (len(read.leaves[0]),)
        streams = len(read.leaves[0]) if not self._spec.sizes else read.units * axis[0]

        def rows(x: Any) -> np.ndarray:
            x = flags(x, name)
            if x.shape[: len(lead)] != lead:
                raise ConfigError(f"{name} has the shape {list(x.shape)}; must begin with {list(lead)}")
            return x.reshape(streams, *x.shape[len(lead) :])

        return jax.tree.map(
            np.asarray, masks.complete(space, jax.tree.map(rows, mask, is_leaf=_is_list), streams, name)
        )


def _require(obs: Any, path: Path) -> None:
    """Raise ConfigError where an observation has no array at `path`."""
    for i, step in enumerate(path):
        where = "".join(f"[{one!r}]" for one in path[:i])
        if isinstance(obs, dict) and step not in obs:
            raise ConfigError(f"obs{where} has the entries {list(obs)}; must have {step!r}, which the policy reads")
        try:
            obs = obs[step]
        except (IndexError, KeyError, TypeError):
            raise ConfigError(f"obs{where} is a {type(obs).__name__}; must have the entry {step!r}") from None


def _is_list(x: Any) -> bool:
    return isinstance(x, list)


def _shaped(x: np.ndarray, lead: tuple[int, ...], leaf: Leaf) -> Any:
    """Return the first rows of actions [B, ...] with the axes `lead`; a NumPy scalar for a single number."""
    shape = (*lead, *leaf.shape)
    own = np.array(x[: math.prod(lead)], leaf.space_dtype).reshape(shape)  # a copy: the program reuses its arrays
    return own if shape else own[()]
