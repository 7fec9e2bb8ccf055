"""Options: fields of parts as settings with a dotted path, whose values are checked when a configuration is read.

A part is a swappable component, such as an agent's loss: a frozen dataclass.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from ppax.core import imports, unknown_names
from ppax.core.parts import Table, name_of
from ppax.core.types import ConfigError

Config = dict[str, Any]
# Keys of the metadata of a field
LIMITS = ("low", "high", "above", "choices", "paths", "words", "outside", "interval", "bounds", "code", "switch")
NONE = "none"  # spelling of None in TOML and on the command line
EMPTY = "[]"  # spelling of an empty list on the command line
DEEPEST = 32  # limit of nested tables; a run needs four
SMALLEST, LARGEST = 1.1754944e-38, 3.4028234e38  # normal numbers of float32, in which programs compute
LISTS = ("log.to",)  # lists of tables, a table for each part; paths have its place in the list, as log.to.0.part


class Option(NamedTuple):
    """Setting of a configuration: its dotted path, type, default, description and limits."""

    path: str
    kind: type  # int, float, bool or str; Table for a table with free names
    many: bool = False  # a list of values
    optional: bool = False  # None is allowed
    default: Any = None
    doc: str = ""
    limits: Mapping[str, Any] = MappingProxyType({})
    leaf: bool = False  # a number of a part; with independent agents it may be a list, one value per player
    none: str = NONE  # further spelling of None, for options where it means no limit


@functools.cache  # evaluates the text of every annotation
def hints_of(cls: type) -> Mapping[str, Any]:
    """Return the types of the fields of a part (a frozen dataclass of settings), by the field's name.

    If an annotation cannot be evaluated, all types are those of the fields' defaults.
    """
    try:
        return typing.get_type_hints(cls)
    except Exception:  # e.g. a name that is imported for type checkers only
        return {field.name: type(field.default) for field in dataclasses.fields(cls)}


@functools.cache  # resolving a configuration asks for those of each part, and a sweep resolves one for each member
def options_of(cls: type) -> Mapping[str, Option]:
    """Return the options among the fields of a part's class, by the field's name, with "" as their paths.

    A part is a swappable component, such as an agent's loss: a frozen dataclass of settings.
    """
    hinted = ((field, hints_of(cls)[field.name]) for field in dataclasses.fields(cls))
    return {field.name: option_of(field, hint, "") for field, hint in hinted if is_option(field, hint)}


def is_option(field: dataclasses.Field[Any], hint: Any) -> bool:
    """Return whether a field of a part is a setting: a number, boolean or text (or a list of them) with a default.

    A part is a swappable component, such as an agent's loss; `hint` is the field's type.
    """
    default = field.default
    if default is dataclasses.MISSING or "named" in field.metadata:  # set from the environment, or by the table's name
        return False
    if field.metadata.get("static"):
        return option_of(field, hint, "").kind in (bool, int, float, str, Table)
    args = typing.get_args(hint)
    is_number = isinstance(default, int | float) and not isinstance(default, bool)
    return is_number or float in args or typing.get_origin(hint) is tuple


def option_of(field: dataclasses.Field[Any], hint: Any, path: str) -> Option:
    """Return a field of a part (a dataclass of settings) as an Option of the type `hint`, at the dotted `path`."""
    optional = many = False
    kind: Any = float
    if field.metadata.get("static"):
        optional = type(None) in typing.get_args(hint)
        hint = next(h for h in typing.get_args(hint) if h is not type(None)) if optional else hint
        if typing.get_origin(hint) is tuple:
            many, hint = True, typing.get_args(hint)[0]
        kind = hint
    else:
        optional, many = type(None) in typing.get_args(hint), typing.get_origin(hint) is tuple
    limits = {name: field.metadata[name] for name in LIMITS if name in field.metadata}
    leaf = not field.metadata.get("static") and not many
    return Option(
        path=path,
        kind=kind,
        many=many,
        optional=optional,
        default=field.default,
        doc=field.metadata.get("doc", ""),
        limits=limits,
        leaf=leaf,
        none=field.metadata.get("none", NONE),
    )


def check_value(option: Option, value: Any, each: bool = False) -> Any:
    """Return `value` converted to the option's type; raise ConfigError, with the nearest valid value, if it is invalid.

    With `each`, a number may also be a list with one value per player (an agent inside a multi-agent environment).
    """
    value = plain_data(value)
    if option.kind is Table:
        if not isinstance(value, dict):
            raise ConfigError(f"{option.path} = {value!r}: must be a table, [{option.path}]")
        return dict(value)
    if option.limits.get("code") and value and not imports.is_path(value):
        raise ConfigError(f'{option.path} = {value!r}: must be an import path, as "my_package.module:Name"')
    if option.leaf and isinstance(value, list | tuple):
        if not each:
            raise ConfigError(
                f"{option.path} = {value!r}: must be one number; a list has one for each player, "
                'which takes agents = "independent"'
            )
        return [check_value(option._replace(optional=False), x) for x in value]
    if option.optional and value in (None, NONE, option.none, [NONE], [option.none]):  # a list of words is argparse's
        return None
    if isinstance(value, str):
        value = option.limits.get("words", {}).get(value, value)
    if option.limits.get("names") and not option.many and isinstance(value, str) and value:  # one of a list of names
        return value
    if option.limits.get("switch") and isinstance(value, bool):
        return value
    if option.limits.get("interval") and isinstance(value, str):
        value = interval(option.path, value)
        if isinstance(value, str):
            return value
    if option.limits.get("bounds"):
        return bounds(option.path, value)
    if option.many:
        if value == [EMPTY]:  # a list of words is argparse's
            return []
        if not isinstance(value, list | tuple):
            named = option.limits.get("names") and isinstance(value, str)
            remedy = f" or names; nearest valid value: {[value]}" if named else ""
            raise ConfigError(f"{option.path} = {value!r}: must be a list of {option.kind.__name__}{remedy}")
        return [check_value(option._replace(many=False), x) for x in value]
    if option.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    if not isinstance(value, option.kind) or (option.kind is int and isinstance(value, bool)):
        words = [*((option.none,) if option.optional else ()), *option.limits.get("words", ())]
        others = "".join(f" or {word!r}" for word in words)
        others += " or true or false" if option.limits.get("switch") else ""
        choices = option.limits.get("choices")
        if option.kind is str and choices:
            # true: the default, which does what the option is for; false: off
            off = next((word for word in ("off", NONE) if word in choices), None)
            near = off if value is False and off else option.default
            near = f"; nearest: {near}" if near in choices else ""
            raise ConfigError(f"{option.path} = {value!r}: must be one of {', '.join(choices)}{others}{near}")
        whole = option.kind is int and isinstance(value, float) and value.is_integer()
        near = f"; nearest valid value: {int(value)}" if whole else ""
        raise ConfigError(f"{option.path} = {value!r}: must be of type {option.kind.__name__}{others}{near}")
    return check_limits(option.path, value, {**option.limits, "default": option.default})


INTERVAL = re.compile(r"(\d[\d_,]*(?:\.\d+)?(?:e\d{1,2})?)\s*([kM]?)\s*(steps?|iterations?)")


def interval(path: str, text: str) -> int | str:
    """Return the interval that `text` says: a number of iterations, or for "50k steps" the text "50000 steps".

    Raises ConfigError, which names the option `path`, for any other text.
    """
    found = INTERVAL.fullmatch(text.strip())
    # exact, as in floating point 16.1 times 1000 is no whole number
    number = Fraction(0)
    if found is not None:
        number = Fraction(re.sub("[_,]", "", found[1])) * {"": 1, "k": 1000, "M": 1_000_000}[found[2]]
    if found is None or number.denominator != 1 or not 1 <= number < 2**53:
        raise ConfigError(f'{path} = {text!r}: must be a whole number of iterations, or of steps, as "50k steps"')
    return f"{int(number)} steps" if found[3].startswith("step") else int(number)


def bounds(path: str, value: Any) -> list[float]:
    """Return the bounds [low, high] that `value` says: two numbers, or one number x for [-x, x].

    Raises ConfigError, which names the option `path`, for anything else.
    """
    given = list(value) if isinstance(value, list | tuple) else [value]
    if any(isinstance(x, bool) or not isinstance(x, int | float) for x in given) or len(given) not in (1, 2):
        raise ConfigError(f"{path} = {value!r}: must be two numbers, [low, high], or one number x for [-x, x]")
    if len(given) == 1:
        check_limits(path, float(given[0]), {"above": 0.0})
        return [-float(given[0]), float(given[0])]
    low, high = (check_limits(path, float(x), {}) for x in given)  # finite
    if not low < high:
        nearest = f"; nearest valid value: [{high:g}, {low:g}]" if high < low else ""
        raise ConfigError(f"{path} = [{low:g}, {high:g}]: must be [low, high] with low below high{nearest}")
    return [low, high]


def require_whole(given: Any, name: str, low: int | None = 1, high: int | None = None) -> None:
    """Raise ConfigError unless the argument `name` of a function is a whole number from `low` to `high`.

    None is no limit.
    """
    value = given.item() if getattr(given, "ndim", None) == 0 else given  # a number of NumPy or JAX
    check_value(Option(name, int, limits={"low": low, "high": high}), value)


def require_group_name(name: object) -> None:
    """Raise ConfigError unless a group of agents can have the `name` in run files and in the names of saved arrays."""
    text = str(name)
    if any(sign in text for sign in ".=") or not text:
        valid = text.replace(".", "_").replace("=", "_") or "group"
        raise ConfigError(
            f"groups.{name!r}: a group's name has no dot and no equals sign, and is not empty; nearest valid value: "
            f"{valid!r}"
        )


def check_limits(path: str, value: Any, limits: Mapping[str, Any]) -> Any:
    """Return `value` if it is within `limits`; else raise ConfigError with `path` and the nearest valid value.

    `limits` may have `low`, `high`, `above` and `choices`; those that are missing do not limit.
    """
    choices, low, high, above = (limits.get(name) for name in ("choices", "low", "high", "above"))
    if choices is not None and value not in choices and not (limits.get("paths") and imports.is_path(value)):
        nearest = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.0)[0]
        on = str(value).lower() in ("true", "on", "yes", "1")  # not "off", which is the most similar word
        nearest = limits["default"] if on and limits.get("default") in choices else nearest
        raise ConfigError(f"{path} = {value!r}: must be one of {', '.join(choices)}; nearest: {nearest}")
    if isinstance(value, str | bool):
        return value
    if isinstance(value, float) and value != 0 and not SMALLEST <= abs(value) <= LARGEST:  # NaN, too
        raise ConfigError(f"{path} = {value}: must be a finite number: 0, or {SMALLEST:.2g} to {LARGEST:.2g} in size")
    if above is not None and value <= above:
        raise ConfigError(f"{path} = {value}: must be above {above:g}")
    if low is not None and value < low:
        raise ConfigError(f"{path} = {value}: must be at least {_exact(low)}; nearest valid value: {_exact(low)}")
    if high is not None and value > high:
        raise ConfigError(f"{path} = {value}: must be at most {_exact(high)}; nearest valid value: {_exact(high)}")
    if isinstance(value, int) and value >= 2**64:
        raise ConfigError(f"{path}: must be below 2^64; nearest valid value: 2^64 - 1")
    return value


def _exact(limit: float) -> str:
    return str(limit) if isinstance(limit, int) else f"{limit:g}"


def check_numbers(part: Any, path: str = "agent") -> None:
    """Raise ConfigError for a value of another type than declared, or out of range, in a part or the parts inside it.

    A part is a swappable component, such as an agent's loss. Tracers are not checked. `path` names the part in the
    error.
    """
    if isinstance(part, type):  # a class, such as the distribution family of a head
        return
    if isinstance(part, Mapping):
        for name, inner in part.items():
            check_numbers(inner, f"{path}[{name!r}]")
        return
    kind: Any = type(part)
    for field in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
        value, where = getattr(part, field.name), f"{path}.{field.name}"
        limits = {name: field.metadata[name] for name in LIMITS if name in field.metadata}
        value = dict(value) if "slot_table" in field.metadata else value
        if "slot_chain" in field.metadata:
            for one in value:
                if not dataclasses.is_dataclass(one) or not hasattr(one, "name"):
                    raise ConfigError(
                        f"{where}: {one!r} is no part, such as ppax.extensions.RND(); its name is not enough"
                    )
                check_numbers(one, f"{where}.{name_of(one)}")
            continue
        if field.metadata:
            _check_type(where, value, field, hints_of(kind)[field.name])
        if dataclasses.is_dataclass(value) or isinstance(value, Mapping):
            check_numbers(value, where)
        elif limits and not isinstance(value, jax.core.Tracer):
            # sweeps and independent players have an array of values
            for one in _numbers_in(value):
                check_limits(where, one, limits)


# Entries of the metadata of fields that take values of further types, or whose values are checked elsewhere
FREE = ("interval", "switch", "words", "bounds", "code", "convert", "outside", "choices", "slot", "slot_table")


def _check_type(path: str, value: Any, field: dataclasses.Field[Any], hint: Any) -> None:
    """Raise ConfigError if the value of a part's field is of another type than `hint`, the field's annotation.

    Refused are one value where a tuple is needed, a text where a number is needed, and other types in static fields of
    type bool, int, float or str. A value of the default's type is accepted, as an annotation may be wrong.
    """
    if value is None or type(value) is type(field.default) or any(name in field.metadata for name in FREE):
        return
    kind = next((x for x in typing.get_args(hint) if x is not type(None)), hint) if _optional(hint) else hint
    if typing.get_origin(kind) is tuple and isinstance(value, str | int | float):
        raise ConfigError(f"{path} = {value!r}: must be a tuple; nearest valid value: {(value,)!r}")
    if not field.metadata.get("static"):
        if isinstance(value, str):
            raise ConfigError(f"{path} = {value!r}: must be a number")
        return
    if getattr(value, "shape", None) == () and not isinstance(value, jax.core.Tracer):
        value = value.item()  # a number of NumPy
    if kind not in (bool, int, float, str) or type(value) is kind or (kind is float and type(value) is int):
        return
    if kind is str and isinstance(value, str):
        return
    whole = kind is int and isinstance(value, float) and value.is_integer()
    nearest = f"; nearest valid value: {int(value)}" if whole else ""
    raise ConfigError(f"{path} = {value!r}: must be of type {kind.__name__}{nearest}")


def _optional(hint: Any) -> bool:
    return type(None) in typing.get_args(hint)


def _numbers_in(value: Any) -> Iterator[Any]:
    """Yield `value`, or each element of an array or of nested lists and tuples; None and tracers are left out.

    The elements are numbers, bools or texts, which are then compared with the limits of an option one by one.
    """
    value = plain_data(value)
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _numbers_in(inner)
    elif value is not None and not isinstance(value, jax.core.Tracer):
        yield value


def free_tables(known: Iterable[Option]) -> tuple[str, ...]:
    """Return the prefixes of paths under which any name is an option, such as "agent.network.arguments.".

    They are the paths in `known` of tables whose keys the user chooses, each with a dot.
    """
    return tuple(f"{option.path}." for option in known if option.kind is Table)


def nearest(path: str, known: Collection[str]) -> str:
    """Return the known option that a user probably meant by the unknown option `path`, a dotted path.

    Candidates are the options that have the meaning of the last component of `path` in another library. If there are
    none, the candidates are the options with the same last component; if there are none of these either, all options.
    The candidate whose spelling is most similar to `path` is returned.

    If the table that contains `path` ("agent.loss" of "agent.loss.clip") has known options, options with the same last
    component are candidates only if they are outside of all tables or in the same outermost table ("agent"); if none
    is, the candidates are the options of the table.
    """
    table, _, own = path.rpartition(".")
    row = unknown_names.meaning(own)
    same = [other for other in known if row and row.option and f".{other}".endswith(f".{row.option}")]
    name = own if row is None or row.name == "part" else row.name
    namesakes = same or [other for other in known if other.rpartition(".")[2] == name]
    siblings = [other for other in known if table and other.rpartition(".")[0] == table]
    if siblings and not same:
        first = path.partition(".")[0]
        namesakes = [other for other in namesakes if other.partition(".")[0] in (first, other)] or siblings
    return difflib.get_close_matches(path, namesakes or known, n=1, cutoff=0.0)[0]


def meant(path: str, known: Collection[str], written: Callable[[str, str], str]) -> str:
    """Return the end of the error for an unknown option `path`: what to write instead.

    `known` are the options that exist. `written(option, value)` returns the text with which the user sets an option to
    a value; the value is "" where it is not known.
    """
    row, option = unknown_names.meaning(path.rpartition(".")[2]), nearest(path, known)
    if row and row.option.startswith("agent.extensions."):  # an option of a table that may not be there yet
        return f"; did you mean {written(row.option, row.value)}{row.difference}?"
    if row and not row.option:
        return f"; write {row.in_python} in Python"
    if row and f".{option}".endswith(f".{row.option}"):
        return f"; did you mean {written(option, row.value)}{row.difference}?"
    return f"; did you mean {written(option, '')}?"


def flatten(config: Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of every value in the nested tables `config`; an empty table is a value, too.

    Each path begins with `prefix`. Arrays and numbers of NumPy and JAX are yielded as Python's.
    """
    _require_shallow(prefix)
    for name, given in config.items():
        if not isinstance(name, str):
            raise ConfigError(f"{prefix}{name!r}: names of options and parameters must be text")
        value = plain_data(given)
        if prefix + name in LISTS:
            value = numbered(value)
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def plain_data(value: Any) -> Any:
    """Return a value with Python numbers and lists in place of arrays, also inside of tables, lists and tuples.

    Traced arrays, random keys and objects of other types are returned unchanged.
    """
    if isinstance(value, Mapping):
        return {name: plain_data(x) for name, x in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(plain_data, value))
    if not hasattr(value, "tolist") or isinstance(value, jax.core.Tracer):
        return value
    is_key = isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key)
    return value if is_key else value.tolist()


