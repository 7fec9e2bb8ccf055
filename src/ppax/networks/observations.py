"""What stands in an observation: the arrays of a space, one by one, and how numbers are made of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.types import ConfigError, PyTree, part, static


@part
class Entry:
    """One array of an observation: where it stands, and what its numbers mean."""

    path: tuple[str | int, ...] = static()  # keys of Dict, places in Tuple; () for an observation of one array
    shape: tuple[int, ...] = static()  # of what `read` gives
    categories: tuple[int, ...] = static(default=())  # how many, for each of its numbers; () where they are amounts
    starts: tuple[int, ...] = static(default=())  # the first category's number
    pixels: bool = static(default=False)  # bytes from 0 to 255

    @property
    def name(self) -> str:
        """Its path with dots; "obs" for an observation of one array."""
        return ".".join(map(str, self.path)) or "obs"

    @property
    def image(self) -> bool:
        """Whether it has height, width and channels."""
        return not self.categories and len(self.shape) == 3

    def read(self, obs: PyTree, dtype: Any) -> Array:
        """Its array in an observation: categories one-hot, bytes from 0 to 1, the rest as it is."""
        for step in self.path:
            obs = obs[step]
        if self.categories:
            numbers = zip(jnp.ravel(obs), self.starts, self.categories, strict=True)
            return jnp.concatenate([jax.nn.one_hot(x - start, size, dtype=dtype) for x, start, size in numbers])
        x = obs.astype(dtype)
        # once: normalised observations are floating point
        return x / 255 if self.pixels and obs.dtype == jnp.uint8 else x


def entries(space: spaces.Space, path: tuple[str | int, ...] = ()) -> Iterator[Entry]:
    """All arrays of an observation of `space`; ConfigError where there is a kind that networks here cannot read."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        inner = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, value in inner:
            yield from entries(value, (*path, key))
    elif isinstance(space, spaces.Discrete):
        yield Entry(path, (int(space.n),), (int(space.n),), (int(space.start),))
    elif isinstance(space, spaces.MultiDiscrete):
        sizes, starts = (tuple(int(x) for x in np.ravel(y)) for y in (space.nvec, space.start))
        yield Entry(path, (sum(sizes),), sizes, starts)
    elif isinstance(space, spaces.MultiBinary):
        yield Entry(path, tuple(space.shape))
    elif isinstance(space, spaces.Box):
        pixels = space.dtype == np.uint8 and bool((space.high == 255).all())
        yield Entry(path, tuple(space.shape), pixels=pixels)
    else:
        raise ConfigError(
            f"observation space {space}: supported are Box, Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple "
            "of them; for another space write a network with an `encode` of your own"
        )


def select(found: tuple[Entry, ...], names: tuple[str, ...], field: str) -> tuple[Entry, ...]:
    """The entries called `names`, or below such a name; all where none is named."""
    for name in names:
        if not any(name in _names(entry) for entry in found):
            there = ", ".join(entry.name for entry in found)
            raise ConfigError(f"network.{field}: no entry {name!r} in the observation; there are {there}")
    return tuple(entry for entry in found if not names or set(names) & _names(entry))


def _names(entry: Entry) -> set[str]:
    return {".".join(map(str, entry.path[:depth])) for depth in range(1, len(entry.path) + 1)} | {entry.name}
