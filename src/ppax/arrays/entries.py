"""Entries of observations by name: "3" or "4:7" of a vector, "joints" or "state.4:7" of a Dict or Tuple."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from ppax.core.types import ConfigError, PyTree

INDICES = re.compile(r"(\d+)(?::(\d+))?")


def each_array(space: spaces.Space, one: Callable[[spaces.Space], Any]) -> PyTree:
    """Return `one` of the space of each array of an observation of `space`, in the structure of `space`."""
    if isinstance(space, spaces.Dict):
        return {key: each_array(inner, one) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(each_array(inner, one) for inner in space.spaces)
    return one(space)


def is_bytes(space: spaces.Space) -> bool:
    """Return whether arrays of `space` are bytes as those of an image, uint8 from 0 to 255, which networks scale."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and bool((space.high == 255).all())


def names_of(tree: PyTree, separator: str = ".", is_leaf: Callable[[Any], bool] | None = None) -> list[str]:
    """Return the name of each array of an observation: its keys in Dict and Tuple spaces, "" for a single array.

    `separator` joins the keys. `is_leaf` is that of `jax.tree.map`: a node for which it returns True counts as one
    array, although it is a tree, such as the running statistics of an array.
    """
    paths = jax.tree_util.tree_flatten_with_path(tree, is_leaf)[0]
    return [separator.join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) for path, _ in paths]


def find_entries(text: str, shapes: Mapping[str, tuple[int, ...]], option: str) -> dict[str, slice]:
    """Return the arrays of an observation that `text` selects, each with the slice of its elements that is selected.

    `text` may be the name of an array ("joints"), or the first keys of several names ("state" for "state.joints" and
    "state.speed"): then all elements of these arrays are selected. Or it is the name of a vector with an index
    ("joints.4") or a range ("joints.4:7"). `shapes` has the shapes of all arrays by name. Raises ConfigError, which
    names `option` and the nearest valid text, if there is no such entry.
    """
    inside = [name for name in shapes if text and (name == text or name.startswith(f"{text}."))]
    if inside:
        return dict.fromkeys(inside, slice(None))
    name, _, last = text.rpartition(".")
    found = INDICES.fullmatch(last)
    if found is None or name not in shapes:
        known = [one or "0" for one in shapes]
        nearest = difflib.get_close_matches(text, known, n=1, cutoff=0.0)[0]
        raise ConfigError(f"{option}: no entry {text!r} in the observations; nearest: {nearest!r}")
    if len(shapes[name]) != 1:
        remedy = f"name all of it, {name!r}" if name else "parts of it have no names"
        raise ConfigError(f"{option} = {text!r}: shape {shapes[name]} is no vector; {remedy}")
    (size,) = shapes[name]
    begin = int(found[1])
    end = begin + 1 if found[2] is None else int(found[2])
    if not begin < end <= size:
        nearest = f"{name}.{size - 1}" if name else str(size - 1)
        raise ConfigError(f"{option} = {text!r}: there are {size} entries; nearest valid: {nearest!r}")
    return {name: slice(begin, end)}
