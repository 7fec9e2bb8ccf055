"""Options of a run file for an environment that was made in Python: its import path, and its arguments and numbers."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium

from ppax.config.run_files import to_toml
from ppax.core import imports, untrusted
from ppax.core.options import Config
from ppax.envs import Env, TimeLimit, require_native
from ppax.envs.imported import LIMIT
from ppax.envs.wrappers import params
from ppax.envs.wrappers.parameter_names import parameters, plain, value_at
from ppax.training.backends import backend_of

ABSENT = object()  # default of an argument without one


def own_environment(env: Env) -> Config:
    """Return the options of a run file that name an environment of the user's by import path; {} where none can.

    A compiled environment is a frozen dataclass, with or without `TimeLimit`; what the options lack of it, as an array
    in a field, is found by `run/record.py`, which compares. Host environments are those of one class or function, which
    may be in a `functools.partial`; all its arguments must be such that a run file gives them back as they are.
    """
    if env.settings.by_name:
        return {}
    backend = backend_of(env)
    if backend.factories is None:
        found = _of_part(require_native(env, "", "").env)
    else:
        found = None if backend.source is None else _of_function(backend.source)
    if found is None:
        return {}
    path, arguments = found
    arguments = arguments | dict(env.settings.env_params)
    return {"env": path} | ({"env_params": arguments} if arguments else {})


def _of_function(source: Callable[..., Any]) -> tuple[str, Config] | None:
    """Return path and arguments of a class or function, or of a partial of one; None where no file can hold them."""
    values: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(source, functools.partial):  # those of a partial inside have been merged into it
        values, keywords, source = source.args, source.keywords, source.func
    path = imports.path_of(source)
    if source is gymnasium.make and values and isinstance(values[0], str):
        path, values = f"gymnasium/{values[0]}", values[1:]
    if path is None or (values and source is gymnasium.make):
        return None
    try:
        parameters = inspect.signature(source).parameters
        given = keywords if not values else inspect.signature(source).bind_partial(*values, **keywords).arguments
    except (TypeError, ValueError):  # a class in C without a signature, or arguments that it does not take
        return None
    arguments = {}
    for name, value in given.items():
        parameter = parameters.get(name)
        kind = inspect.Parameter.VAR_KEYWORD if parameter is None else parameter.kind
        if parameter is not None and kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            return None
        arguments[name] = as_data(value, ABSENT if parameter is None else parameter.default)
    return None if ABSENT in arguments.values() else (path, arguments)


def _of_part(env: Any) -> tuple[str, Config] | None:
    """Return path and parameters of a compiled environment; None unless it is a dataclass that can be imported."""
    while isinstance(env, (*params.AROUND, params.Randomised)):  # options of a run, and ranges among its env_params
        env = env.env
    limit = {}
    if isinstance(env, TimeLimit):
        limit, env = {LIMIT: plain(env.max_steps)}, env.env
    path = imports.path_of(type(env))
    if path is None or not dataclasses.is_dataclass(env):
        return None
    world: Any = env  # is_dataclass narrows it to a type without `step`
    fields = {field.name: field for field in dataclasses.fields(world) if field.init}
    needed = {name for name, field in fields.items() if _default_of(field) is ABSENT}
    try:
        usual = type(world)(**{name: getattr(world, name) for name in needed})
    except Exception:  # any exception of the user's class
        return None
    known, before = parameters(world), parameters(usual)
    numbers = {name: value_at(world, place.path) for name, place in known.items()}
    usually = {name: plain(value_at(usual, place.path)) for name, place in before.items()}
    changed = {name: x for name, x in numbers.items() if name in needed or plain(x) != usually.get(name, ABSENT)}
    others = {name: getattr(world, name) for name in fields if name not in {str(x.path[0]) for x in known.values()}}
    arguments = {name: as_data(x, _default_of(fields[name])) for name, x in others.items()}
    arguments = {name: x for name, x in arguments.items() if name in needed or not _equal(x, usual, name)}
    if (limit and LIMIT in {*known, *fields}) or any(arguments.get(name) is ABSENT for name in needed):
        return None
    arguments = {name: x for name, x in arguments.items() if x is not ABSENT}
    return path, {name: plain(x) for name, x in changed.items()} | arguments | limit


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return ABSENT if field.default is dataclasses.MISSING else field.default


def _equal(value: Any, usual: Any, name: str) -> bool:
    return bool(value is not ABSENT and value == as_data(getattr(usual, name), getattr(usual, name)))


def as_data(value: Any, default: Any) -> Any:
    """Return an argument as a run file holds it: a list for a tuple, where the default is one; else ABSENT."""
    data = plain(value)
    if isinstance(default, tuple) and isinstance(data, tuple):
        data = _listed(data)
    elif isinstance(default, tuple) and isinstance(data, list):
        return ABSENT  # it would come back as a tuple
    try:
        again = untrusted.from_toml(to_toml({"env_params": {"x": data}}))["env_params"]["x"]
    except (TypeError, ValueError, AttributeError):
        return ABSENT
    return data if type(again) is type(data) and again == data and not params.is_range(data) else ABSENT


def _listed(value: Any) -> Any:
    return [_listed(x) for x in value] if isinstance(value, tuple) else value