def laid_over(values: Config, own: Config) -> Config:
    """Return the configuration `values` overridden by `own`; arguments and result are flat dicts by dotted path.

    An empty table or list of `values` is left out if `own` has entries inside it. An empty table of `own` is left out
    if `values` has entries inside it, which stay; an empty list of `own` removes these entries.
    """

    def inside(path: str, others: Config) -> bool:
        return any(other.startswith(f"{path}.") for other in others)

    removed = tuple(f"{path}." for path, x in own.items() if x == [])
    kept = {path: x for path, x in values.items() if not path.startswith(removed)}
    kept = {path: x for path, x in kept.items() if not (x in ({}, []) and inside(path, own))}
    return kept | {path: x for path, x in own.items() if not (x == {} and inside(path, kept))}


def numbered(value: Any) -> Any:
    """Return a list of tables as one table with the keys "0", "1", ..., for dotted paths; any other value unchanged."""
    if isinstance(value, list) and value and all(isinstance(table, dict) for table in value):
        return {str(place): table for place, table in enumerate(value)}
    return value


def _require_shallow(path: str) -> None:
    if path.count(".") > DEEPEST:
        raise ConfigError(f"{path[:60]}...: {path.count('.')} nested tables; must be at most {DEEPEST}")


def unflatten(values: dict[str, Any]) -> Config:
    """Return the nested tables of values by dotted path: the inverse of `flatten`."""
    config: Config = {}
    for path, value in values.items():
        _require_shallow(path)
        *sections, name = path.split(".")
        table = config
        for place, section in enumerate(sections):
            table = table.setdefault(section, {})
            if not isinstance(table, dict):
                outer = ".".join(sections[: place + 1])
                raise ConfigError(f"{outer} = {table!r}: a value, where {path} = {value!r} needs a table; give one")
        # a copy: the caller's empty table must not be filled
        table[name] = {} if isinstance(value, dict) and not value else value
    for path in LISTS:
        _to_list(config, path.split("."))
    return config


def _to_list(config: Config, path: list[str]) -> None:
    """Turn the numbered tables of `config` at `path`, "0", "1", ..., back into a list, in place."""
    table = config.get(path[0])
    if not isinstance(table, dict):
        return
    if len(path) > 1:
        _to_list(table, path[1:])
    elif table and all(place.isdecimal() for place in table):
        config[path[0]] = [table[place] for place in sorted(table, key=lambda place: (len(place), place))]
