"""Reader of one agent's observations: one or a batch, checked as training checks them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from ppax.core.types import ConfigError
from ppax.envs.hosting.arrays import Leaf, leaves_of, number_mismatches, space_mismatches


class Read(NamedTuple):
    """Observations as arrays, with the form that the actions take."""

    leaves: list[np.ndarray]  # [B, ...] each, in JAX's order
    units: int  # number of observations: environments, or streams of a policy that all agents share
    batch: bool  # the user gave a batch, and gets one
    names: tuple[Any, ...] = ()  # agents of a dict by name
    named: bool = False  # the user gave a dict by name, and gets one


class Reader:
    """Reader of the observations of agents with one space: all agents without groups, or one group."""

    def __init__(self, space: spaces.Space, axis: tuple[int, ...], name: str):
        """Read elements of `space` behind `axis`, the axis of agents."""
        self._space, self._axis, self._name = space, axis, name
        self._leaves: list[Leaf] = list(leaves_of(space))
        single = self._leaves[0] if len(self._leaves) == 1 and not self._leaves[0].path else None
        self._shape = (*axis, *single.shape) if single else None  # of one observation that is one array
        self._fitting: set[Any] = set()  # dtypes that are known to fit that array

    def __call__(self, obs: Any) -> Read:
        """Return the arrays of `obs`; ConfigError, in the words of training, where it does not belong to the space."""
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
        """Return an array of observations with one axis of streams, in the dtype of training.

        Raises ConfigError for numbers that are not finite, no categories, or cannot be stored.
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
        """Return the length of the batch; None for one observation, and where the first array has neither form."""
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


def flags(x: Any, name: str) -> np.ndarray:
    """Return truth values; ConfigError for other entries than True, False, 1 and 0, as those of logits."""
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
