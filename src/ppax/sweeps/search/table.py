"""Table `[search]` of a sweep's file: the part that decides over the members while they train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ppax import config
from ppax.config import SEARCH, Choices
from ppax.core import imports
from ppax.core.imports import Outside
from ppax.core.options import Config, Option, flatten
from ppax.core.protocols import Search
from ppax.core.types import ConfigError
from ppax.sweeps.search.asha import ASHA
from ppax.sweeps.search.grid import Grid
from ppax.sweeps.search.halving import Halving
from ppax.sweeps.search.optuna import Optuna
from ppax.sweeps.search.pbt import PBT

# the first is the default
SEARCHES = Choices("search", {"grid": Grid, "halving": Halving, "asha": ASHA, "pbt": PBT, "optuna": Optuna})


def options_of(table: Any) -> Iterator[Option]:
    """Yield the options of the part that a table names; ConfigError, Untrusted for a name that means none."""
    return config.part_options(SEARCHES, checked(table), SEARCH)


def read(table: Any) -> Search:
    """Return the search of a table; ConfigError for unknown options and values out of range.

    Raises Untrusted for a database that the user does not trust: a stranger's file must not choose one.
    """
    imports.require_asked(outside_of(table))
    return build(table)


def outside_of(table: Any) -> dict[str, Outside]:
    """Return the addresses that a table names, by their places in it."""
    return config.named(dict(flatten(checked(table), f"{SEARCH}.")), options_of(table))


def build(table: Any) -> Search:
    """Return the search of a table as `read`, where the user has written it in Python."""
    search: Search = config.build_part(SEARCHES, checked(table), SEARCH)
    return search


def to_table(search: Search) -> Config:
    """Return the table of a search: the inverse of `read`. Raises ConfigError for numbers out of range."""
    if not isinstance(search, Search):
        raise ConfigError(f"search = {search!r}: must be a search, as ppax.sweeps.Halving(), or a table of its options")
    table = config.describe_part(search, SEARCHES)
    build(table)  # a class without an import path cannot be read again
    return table


def checked(table: Any) -> Config:
    """Return a table; ConfigError for what is none."""
    if not isinstance(table, dict):
        remedy = f"; write {SEARCH}.part = {table!r}" if isinstance(table, str) else ""
        raise ConfigError(f"{SEARCH} = {table!r}: must be a table, [{SEARCH}]{remedy}")
    return table
