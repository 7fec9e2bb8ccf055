"""Names of an environment's parameters: numbers in its parts, nested structures and wrappers.

A name is that of the field, such as `gravity`; where several have it, the outermost one, and the others are reached by
their dotted paths, such as `cart.gravity`. Fields called `env` and `params`, of wrappers and suites, are left out of
paths. Dotted paths are always understood.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.options import Option, hints_of, nearest, option_of
from ppax.core.types import ConfigError

ParameterPath = tuple[Any, ...]  # names of fields, keys of mappings, indices of sequences
Value = Any  # a number or a string, or {"low": number, "high": number}
# time limits of gymnax and Craftax, replaced by `max_steps` of TimeLimit
HIDDEN = ("max_steps_in_episode", "max_timesteps")
PASSED = ("env", "params")  # fields that are left out of dotted paths


class Parameter(NamedTuple):
    """Parameter of an environment: its path, its type and limits, and whether it is static (compiled in)."""

    path: ParameterPath
    option: Option
    is_static: bool

    @property
    def dotted(self) -> str:
        """Dotted path of this parameter, without wrappers and suites, such as "cart.gravity"."""
        return _option_path(self.path).partition(".")[2]


class Item(NamedTuple):
    """Entry of an environment's part or of another structure: its key, value and declaration."""

    key: Any
    value: Any
    field: dataclasses.Field[Any] | None  # None: an entry of a mapping or sequence
    is_static: bool


def parameters(env: Any) -> dict[str, Parameter]:
    """Return every parameter of an environment, such as gravity, by its shortest name."""
    every = sorted(_parameters(env, (), False), key=lambda parameter: len(parameter.path))
    by_field: dict[str, list[Parameter]] = {}
    for parameter in every:
        by_field.setdefault(str(parameter.path[-1]), []).append(parameter)
    found: dict[str, Parameter] = {}
    for name, same in by_field.items():
        outermost = [parameter for parameter in same if len(parameter.path) == len(same[0].path)]
        for parameter in same:
            whole = ".".join(map(str, parameter.path))
            own = name if len(outermost) == 1 and parameter is same[0] else parameter.dotted
            found[whole if own in found else own] = parameter
    return {name: found[name] for name in sorted(found, key=lambda name: every.index(found[name]))}


def by_short_name(given: Mapping[str, Value], known: Mapping[str, Parameter]) -> dict[str, Value]:
    """Return parameters by their shortest names; `given` has them in nested tables or by dotted paths.

    The tables are nested like the environment. Names that are not in `known` stay as they are, with tables that have no
    number of `known` in them.
    """
    dotted = {parameter.dotted: name for name, parameter in known.items()}
    prefixes = {path.rpartition(".")[0] for path in dotted if "." in path}
    prefixes |= {".".join(path.split(".")[: i + 1]) for path in prefixes for i in range(path.count("."))}

    def walk(table: Mapping[str, Value], prefix: str) -> Iterator[tuple[str, Value]]:
        for key, value in table.items():
            path = prefix + key
            name = path if path in known else dotted.get(path)
            if name is None and isinstance(value, Mapping) and path in prefixes:
                yield from walk(value, f"{path}.")
            else:
                yield path if name is None else name, value

    return dict(walk(given, ""))


def unknown_parameter(name: str, known: Mapping[str, Parameter]) -> str:
    """Return the error message for a parameter `name` that is not in `known`."""
    path = f"env_params.{name}"
    if not known:
        remedy = "those of your own environment are fields of a ppax.part, declared with ppax.number or ppax.static"
        return f"unknown option {path!r}: this environment has no parameters; {remedy}"
    return f"unknown option {path!r}; did you mean {nearest(name, known)!r}? There are {', '.join(known)}"


def require_known(names: Mapping[str, Any], known: Mapping[str, Parameter]) -> None:
    """Raise ConfigError for the first of the parameters `names` that is not in `known`; nothing if all are."""
    for name in names:
        if name not in known:
            raise ConfigError(unknown_parameter(name, known))


def parameter_value(env: Any, name: str) -> Value:
    """Return the value of the environment's parameter `name`, as a Python number where it is an array []."""
    return plain_value(value_at(env, parameters(env)[name].path))


def value_at(thing: Any, path: ParameterPath) -> Any:
    """Return the entry of `thing`, nested parts and structures, at `path`."""
    for step in path:
        thing = next(entry.value for entry in _entries(thing) if entry.key == step)
    return thing


def put(thing: Any, path: ParameterPath, value: Any) -> Any:
    """Return a copy of `thing`, nested parts and structures, with the entry at `path` replaced by `value`."""
    step, *rest = path
    new = put(value_at(thing, (step,)), tuple(rest), value) if rest else value
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return dataclasses.replace(thing, **{step: new})
    if isinstance(thing, Mapping):
        return {**thing, step: new}
    entries = [new if entry.key == step else entry.value for entry in _entries(thing)]
    return type(thing)(*entries) if isinstance(step, str) else type(thing)(entries)


def plain_value(value: Any) -> Any:
    """Return an array [] as a Python number; everything else unchanged."""
    is_scalar = isinstance(value, np.ndarray | np.generic | Array) and value.ndim == 0
    return value.item() if is_scalar and not isinstance(value, jax.core.Tracer) else value


def _parameters(thing: Any, path: ParameterPath, in_static: bool) -> Iterator[Parameter]:
    """Yield the parameters in one structure of an environment, which is at `path`.

    Inside of a static field (`in_static`) only those that are declared count.
    """
    for key, value, field, is_static in _entries(thing):
        here, kind = (*path, key), _kind(value)
        chosen = None if field is None else field.metadata.get("parameters")
        if chosen == ():
            continue
        if kind is None:
            if not is_static or key == "env":
                inner = _parameters(value, here, in_static or is_static)
                yield from (parameter for parameter in inner if chosen is None or parameter.path[len(here)] in chosen)
        elif key in HIDDEN:
            continue
        elif field is not None and "doc" in field.metadata:
            option = option_of(field, hints_of(thing.__class__)[key], _option_path(here))
            yield Parameter(here, option if is_static else option._replace(kind=kind), is_static)
        elif not is_static and not in_static:  # without limits, as in structures of another library
            yield Parameter(here, Option(_option_path(here), kind, default=plain_value(value)), False)


def _entries(thing: Any) -> Iterator[Item]:
    """Yield the entries of a dataclass, mapping, NamedTuple, tuple or list; nothing for anything else."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        for field in dataclasses.fields(thing):
            yield Item(field.name, getattr(thing, field.name), field, bool(field.metadata.get("static")))
    elif isinstance(thing, Mapping):
        for key in thing:
            yield Item(key, thing[key], None, False)
    elif isinstance(thing, tuple | list):
        for key, value in zip(getattr(thing, "_fields", range(len(thing))), thing, strict=True):
            yield Item(key, value, None, False)


def _option_path(path: ParameterPath) -> str:
    return ".".join(["env_params", *(str(step) for step in path if step not in PASSED)])


def _kind(value: Any) -> type | None:
    """Return the type of a number or a string, also of a traced number; None for anything else."""
    if isinstance(value, jax.core.Tracer):
        kinds = ((jnp.bool_, bool), (jnp.integer, int), (jnp.floating, float))
        return next((one for dtype, one in kinds if value.ndim == 0 and jnp.issubdtype(value.dtype, dtype)), None)
    value = plain_value(value)
    return type(value) if isinstance(value, bool | int | float | str) else None
