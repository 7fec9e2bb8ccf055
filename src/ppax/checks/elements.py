"""Elements of spaces, as environments on the host give them: parts, whether they lie inside, whether they differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

CLOSE = 1e-5  # relative, between an episode and the same one again


def parts(space: spaces.Space, element: Any, name: str) -> Iterator[tuple[str, spaces.Space, Any]]:
    """Every part of an element that is no collection, with its space."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, inner in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            yield from parts(inner, element[key], f"{name}[{key!r}]")
    else:
        yield name, space, element


def outside(name: str, space: spaces.Space, x: np.ndarray) -> Iterator[str]:
    """Where one part of an element leaves its space; a batch of them is the same."""
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.Discrete):
        low, high = space.start, space.start + space.n - 1
    elif isinstance(space, spaces.MultiDiscrete):
        low, high = space.start, space.start + space.nvec - 1
    elif isinstance(space, spaces.MultiBinary):
        low, high = 0, 1
    else:
        return
    beyond = (x < low) | (x > high)
    if beyond.any():
        where = tuple(map(int, np.argwhere(beyond)[0]))
        lowest, highest = (np.broadcast_to(bound, x.shape)[where] for bound in (low, high))
        place = list(where) if where else ""
        yield f"{name}{place} = {x[where]:g} is outside [{lowest:g}, {highest:g}]"


def once(found: Iterator[Iterator[str]]) -> list[str]:
    """Of each thing that is wrong the first sentence; which number a place has does not make another of it."""
    first: dict[str, str] = {}
    for sentences in found:
        for sentence in sentences:
            first.setdefault(sentence.partition(" = ")[0], sentence)
    return list(first.values())


def same(one: Any, other: Any) -> bool:
    """Whether two trees hold the same numbers, but for rounding."""
    if one is None or other is None:
        return one is other
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    a, b = np.asarray(one), np.asarray(other)
    if a.shape != b.shape:
        return False
    return bool(np.allclose(a, b, CLOSE, CLOSE, equal_nan=True)) if a.dtype.kind == "f" else bool((a == b).all())


def distinct(elements: list[Any]) -> int:
    """How many of them differ."""
    found: list[Any] = []
    for element in elements:
        if not any(same(element, other) for other in found):
            found.append(element)
    return len(found)
