"""Conversion of a user's observations and masks to arrays [B, ...] of a policy's streams, and of actions back."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces

from ppax.arrays import masks
from ppax.core.types import ConfigError
from ppax.envs.hosting.arrays import Leaf, element_of, leaves_of, number_mismatches, space_mismatches
from ppax.policy.actor import ArrayPath, reduced_space, without_critic_entries
from ppax.policy.spec import PolicySpec


class Read(NamedTuple):
    """Observations that the caller passed in, as arrays of B streams, and the form in which actions are handed back.

    A stream is one agent in one environment. The form is single or batched, and one agent or a dict by agent.
    """

    leaves: list[np.ndarray]  # [B, ...] each, in JAX's order
    units: int  # number of observations: environments, or streams of a policy that all agents share
    batch: bool  # the user gave a batch, and gets one
    names: tuple[Any, ...] = ()  # agents of a dict by name
    named: bool = False  # the user gave a dict by name, and gets one


class Inputs:
    """Converter of a user's observations and masks to a policy's arrays, and of its actions back to the user's form."""

    def __init__(self, spec: PolicySpec, unread: frozenset[ArrayPath] = frozenset()):
        """Prepare the conversion for a policy with the specification `spec`, which does not read arrays at `unread`."""
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
        self._of_one = {name: Reader(space, (), "obs") for name, (space, _) in self._spaces.items()}
        members = [(group, i) for group, size in spec.sizes or (("", len(spec.names)),) for i in range(size)]
        self._places = dict(zip(spec.names, members, strict=True)) if spec.names else {}  # group, and place in it
        self._stored = {leaf.path: leaf for leaf in leaves_of(spec.observation_space)}
        self.streams_per_unit = spec.num_agents if self._own or spec.sizes else 1

    def observations(self, obs: Any) -> Read:
        """Return the observations that the caller gave as arrays [B, ...] of streams, and how they were given (`Read`).

        Raises ConfigError where `obs` is not of the observation space.
        """
        if self._is_named(obs):
            return self._named(obs)
        obs = self._reduced(obs)
        return self._of_groups(obs) if self._spec.sizes else self._readers[""](obs)

    def stored(self, obs: Any) -> Any:
        """Return observations, given as arrays [B, ...] of NumPy or JAX, in the dtypes that training uses.

        Raises ConfigError for missing entries, and, in NumPy arrays, for integers that do not fit this dtype (such as
        2^32 in int32) and for categories that do not exist. Values of JAX arrays, which may be traced, are not checked.
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
        """Return action masks for the observations `read`, arrays [B, n] in a tree like the action; None without masks.

        Raises ConfigError for a mask that does not fit, and where a policy that was trained with masks gets none.
        """
        if mask is None:
            if self._spec.masked:
                raise ConfigError(
                    "mask: this policy was trained with action masks, and none was given: pass mask=..., True where an "
                    "action is allowed"
                )
            return None
        by_group = mask if self._spec.sizes else {"": mask}
        parts = self._stack_masks(mask, read) if read.named else by_group
        trees = {
            name: self._mask(parts.get(name), axis, self._spaces[name][1], read, f"mask[{name!r}]" if name else "mask")
            for name, axis in self._axes.items()
        }
        return trees if self._spec.sizes else trees[""]

    def actions(self, leaves: Sequence[np.ndarray], read: Read) -> Any:
        """Return the actions in the form in which the caller gave the observations `read`.

        That is one observation, a batch, or a dict by agent or group. `leaves` are the arrays of the actions, [B, ...]
        each. The result has the dtypes of the action space.
        """
        each, parts = iter(leaves), dict[str, Any]()
        if read.named:
            own = {group: [(next(each), leaf) for leaf in self._action_leaves[group]] for group in self._axes}
            return {name: self._action_of(own, *self._place(name)) for name in read.names}
        for name, axis in self._axes.items():
            lead = (read.units, *axis) if read.batch else axis
            shaped = [_shaped(next(each), lead, leaf) for leaf in self._action_leaves[name]]
            parts[name] = element_of(self._spaces[name][1], iter(shaped))
        return {name: parts[name] for name, _ in self._spec.sizes} if self._spec.sizes else parts[""]

    def values(self, value: np.ndarray, read: Read) -> Any:
        """Return V of all streams, [B], in the form in which the caller gave the observations `read`.

        One observation of one agent has a NumPy scalar, groups have a dict of arrays [..., agents], agents by name a
        dict of scalars.
        """
        if read.named:
            return {name: value[i] for name, i in zip(read.names, self._streams(read.names), strict=True)}
        lead = (read.units,) if read.batch else ()
        own = np.array(value[: read.units * self.streams_per_unit])  # a copy: the program reuses its arrays
        if not self._spec.sizes:
            return own.reshape((*lead, *self._axes[""]))[()]
        ends = np.cumsum([size for _, size in self._spec.sizes])
        parts = np.split(own.reshape(*lead, self._spec.num_agents), ends[:-1], axis=-1)
        return {name: part for (name, _), part in zip(self._spec.sizes, parts, strict=True)}

    def where(self, where: Any) -> Any:
        """Return the flags `where` of `Policy.reset`, True for streams that begin a new episode, as an array.

        An array is returned unchanged. A dict by agent becomes flags of all agents, False for those that are not in the
        dict: [1, agents] if agents are in groups or have parameters of their own, else [agents].
        """
        if not isinstance(where, dict):
            return where
        flags = np.zeros(len(self._spec.names), bool)
        flags[self._streams(where)] = list(where.values())
        return flags[None] if self._own or self._spec.sizes else flags

    def _reduced(self, obs: Any, group: str = "") -> Any:
        """Return those entries of an observation that the policy reads to act.

        `obs` is the observation of one agent in `group`; if `group` is "", an element of the whole observation space.
        """
        if not self._unread:
            return obs
        path = (group,) if group else ()
        return without_critic_entries(obs, self._whole[group] if group else self._whole, self._unread, path)

    def _of_groups(self, obs: Any) -> Read:
        if not isinstance(obs, dict) or set(obs) != set(self._axes):
            given = sorted(map(str, obs)) if isinstance(obs, dict) else f"a {type(obs).__name__}"
            by_agent = f", or by agent: {', '.join(map(repr, self._spec.names[:8]))}" if self._spec.names else ""
            raise ConfigError(f"obs: {given}; must be a dict by group: {', '.join(map(repr, self._axes))}{by_agent}")
        reads = {name: reader(obs[name]) for name, reader in self._readers.items()}
        forms = {(one.units, one.batch) for one in reads.values()}
        if len(forms) > 1:
            sizes = ", ".join(f"{name!r}: {one.units if one.batch else 'one'}" for name, one in reads.items())
            raise ConfigError(f"obs: the groups must have equally many observations; there are {sizes}")
        units, batch = forms.pop()
        return Read([x for one in reads.values() for x in one.leaves], units, batch)

    def _is_named(self, obs: Any) -> bool:
        """Return whether `obs` is a dict by agent, and neither an element of a Dict space nor a dict by group."""
        if not isinstance(obs, dict) or not self._spec.names:
            return False
        given = set(map(str, obs))
        if not self._spec.sizes:
            entries = self._spec.observation_space
            return not isinstance(entries, spaces.Dict) or not given & set(entries.spaces)
        if given != set(self._axes) or not given <= set(self._places):
            return not given or bool(given & set(self._places))
        name = next(iter(given))  # groups of one may have their agents' names; an agent's array has no axis of agents
        leaf = next(leaves_of(self._spaces[self._places[name][0]][0]))
        with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):  # `_of_groups` says what is wrong
            return np.ndim(leaf.of(obs[name])) == len(leaf.shape)
        return False

    def _named(self, obs: dict[str, Any]) -> Read:
        """Return the arrays of observations in a dict by agent, with rows for all agents: zeros for absent ones."""
        rows: dict[str, list[tuple[int, list[np.ndarray]]]] = {group: [] for group in self._axes}
        for name, one in obs.items():
            group, place = self._place(name)
            read = self._of_one[group](self._reduced(one, group))
            if read.batch:
                raise ConfigError(f"obs[{name!r}]: {self._batches()}")
            rows[group].append((place, read.leaves))
        leaves = []
        for group, given in rows.items():
            size = dict(self._spec.sizes).get(group, len(self._spec.names))
            for i, leaf in enumerate(leaves_of(self._spaces[group][0])):
                every = np.zeros((size, *leaf.shape), leaf.dtype)
                for place, own in given:
                    every[place] = own[i][0]
                leaves.append(every)
        units = 1 if self._own or self._spec.sizes else len(self._spec.names)
        return Read(leaves, units, False, tuple(obs), True)

    def _batches(self) -> str:
        """Return a text that says how a user gives a batch of observations."""
        arrays = "dicts by group" if self._spec.sizes else f"arrays [N, {len(self._spec.names)}, ...]"
        return f"give one observation for each agent, [...], or for a batch {arrays}"

    def _place(self, name: Any) -> tuple[str, int]:
        """Return the group of the agent `name` and its index in the group; ConfigError for a name that no agent has."""
        if str(name) not in self._places:
            raise ConfigError(f"obs[{name!r}]: no such agent; there are {', '.join(map(repr, self._spec.names))}")
        return self._places[str(name)]

    def _streams(self, names: Any) -> list[int]:
        """Return the indices of the agents `names` among an environment's agents; ConfigError for an unknown name."""
        for name in names:
            self._place(name)
        return [self._spec.names.index(str(name)) for name in names]

    def present(self, read: Read) -> np.ndarray | None:
        """Return flags [B], True for the agents in the caller's dict by agent; None if the caller gave no such dict."""
        if not read.named:
            return None
        given = np.zeros(len(self._spec.names), bool)
        given[self._streams(read.names)] = True
        return given

    def _action_of(self, own: dict[str, list[tuple[np.ndarray, Leaf]]], group: str, place: int) -> Any:
        """Return the action of the agent at index `place` of `group`.

        `own` has the actions of each group's agents as arrays [agents, ...], one for each leaf of the action space.
        """
        return element_of(self._spaces[group][1], (_shaped(x[place : place + 1], (), kind) for x, kind in own[group]))

    def _stack_masks(self, mask: Any, read: Read) -> dict[str, Any]:
        """Return action masks by group, stacked to arrays [agents, n], from the dict `mask` by agent.

        Masks are trees like the group's actions; without groups the only key is "". `read` are the observations, which
        say which agents are present: for absent agents all actions are allowed. A group may have no masks at all: it is
        left out, and all actions of its agents are allowed. Raises ConfigError for a mask of an agent that is not
        present, and for a present agent without a mask where another one of its group (without groups, any agent) has
        one.
        """
        groups, given = set(self._spec.sizes), dict(mask) if isinstance(mask, dict) else None
        if given is None or (given.keys() != set(read.names) if not groups else not given.keys() <= set(read.names)):
            raise ConfigError(f"mask: must be a dict with the agents of obs: {', '.join(map(repr, read.names))}")
        parts: dict[str, Any] = {}
        for group in self._axes:
            members = [name for name, (own, _) in self._places.items() if own == group]
            masks_of = {
                str(name): jax.tree.map(np.asarray, x, is_leaf=_is_list)
                for name, x in given.items()
                if str(name) in members and x is not None
            }
            if not masks_of:
                continue  # of actions that need none
            missing = [str(name) for name in read.names if str(name) in members and str(name) not in masks_of]
            if missing:
                raise ConfigError(f"mask[{missing[0]!r}]: is missing, and other agents of {group!r} have one")
            free = jax.tree.map(np.ones_like, next(iter(masks_of.values())))
            parts[group] = jax.tree.map(lambda *x: np.stack(x), *(masks_of.get(name, free) for name in members))
        return parts

    def _mask(self, mask: Any, axis: tuple[int, ...], space: spaces.Space, read: Read, name: str) -> Any:
        """Return the masks of one group, NumPy arrays [B, n] in a tree like its action; None if `mask` is None.

        `axis` is the axis of the group's agents, `space` the group's action space, `name` what messages call the mask.
        """
        if mask is None:
            return None
        lead = (read.units, *axis) if read.batch else axis
        if read.named and not self._spec.sizes:
            lead = (len(read.leaves[0]),)
        streams = len(read.leaves[0]) if not self._spec.sizes else read.units * axis[0]

        def rows(x: Any) -> np.ndarray:
            x = as_flags(x, name)
            if x.shape[: len(lead)] != lead:
                raise ConfigError(f"{name} has the shape {list(x.shape)}; must begin with {list(lead)}")
            return x.reshape(streams, *x.shape[len(lead) :])

        return jax.tree.map(
            np.asarray, masks.complete(space, jax.tree.map(rows, mask, is_leaf=_is_list), streams, name)
        )


