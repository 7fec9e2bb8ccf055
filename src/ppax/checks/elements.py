"""Elements of Gymnasium spaces: iterate over leaves, test bounds, compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import spaces

CLOSE = 1e-5  # relative tolerance, between two runs of the same episode


def parts(space: spaces.Space, element: Any, name: str) -> Iterator[tuple[str, spaces.Space, Any]]:
    """Yield (name, space, value) for every leaf of an element of Dict and Tuple spaces."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, inner in space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces):
            yield from parts(inner, element[key], f"{name}[{key!r}]")
    else:
        yield name, space, element


def outside(name: str, space: spaces.Space, x: np.ndarray) -> Iterator[str]:
    """Yield a message for the first number outside `space`; `x` may have batch axes."""
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


def once(problems: Iterator[Iterator[str]]) -> list[str]:
    """Keep the first message of each kind; messages that differ only after " = " are of one kind."""
    first: dict[str, str] = {}
    for messages in problems:
        for message in messages:
            first.setdefault(message.partition(" = ")[0], message)
    return list(first.values())


def same(one: Any, other: Any) -> bool:
    """Whether two trees hold the same numbers, up to rounding."""
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
    """Number of distinct elements."""
    kept: list[Any] = []
    for element in elements:
        if not any(same(element, other) for other in kept):
            kept.append(element)
    return len(kept)
