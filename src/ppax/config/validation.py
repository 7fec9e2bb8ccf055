"""Options of a configuration, made from the fields of the parts that it names, and the checks of their values.

A configuration is a nested dict, as in TOML. Name, type, default, limits and help of an option stand at the field
(`number`, `static` in parts.py); a part is chosen by its name: `[agent.advantage] part = "gae"`. Checks run before
anything compiles.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ppax.config import group_tables
from ppax.config.catalogue import AGENT, CHAIN, LIST, ONE, PARTS, Choices, PartField, part_fields
from ppax.config.run_settings import Run
from ppax.config.user_parts import require_trusted_parts, without_parts
from ppax.core import imports, unknown_names
from ppax.core.options import (
    Config,
    Option,
    check_value,
    flatten,
    free_tables,
    hints_of,
    laid_over,
    meant,
    numbered,
    options_of,
    unflatten,
)
from ppax.core.types import ConfigError, printable

# Key that lists the Python objects that a run file cannot hold (run/python_objects.py); `fit` writes it.
OBJECTS = "objects"
SWEEP, SEARCH = "sweep", "search"  # keys of the tables that only `ppax sweep` reads (sweeps/plan.py)
GROUP = re.compile(r"\bgroups\.[^.\s]+\.agent\.")  # the table of a group's agent
# Tables with free names, which the environment checks; those of parts are fields of type `Table`
FREE = ("env_params", "eval.env_params")


class WrongTable(ConfigError):
    """ConfigError for a value at `path` that should be a table and is none, or a table that names an unknown part.

    A part is a swappable object, such as a loss. Which options there are below `path` is then unknown.
    """

    def __init__(self, path: str, text: str):
        super().__init__(text)
        self.path = path


def options(config: Config) -> Iterator[Option]:
    """Yield every option of a run and of the parts that `config` names; raise ConfigError for an unknown part name.

    A part is a swappable object, such as a loss. Raises Untrusted, before anything is imported, for names of code that
    the user does not trust.
    """
    require_trusted_parts(config, parts_only=True)
    yield from _options(Run, config, "")
    yield from part_options(AGENT, _table(config, "agent", "agent", ".part"), "agent")
    for name, table in group_tables.tables(config).items():
        yield from group_tables.own_options(name)
        place = f"groups.{name}.agent"
        yield from part_options(AGENT, _table(table, "agent", place, ".part"), place)


def _options(cls: type, config: Config, prefix: str) -> Iterator[Option]:
    hints, of_parts = hints_of(cls), part_fields(cls)
    for field in dataclasses.fields(cls):
        path = prefix + field.name
        if field.name in of_parts:
            yield from _options_of_parts(of_parts[field.name], field, config, path)
        elif is_section(hints[field.name]):
            yield from _options(hints[field.name], _table(config, field.name, path), path + ".")
        elif path not in FREE and field.name in options_of(cls):
            yield options_of(cls)[field.name]._replace(path=path)


def _options_of_parts(held: PartField, field: dataclasses.Field[Any], config: Config, path: str) -> Iterator[Option]:
    """Yield the options of the parts (swappable objects) that the field at dotted path `path` holds.

    `held` says in which way it holds them, and `config` is the table around the field.
    """
    choices = held.choices
    if held.holds == ONE:
        yield from part_options(choices, _table(config, field.name, path, ".part"), path)
    elif held.holds == LIST:
        yield from _list_options(field, choices, config.get(field.name, []), path)
    elif held.holds == CHAIN:
        given = _named_tables(config.get(field.name, []), path)
        if not given:
            yield _no_parts(field, choices, path)
        for key in given:
            place = f"{path}.{key}"
            yield from part_options(choices, _table(given, key, place, ".part"), place, key)
    else:
        for key, table in keyed_tables(_table(config, field.name, path), path):
            yield from part_options(choices, table, f"{path}.{key}")


def _no_parts(field: dataclasses.Field[Any], choices: Choices, path: str) -> Option:
    """Return an option whose value is the empty list of parts at `path`; its limits name the parts that may be listed.

    Through it, a complete configuration, which has a value for every option, contains the empty list, too. A part is a
    swappable object, such as a logger.
    """
    limits = {"choices": tuple(choices)}
    return Option(path, str, many=True, default=(), doc=field.metadata["doc"], limits=limits)


def part_options(choices: Choices, section: Config, path: str, default: str | None = None) -> Iterator[Option]:
    """Yield the options of one part, whose table is `section` at dotted path `path`; the first is its name, `part`.

    A part is a swappable object, such as a loss. A table without a name is that of the part `default` (None: the first
    of `choices`).
    """
    default = next(iter(choices), "") if default is None else default
    part = Option(f"{path}.part", str, default=default, doc="name of the part")
    name = section.get("part", default)
    cls = _part_class(choices, part, name)
    yield part._replace(limits={"choices": tuple(dict.fromkeys((*choices, name))), "kind": choices.kind})
    yield from _options(cls, section, path + ".")


def keyed_tables(tables: Config, path: str) -> Iterator[tuple[str, Config]]:
    """Yield (key, table) of each part in a table of parts; the key of a nested entry has dots, as "sensors.camera".

    A part is a swappable object, such as an encoder. Raises WrongTable, with the dotted path `path` of the outer table,
    for an entry that is no table.
    """
    for key, table in tables.items():
        if not isinstance(table, dict):
            text = f'{path}.{key} = {table!r}: must be a table, [{path}.{key}] part = "..."'
            raise WrongTable(f"{path}.{key}", text)
        if isinstance(table.get("part"), str) or not any(isinstance(inner, dict) for inner in table.values()):
            yield key, table
        else:
            yield from ((f"{key}.{inner}", one) for inner, one in keyed_tables(table, f"{path}.{key}"))


def _named_tables(given: Any, path: str) -> Config:
    """Return the tables of parts by name, {} for an empty list; WrongTable for anything else and for invalid names.

    A part is a swappable object, such as an extension. `path` is the dotted path of `given`.
    """
    if given in ([], ()):
        return {}
    if not isinstance(given, dict):
        names = given if isinstance(given, list) else str(given).split(",")
        tables = " and ".join(f"[{path}.{name}]" for name in names)
        raise WrongTable(path, f"{path} = {given!r}: must be a table for each, {tables}, which may be empty")
    for name in given:
        if not name.isidentifier():
            text = f"{path}.{name!r}: the name must be letters, digits and underscores, as [{path}.rnd_2]"
            raise WrongTable(f"{path}.{name}", text)
    return given


def _list_options(field: dataclasses.Field[Any], choices: Choices, given: Any, path: str) -> Iterator[Option]:
    """Yield the options of each part in the list `given`, whose dotted path is `path`; one option for an empty list.

    A part is a swappable object, such as a logger.
    """
    tables = numbered(given)
    if tables in ([], ()):
        yield _no_parts(field, choices, path)
        return
    if not isinstance(tables, dict) or not all(
        place.isdecimal() and isinstance(table, dict) for place, table in tables.items()
    ):
        text = f'{path} = {given!r}: must be a list of tables, [[{path}]] part = "{next(iter(choices))}"'
        raise WrongTable(path, text)
    for place, table in tables.items():
        yield from part_options(choices, table, f"{path}.{place}", "")


def _part_class(choices: Choices, option: Option, given: Any) -> type:
    """Return the class of the part (a swappable object) called `given`, which `option` names.

    Raises WrongTable for an unknown name; its message also tells the user how to write a part.
    """
    try:
        return choices.find(check_value(option, given), option.path)
    except imports.Untrusted:
        raise
    except ConfigError as error:
        text = f'{error}; for a part of your own see the page "Write a part of your own"'
        if isinstance(given, str) and not imports.is_path(given) and re.search(r"\w[./\\]\w", given):
            *module, name = re.split(r"[.:/\\]+", re.sub(r"\.py(?=[.:]|$)", "", given))
            text = f"{error}; a part of your own has an import path, {'.'.join(module)}:{name}"
        raise WrongTable(option.path.rpartition(".")[0], text) from error


def is_section(hint: Any) -> bool:
    """Return True if a field of type `hint` is a table of fixed options, such as `[log]`, and names no part.

    A part is a swappable object, such as a loss, that a table chooses by its name.
    """
    return dataclasses.is_dataclass(hint)


def _table(config: Config, name: str, path: str, key: str = "") -> Config:
    """Return the table `name` of `config`, {} by default; WrongTable where it is no table.

    `path` is its dotted path. `key`, such as ".part", is the option in it for which a string was probably meant, for
    the error message.
    """
    section: Config = config.get(name, {})
    if not isinstance(section, dict):
        remedy = f"; write {path}{key} = {section!r}" if key and isinstance(section, str) else ""
        raise WrongTable(path, f"{path} = {section!r}: must be a table, [{path}]{remedy}")
    return section


def resolve(config: Config) -> Config:
    """Return a configuration with every option: given values checked, defaults for the others.

    Raises ConfigError with all unknown options and invalid values at once; Untrusted, before anything is imported, for
    names of code that the user does not trust.
    """
    require_trusted_parts(config, parts_only=True)
    config = group_tables.with_inherited(config)
    problems: list[str] = []
    known, config = _known(config, problems)
    given = {path: x for path, x in flatten(config) if x != {} or path in known or not _is_table(path, known)}
    # a table of parts without one, as [agent.extensions] alone, is an empty list
    given = {path: [] if x == {} and path in known and known[path].many else x for path, x in given.items()}
    objects = {OBJECTS: given.pop(OBJECTS)} if given.get(OBJECTS) else {}
    tables = free_tables(known.values())
    free = {path: value for path, value in given.items() if is_free(path, tables)}
    for path in given:
        if path.partition(".")[0] in (SWEEP, SEARCH):
            problems.append(f"{path}: the table [{path.partition('.')[0]}] is of `ppax sweep`, not of one run")
        elif path in FREE:
            problems.append(f"{path} = {given[path]!r}: must be a table, [{path}]")
        elif path not in known and path not in free:
            problems.append(_unknown(path, known))
    per_agent = group_tables.independent_tables(config)  # prefixes of tables whose numbers may be lists, one per agent
    values = dict(_checked_values(known, given, per_agent, problems))
    _raise(problems)
    return unflatten(values | free) | objects


def _known(config: Config, problems: list[str]) -> tuple[dict[str, Option], Config]:
    """Return the options of a configuration by path, and the configuration without entries that are no proper tables.

    The error message of each entry that is left out is added to `problems`.
    """
    while True:
        try:
            return {option.path: option for option in options(config)}, config
        except WrongTable as error:
            problems.append(str(error))
            left = {place: x for place, x in flatten(config) if not f"{place}.".startswith(f"{error.path}.")}
            if len(left) == len(dict(flatten(config))):  # not of the configuration: nothing to leave out
                raise
            config = unflatten(left)


def _checked_values(
    known: Mapping[str, Option], given: Config, per_agent: Collection[str], problems: list[str]
) -> Iterator[tuple[str, Any]]:
    """Yield path and checked value of every option in `known`: the one in `given`, else the default.

    Tables whose path prefix is in `per_agent` may have lists of numbers, one per player (agent inside the environment).
    The error messages of invalid values are added to `problems`, and their options left out.
    """
    for path, option in known.items():
        try:
            each = any(path.startswith(f"{table}agent.") for table in per_agent)
            yield path, check_value(option, given.get(path, option.default), each)
        except ConfigError as error:
            problems.append(str(error))


def _raise(problems: Sequence[str]) -> None:
    """Raise ConfigError with all problems, if there are any: one as it is, several as a list.

    An error in the table [agent] recurs in every group that inherits it, and is listed once.
    """
    faults = {one: one.partition(";")[0] for one in problems}  # without the remedy, which names options of the group
    inherited = {one: GROUP.sub("agent.", fault) for one, fault in faults.items()}
    found = [one for one in faults if faults[one] == inherited[one] or inherited[one] not in faults.values()]
    if len(found) == 1:
        raise ConfigError(found[0])
    if found:
        raise ConfigError("\n  ".join((f"{len(found)} errors in the settings:", *found)))


def other_parts(path: str, known: Mapping[str, Option]) -> list[str]:
    """Return the names of parts that could be chosen in the same table and have the option `path`; [] if none has.

    It is for the error about an option that the chosen part lacks. A part is a swappable object, such as a loss.
    """
    table, _, name = path.rpartition(".")
    part = known.get(f"{table}.part")
    choices = {} if part is None else PARTS.get(part.limits.get("kind", ""), {})
    return [choice for choice, cls in choices.items() if unknown_names.own_name(name) in options_of(cls)]


def _unknown(path: str, known: Mapping[str, Option]) -> str:
    """Return the error text for the unknown option `path`, with the likely remedy."""
    parts = other_parts(path, known)
    if parts:
        return f"unknown option {path!r}: {path.rpartition('.')[0]}.part must be {' or '.join(map(repr, parts))} for it"
    if table := unknown_names.extension_of(path):
        return f"unknown option {path!r}: it is an extension, write {table}"
    remedy = meant(path, known, lambda option, value: f"{option!r} = {value!r}" if value else repr(option))
    return f"unknown option {path!r}{remedy}"


def _is_table(path: str, known: Iterable[str]) -> bool:
    return path in FREE or any(option.startswith(f"{path}.") for option in known)


def resolve_part(choices: Choices, table: Config, path: str) -> Config:
    """Return the table of a part outside a run's configuration with all its options: checked values, else defaults.

    A part is a swappable object, such as the search of a sweep. `path` is the dotted path of the table, for error
    messages.
    """
    require_trusted_parts({path: table}, parts_only=True)
    known = {option.path: option for option in part_options(choices, table, path)}
    given = dict(flatten(table, f"{path}."))
    free = {own: x for own, x in given.items() if is_free(own, free_tables(known.values()))}
    problems = [_unknown(own, known) for own in given if own not in known and own not in free]
    values = dict(_checked_values(known, given, (), problems)) | free
    _raise(problems)
    return unflatten({own.removeprefix(f"{path}."): value for own, value in values.items()})


def overridden(base: Config, changes: Config) -> Config:
    """Return `base` with the values of `changes`; if one chooses another part, the replaced part's options are removed.

    A part is a swappable object, such as a loss. If `changes` choose an agent of another class, the options that all
    agents have are not removed.
    """
    flat, own = dict(flatten(base)), dict(flatten(changes))
    parts = {option.path: option.default for option in options(base) if option.path.endswith(".part")}
    others = [path for path in own if path in parts and flat.get(path, parts[path]) != own[path]]
    return unflatten(laid_over(without_parts(flat, others), own))


def objects_of(config: Config) -> list[str]:
    """Return the dotted paths, listed at key `objects`, of Python objects that the run file could not hold.

    Raises ConfigError unless they are a list of strings.
    """
    places = config.get(OBJECTS, [])
    if not isinstance(places, list) or not all(isinstance(place, str) for place in places):
        raise ConfigError(f"{OBJECTS} = {places!r}: must be a list of strings")
    return list(map(printable, places))  # messages quote them


def is_free(path: str, tables: tuple[str, ...] = ()) -> bool:
    """Return whether the option `path` is in a table whose keys the user names, so that it is not checked here.

    Parameters of the environment are such options, and so are those in `tables`, the result of
    `core.options.free_tables`.
    """
    return path.startswith((*(f"{name}." for name in FREE), *tables))
