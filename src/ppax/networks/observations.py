"""Entries of observations: the arrays of an observation space, and their preprocessing into network inputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays.entries import is_bytes
from ppax.core.types import ConfigError, PyTree, part, static
from ppax.envs.suites.registry import require_adapted


@part
class Entry:
    """Array of an observation: its path in the space, and its preprocessing (one-hot, pixel scaling or none)."""

    path: tuple[str | int, ...] = static()  # keys of Dict, indices of Tuple; () for an observation of one array
    shape: tuple[int, ...] = static()  # of the output of `read`
    categories: tuple[int, ...] = static(default=())  # categories of each element; () if not categorical
    starts: tuple[int, ...] = static(default=())  # value of the first category, for each element
    pixels: bool = static(default=False)  # uint8 image data from 0 to 255

    @property
    def name(self) -> str:
        """Name of the entry: its path joined by dots; "obs" for an observation of one array."""
        return ".".join(map(str, self.path)) or "obs"

    @property
    def image(self) -> bool:
        """True if the entry has three axes, as an image has (height, width and channels), and is not categorical."""
        return not self.categories and len(self.shape) == 3

    def read(self, obs: PyTree, dtype: Any) -> Array:
        """Return this entry of one observation `obs`: categories one-hot, pixels scaled to [0, 1], others unchanged.

        The result has the dtype `dtype`.
        """
        for step in self.path:
            obs = obs[step]
        if self.categories:
            numbers = zip(jnp.ravel(obs), self.starts, self.categories, strict=True)
            return jnp.concatenate([jax.nn.one_hot(x - start, size, dtype=dtype) for x, start, size in numbers])
        x = obs.astype(dtype)
        # only raw uint8: normalised observations are floating point already
        return x / 255 if self.pixels and obs.dtype == jnp.uint8 else x


def entries(space: spaces.Space, path: tuple[str | int, ...] = ()) -> Iterator[Entry]:
    """Yield the entries (arrays) of an observation of `space`.

    `path` leads to `space` in the whole observation space. Raises ConfigError for a kind of space without
    preprocessing.
    """
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, value in inner:
            yield from entries(value, (*path, key))
    elif isinstance(space, spaces.Discrete):
        require_32_bits(space, "observation space")
        yield Entry(path, (int(space.n),), (int(space.n),), (int(space.start),))
    elif isinstance(space, spaces.MultiDiscrete):
        require_32_bits(space, "observation space")
        sizes, starts = (tuple(int(x) for x in np.ravel(y)) for y in (space.nvec, space.start))
        yield Entry(path, (sum(sizes),), sizes, starts)
    elif isinstance(space, spaces.MultiBinary):
        yield Entry(path, tuple(space.shape))
    elif isinstance(space, spaces.Box):
        yield Entry(path, tuple(space.shape), pixels=is_bytes(space))
    else:
        raise ConfigError(
            f"observation space {space}: supported are Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple "
            "of these; for another space write a network with its own `encode`"
        )


def require_32_bits(space: spaces.Discrete | spaces.MultiDiscrete, where: str) -> None:
    """Raise ConfigError for a space whose categories have numbers beyond 32 bits, the size of JAX's integers.

    `where` names the space in the error.
    """
    limits = np.iinfo(np.int32)
    counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
    if np.min(space.start) < limits.min or np.max(space.start + counts - 1) > limits.max:
        raise ConfigError(
            f"{where} {space}: its numbers must be from {limits.min} to {limits.max}; nearest valid value: start = 0"
        )


def observation_space_of(env: Any) -> spaces.Space:
    """Return the observation space of an environment; ConfigError for an object that has none."""
    require_adapted(getattr(env, "env", env))
    space = getattr(env, "observation_space", None)
    if isinstance(space, spaces.Space):
        return space
    remedy = f"ppax.make({env!r})" if isinstance(env, str) else "ppax.make(NAME)"
    raise ConfigError(f"env = {env!r}: must have an observation_space and an action_space; write {remedy}")


def select(available: tuple[Entry, ...], names: tuple[str, ...], field: str) -> tuple[Entry, ...]:
    """Return the entries named in `names`, or nested below one of these; all entries where `names` is empty.

    Raises ConfigError, which names the option `field`, for a name without an entry, or if the chosen entries have no
    element at all.
    """
    for name in names:
        if not any(name in _names(entry) for entry in available):
            there = ", ".join(entry.name for entry in available)
            raise ConfigError(f"network.{field}: no entry {name!r} in the observation; there are {there}")
    chosen = tuple(entry for entry in available if not names or set(names) & _names(entry))
    if not any(math.prod(entry.shape) for entry in chosen):
        shapes = ", ".join(f"{entry.name} {list(entry.shape)}" for entry in chosen) or "no array at all"
        raise ConfigError(
            f"network.{field}: the observation has no element ({shapes}): a network needs at least one number; without "
            "anything to observe return a constant, Box(1.0, 1.0, (1,))"
        )
    return chosen


def _names(entry: Entry) -> set[str]:
    return {".".join(map(str, entry.path[:depth])) for depth in range(1, len(entry.path) + 1)} | {entry.name}
