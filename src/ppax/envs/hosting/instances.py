"""Creation of single environments: each function call must give a new one, in whatever place it is made.

This file imports only files of ppax that worker processes load too.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from ppax.envs.hosting.conventions import adapted, wrappers_of

_made: dict[int, weakref.ref[Any]] = {}  # environments that functions have returned in this process, by id


class SharedEnv(Exception):
    """An environment was returned a second time, or shares one inside of it with another."""


def new(factory: Callable[[], Any]) -> Any:
    """Return a new environment, with masks and recorded episodes in `info`; SharedEnv if it is not new."""
    env = factory()
    refuse_shared([env])
    return adapted(env)


def refuse_shared(envs: Iterable[Any], made: dict[int, weakref.ref[Any]] = _made) -> None:
    """Raise SharedEnv for an environment that is in `made`, itself or inside of another one; else add it."""
    for env in envs:
        for one in wrappers_of(env):
            known = made.get(id(one))
            if known is not None and known() is one:
                kind = type(one).__name__
                outside = "" if one is env else f"a {type(env).__name__} of "
                raise SharedEnv(
                    f"the function has returned {outside}an environment of type {kind} that it had returned before, "
                    "and streams would share its state: pass a function that makes a new one at each call, as "
                    f"ppax.envs.host({kind}, num_envs=8), or one existing environment as "
                    "gymnasium.vector.SyncVectorEnv([lambda: env])"
                )
        for one in wrappers_of(env):
            place = id(one)
            with contextlib.suppress(TypeError):  # a class with slots
                made[place] = weakref.ref(one, partial(_forget, made, place))


def _forget(made: dict[int, weakref.ref[Any]], place: int, gone: weakref.ref[Any]) -> None:
    made.pop(place, None)


def generators_of(env: Any) -> Iterator[tuple[str, Any]]:
    """Yield the random generators that an environment, those inside of it and their classes have as attributes."""
    for one in wrappers_of(env):
        for holder in (one, *type(one).__mro__):
            for name, x in getattr(holder, "__dict__", {}).items():
                if isinstance(x, np.random.Generator | np.random.RandomState):
                    yield name, x