class Reader:
    """Function from observations that the caller of a policy gives to arrays of B streams, [B, ...].

    A stream is one agent in one environment. The agents share one observation space: they are all agents, or, in an
    environment with groups, those of one group. Observations that are not of the space are refused.
    """

    def __init__(self, space: spaces.Space, axis: tuple[int, ...], name: str):
        """Prepare to read elements of `space`; arrays have the axes `axis` in front: that of agents, or none.

        `name` is what messages call an observation.
        """
        self._space, self._axis, self._name = space, axis, name
        self._leaves: list[Leaf] = list(leaves_of(space))
        single = self._leaves[0] if len(self._leaves) == 1 and not self._leaves[0].path else None
        self._shape = (*axis, *single.shape) if single else None  # of one observation that is one array
        self._fitting: set[Any] = set()  # dtypes that are known to fit that array

    def __call__(self, obs: Any) -> Read:
        """Return the observations `obs` as arrays [B, ...] of streams, and whether they were one or a batch (`Read`).

        Raises ConfigError, as in training, where they are not of the space.
        """
        if type(obs) is np.ndarray and obs.dtype in self._fitting:  # the usual case, without further calls
            if obs.shape == self._shape:
                return Read([self._array(obs, self._leaves[0])], 1, False)
            if obs.shape[1:] == self._shape and len(obs):
                return Read([self._array(obs, self._leaves[0])], len(obs), True)
        units = self._units(obs)
        lead = self._axis if units is None else (units, *self._axis)
        for problem in space_mismatches(self._space, obs, self._name, lead):
            raise ConfigError(f"{problem}; {self._remedy()}")
        if units == 0:
            raise ConfigError(f"{self._name} is an empty batch; {self._remedy()}")
        rows = (1 if units is None else units, *self._axis)
        arrays = [self._array(np.asarray(leaf.of(obs)), leaf) for leaf in self._leaves]
        if self._shape is not None:
            self._fitting.add(np.asarray(obs).dtype)
        number = math.prod(rows)  # not -1: an entry may have no element
        streams = [x.reshape(number, *leaf.shape) for x, leaf in zip(arrays, self._leaves, strict=True)]
        return Read(streams, rows[0], units is not None)

    def _array(self, x: np.ndarray, leaf: Leaf) -> np.ndarray:
        """Return an array of observations with one axis of streams, in the dtype that training uses, `leaf.dtype`.

        A stream is one agent in one environment. Raises ConfigError for numbers that are not finite, are no category of
        the space, or cannot be stored.
        """
        if leaf.categorical or (leaf.low is not None and x.dtype != leaf.dtype):
            for problem in number_mismatches(leaf, x, self._name):
                raise ConfigError(problem)
        own = x if x.dtype == leaf.dtype else _cast(x, leaf.dtype)
        # of a sum of squares, which is fast, NaN and infinity are seen; so is an overflow, which is none
        if leaf.low is None and not math.isfinite(np.vdot(own, own)) and not np.isfinite(own).all():
            place = tuple(map(int, np.argwhere(~np.isfinite(own))[0]))
            where = "".join(f"[{step!r}]" for step in leaf.path) + (str(list(place)) if place else "")
            raise ConfigError(f"{self._name}{where} is {x[place]}; must be finite in {leaf.dtype}, as in training")
        return own.reshape(math.prod(own.shape[: own.ndim - len(leaf.shape)]), *leaf.shape)  # also without an element

    def _units(self, obs: Any) -> int | None:
        """Return the number of observations in `obs` if it is a batch; None for one observation.

        It is also None if the first array of `obs` has the shape of neither.
        """
        first = self._leaves[0]
        try:
            shape = np.shape(first.of(obs))
        except (KeyError, IndexError, TypeError, ValueError):  # `space_mismatches` says what is wrong
            return None
        return shape[0] if len(shape) == 1 + len(self._axis) + len(first.shape) else None

    def _remedy(self) -> str:
        axis = "".join(f"{n}, " for n in self._axis)
        shapes = " and ".join(f"[{', '.join(map(str, (*self._axis, *leaf.shape)))}]" for leaf in self._leaves[:3])
        agents = f", with an axis of the {self._axis[0]} agents" if axis else ""
        return f"give one observation, {shapes}{agents}, or a batch with one more axis in front"


def as_flags(x: Any, name: str) -> np.ndarray:
    """Return `x` as an array of truth values; ConfigError for entries other than True, False, 1 and 0."""
    given = np.asarray(x)
    if given.dtype == bool:
        return given
    if given.dtype.kind not in "iuf" or (wrong := (given != 0) & (given != 1)).any():
        example = given[wrong][0] if given.dtype.kind in "iuf" else repr(x)
        raise ConfigError(f"{name} has the entry {example}; must be True or 1, False or 0")
    return given.astype(bool)


def _cast(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(over="ignore"):  # an infinity, which is refused
        return x.astype(dtype)


def _require(obs: Any, path: ArrayPath) -> None:
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
    """Return actions in the shape [*lead, ...], from an array `x` [B, ...] that may have padding rows at its end.

    A single number is returned as a NumPy scalar. `leaf` is the array of the action space that these actions are of.
    """
    shape = (*lead, *leaf.shape)
    own = np.array(x[: math.prod(lead)], leaf.space_dtype).reshape(shape)  # a copy: the program reuses its arrays
    return own if shape else own[()]
