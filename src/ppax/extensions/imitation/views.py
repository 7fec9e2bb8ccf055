"""Observations of a teacher, made from those of the student's environment, which may have more entries.

A teacher may read entries of the observation that the student's actor does not see (`agent.network.actor_obs`), such as
privileged state; the environment must give them.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from typing import Any

import jax.numpy as jnp
from gymnasium import spaces

from ppax.core.types import ConfigError, PyTree
from ppax.envs.hosting.arrays import leaves_of

ArrayPath = tuple[str | int, ...]  # of one array of an observation


def entry_at(space: spaces.Space, name: str, field: str) -> tuple[str, spaces.Space]:
    """Return what messages call the entry `name` of a Dict space, and the space of this entry.

    An entry inside another one is named with a dot, as "state.joints"; the empty name is the whole space. Raises
    ConfigError, which names the option `field`, if there is no such entry.
    """
    inner = space
    for key in name.split(".") if name else ():
        if not isinstance(inner, spaces.Dict) or key not in inner.spaces:
            known = list(names_in(space))
            nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
            hint = f"; nearest: {nearest[0]}" if nearest else ""
            there = ", ".join(known) or "one array, and no entries"
            raise ConfigError(f"{field} = {name!r}: no such entry; the observation has {there}{hint}")
        inner = inner.spaces[key]
    return (repr(name) if name else "the observation"), inner


def follow_path(obs: PyTree, name: str) -> PyTree:
    """Return the entry `name` of an observation; a dot leads into an entry, and the empty name is the observation."""
    for key in name.split(".") if name else ():
        obs = obs[key]
    return obs


def names_in(space: spaces.Space, above: str = "") -> Iterator[str]:
    """Yield the names of all entries of a Dict space, those inside other entries with dots; none for other spaces.

    `above` is put in front of each name: for the space of an entry "state" it is "state.", else "".
    """
    for key, inner in space.spaces.items() if isinstance(space, spaces.Dict) else ():
        yield f"{above}{key}"
        yield from names_in(inner, f"{above}{key}.")


def require_entries(
    student: spaces.Space, teacher: spaces.Space, read: Collection[ArrayPath], who: str, option: str
) -> None:
    """Raise ConfigError unless an observation of the space `student` has all arrays that a teacher reads.

    `teacher` is the teacher's observation space, `read` the paths of the arrays in it that the teacher reads, and `who`
    the teacher's name in the message. `option` is the option that the message recommends if the teacher's observation
    is one entry of the student's.
    """
    if student == teacher:
        return
    remedy = "must be that of the student"
    if not isinstance(student, spaces.Dict):
        remedy += f", {student}"
    fitting = [name for name in names_in(student) if entry_at(student, name, "")[1] == teacher]
    if fitting:
        remedy = f'must be that of the student, or one entry of it: give {option} = ["{fitting[0]}"]'
    if not (isinstance(student, spaces.Dict) and isinstance(teacher, spaces.Dict)):
        raise ConfigError(f"{who} has the observation space {teacher}; {remedy}")
    given = {leaf.path: _space_at(student, leaf.path) for leaf in leaves_of(student)}
    own = {leaf.path: _space_at(teacher, leaf.path) for leaf in leaves_of(teacher) if leaf.path in read}
    lacking = [_name(path) for path in own if path not in given]
    if lacking:
        raise ConfigError(
            f"{who} reads the entries {', '.join(map(repr, lacking))}, which the student's environment lacks; it has "
            f"{', '.join(repr(_name(path)) for path in given)}. The environment must give what the teacher reads; "
            "agent.network.actor_obs says what the student sees of it"
        )
    for path, space in own.items():
        if given[path] != space:
            raise ConfigError(
                f"{who} reads the entry {_name(path)!r} as {space}; the student's environment has {given[path]}: must "
                "be the same space"
            )


def seen_by_teacher(obs: PyTree, student: Any, teacher: spaces.Space, lead: tuple[int, ...]) -> PyTree:
    """Return the observation [*lead, ...] of a teacher, from one of the student's environment.

    `student` and `teacher` are the observation spaces. Entries that the teacher does not know are left out; those that
    only it knows, which its actions do not depend on (`require_entries`), are zeros.
    """
    if student == teacher:
        return obs
    if isinstance(teacher, spaces.Dict):
        given = student.spaces if isinstance(student, spaces.Dict) else {}
        return {
            key: seen_by_teacher(obs[key] if key in given else None, given.get(key), inner, lead)
            for key, inner in teacher.spaces.items()
        }
    if isinstance(teacher, spaces.Tuple):
        given_items = student.spaces if isinstance(student, spaces.Tuple) else ()
        return tuple(
            seen_by_teacher(obs[i], given_items[i], inner, lead)
            if i < len(given_items)
            else seen_by_teacher(None, None, inner, lead)
            for i, inner in enumerate(teacher.spaces)
        )
    leaf = next(leaves_of(teacher))
    return jnp.zeros((*lead, *leaf.shape), leaf.dtype)


def _space_at(space: Any, path: ArrayPath) -> spaces.Space:
    for key in path:
        space = space.spaces[key]
    return space


def _name(path: ArrayPath) -> str:
    return ".".join(map(str, path))
