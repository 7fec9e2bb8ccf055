"""Names of files, servers, accounts and databases in a configuration, and the user's trust in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ppax.config import group_tables
from ppax.config.validation import is_free, options
from ppax.core import imports
from ppax.core.imports import TEXT, Outside, may_name_a_file
from ppax.core.options import NONE, Config, Option, flatten, free_tables

CHECKSUM = "checksum"  # option beside a path: the sender of the configuration has what has this SHA-256


def outside(config: Config) -> dict[str, Outside]:
    """Return the paths and addresses that a configuration of a run names, by the dotted paths of their options.

    A local file is left out where a checksum stands beside its path: who wrote the configuration then has the file
    already. Raises Untrusted, before anything is imported, for names of code that the user does not trust.
    """
    config = group_tables.with_inherited(config)
    return outside_values(dict(flatten(config)), options(config))


def outside_values(values: Mapping[str, Any], known: Iterable[Option]) -> dict[str, Outside]:
    """Return those of `values` that are paths or addresses, by dotted path; `known` are the options of `values`.

    Defaults and files with a checksum beside them are left out; of parameters of the environment and of arguments of
    modules, a text that may name a file is in.
    """
    known = list(known)
    declared, tables = {one.path: one for one in known if "outside" in one.limits}, free_tables(known)
    found: dict[str, Outside] = {}
    for place, value in values.items():
        if is_free(place, tables):
            found |= {own: Outside(TEXT, x) for own, x in _texts(value, place) if may_name_a_file(x)}
        elif place in declared and not _identified(place, values):
            kind, default = declared[place].limits["outside"], declared[place].default
            found |= {own: Outside(kind, x) for own, x in _texts(value, place) if x not in (default, "", NONE)}
    return found


def _identified(place: str, values: Mapping[str, Any]) -> bool:
    """Return True if the value at `place`, among `values` by dotted path, is a local path with a checksum beside it."""
    checksum = f"{place.rpartition('.')[0]}.{CHECKSUM}"
    return bool(values.get(checksum)) and not imports.REMOTE.match(str(values[place]))


def require_asked_options(config: Config, *tables: str) -> None:
    """Raise Untrusted where a configuration names a path or address that the user does not trust.

    With `tables`, only these top-level tables of it are looked at.
    """
    chosen = {name: x for name, x in config.items() if name in tables} if tables else config
    imports.require_asked(outside(chosen))


def require_asked_of_env(config: Config) -> None:
    """Raise Untrusted where a parameter of the environment names a file that the user does not trust."""
    imports.require_asked(outside_values({place: x for place, x in flatten(config) if is_free(place)}, ()))


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of each string in `value`, which may be nested; `place` is the dotted path of `value`."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping | list | tuple):
        inner = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in inner:
            yield from _texts(one, f"{place}.{key}")
