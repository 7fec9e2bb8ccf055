"""Options of a configuration that name files, servers, accounts or databases, and the user's trust in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ppax.config import group_tables
from ppax.config.validation import is_free, options
from ppax.core import imports
from ppax.core.imports import TEXT, Outside, may_name_a_file
from ppax.core.options import NONE, Config, Option, flatten

CHECKSUM = "checksum"  # option beside a path: the sender of the configuration has what has this SHA-256


def outside(config: Config) -> dict[str, Outside]:
    """Return the paths and addresses that a configuration of a run names, by their places in it.

    A local file beside whose path there is a checksum is left out: a configuration can only name one that its sender
    has, too. Raises Untrusted, before anything is imported, for names of code that the user does not trust.
    """
    config = group_tables.with_inherited(config)
    return outside_values(dict(flatten(config)), options(config))


def outside_values(values: Mapping[str, Any], known: Iterable[Option]) -> dict[str, Outside]:
    """Return the paths and addresses among values by dotted path, of which `known` are the options."""
    declared = {option.path: option for option in known if "outside" in option.limits}
    found: dict[str, Outside] = {}
    for place, value in values.items():
        if is_free(place):
            found |= {own: Outside(TEXT, x) for own, x in _texts(value, place) if may_name_a_file(x)}
        elif place in declared and not _identified(place, values):
            kind, default = declared[place].limits["outside"], declared[place].default
            found |= {own: Outside(kind, x) for own, x in _texts(value, place) if x not in (default, "", NONE)}
    return found


def _identified(place: str, values: Mapping[str, Any]) -> bool:
    """Return whether a value is a local path with a checksum beside it."""
    checksum = f"{place.rpartition('.')[0]}.{CHECKSUM}"
    return bool(values.get(checksum)) and not imports.REMOTE.match(str(values[place]))


def require_asked_options(config: Config, *tables: str) -> None:
    """Raise Untrusted where a configuration, or one of some tables in it, names a path or address without trust."""
    chosen = {name: x for name, x in config.items() if name in tables} if tables else config
    imports.require_asked(outside(chosen))


def require_asked_of_env(config: Config) -> None:
    """Raise Untrusted where an argument of the environment names a file that the user does not trust."""
    imports.require_asked(outside_values({place: x for place, x in flatten(config) if is_free(place)}, ()))


def _texts(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Yield place and text of each text in a value, which may be a list."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping | list | tuple):
        inner = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, one in inner:
            yield from _texts(one, f"{place}.{key}")
