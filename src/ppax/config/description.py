"""Description of objects (agents, parts, environments and settings) as a configuration: plain data for a run file."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import numpy as np

from ppax.agents.groups import Groups
from ppax.agents.independent import Independent
from ppax.agents.self_play import SelfPlay
from ppax.config.catalogue import AGENT, CHAIN, LIST, ONE, Choices, PartField, part_fields
from ppax.config.run_files import to_toml
from ppax.config.run_settings import Run
from ppax.config.user_parts import unimportable
from ppax.config.validation import is_section
from ppax.core import imports, untrusted
from ppax.core.options import (
    Config,
    check_limits,
    check_value,
    flatten,
    hints_of,
    is_option,
    option_of,
    plain_data,
    unflatten,
)
from ppax.core.parts import Held, Table, name_of
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError
from ppax.envs import BUILTIN, ActionFilter, Env, PartialView, TimeLimit, require_native
from ppax.envs.hosting.action_filter import FILTER
from ppax.envs.hosting.time_limit import LIMIT
from ppax.envs.wrappers import params
from ppax.envs.wrappers.params import parameters, plain_value, value_at
from ppax.envs.wrappers.views import SEEN
from ppax.ppo.ppo import PPO
from ppax.training.backends import backend_of

ABSENT = object()  # default of an argument without one


def describe_run(agent: Agent, env: Env, run: Run) -> Config:
    """Return the configuration of a whole run, from which `build` makes equal objects."""
    agent = agent.agent if isinstance(agent, SelfPlay) else agent
    settings = describe(run) | own_environment(env)
    if not isinstance(agent, Groups):
        return settings | {"agent": describe(agent)}
    players = dict(env.settings.players)
    groups = {
        name: {"players": players.get(name), "agents": one.sharing, "agent": describe(one)}
        for name, one in agent.agents.items()
    }
    return settings | {"agent": describe(agent.learners(env.num_streams)[0][0]), "groups": groups}


def describe(part: Any, each: bool = False) -> Config:
    """Return an agent, run settings or a part, with all nested parts, as plain data; ConfigError for an invalid number.

    A part is a swappable object, such as a loss. With `each`, its numbers may be arrays with one value per player
    (agent inside the environment).
    """
    if isinstance(part, Independent):
        return describe(part.agent, each=True)
    config: Config = {"part": AGENT.name_of(part)} if isinstance(part, PPO) else {}
    hints, of_parts = hints_of(part.__class__), part_fields(type(part))
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.name in of_parts:
            config |= _parts(of_parts[field.name], value, field.name, each)
        elif is_section(hints[field.name]):
            config[field.name] = describe(value, each)
        elif field.name == "env_params" and value:
            config[field.name] = unflatten(dict(flatten(plain_data(value))))
        elif field.metadata.get("code"):
            code = value.value if isinstance(value, Held) else value
            config[field.name] = imports.import_path(code) or unimportable(code)
        elif field.metadata.get("paths") and callable(value):
            config[field.name] = _path_of(value, f"{type(part).__name__}.{field.name}")
        elif isinstance(value, Table):
            arguments = {name: as_data(x, ()) for name, x in value.items()}
            config[field.name] = {name: x for name, x in arguments.items() if x is not ABSENT}
        elif is_option(field, hints[field.name]):
            option = option_of(field, hints[field.name], field.name)
            config[field.name] = check_value(option, _number(value), each)
    return config


def _path_of(function: Any, place: str) -> str:
    """Return the import path of a function; ConfigError, which names `place`, if it cannot be imported."""
    path = imports.import_path(function)
    if path is None:
        raise ConfigError(
            f"{place} = {unimportable(function)}: a run file names a function by its import path, and this one has "
            "none: write it in a module that is imported, at its top level (ppax.stop.KeepBest among callbacks takes "
            "any function, and keeps the best learner in memory)"
        )
    return path


def _parts(field: PartField, value: Any, name: str, each: bool) -> Config:
    """Return the parts (swappable objects) in a field as plain data, a dict with the field's name as its key.

    `value` is what the field `name` holds, one part or several. The result is {} for an empty table of parts.
    """
    choices = field.choices
    if field.holds == ONE:
        return {name: _part(value, choices, each)}
    if field.holds == LIST:
        return {name: [_of_list(one, choices, name) for one in value]}
    if field.holds == CHAIN:
        return {name: {name_of(one): _part(one, choices, each) for one in value} or []}
    tables = {key: _part(one, choices, each) for key, one in value}
    return unflatten(dict(flatten({name: tables}))) if tables else {}


def describe_part(part: Any, choices: Choices) -> Config:
    """Return the table of a part (a swappable object) outside a run's configuration, such as the search of a sweep.

    `build_part` makes an equal part from it.
    """
    return _part(part, choices, False)


def _part(part: Any, choices: Choices, each: bool) -> Config:
    """Return the table of one part (a swappable object, such as a loss) with its name and all fields.

    If no run file can name its class or hold its fields, the table has the name, and the plain numbers and strings.
    """
    name = choices.name_of(part)
    if name in choices:
        return {"part": name} | describe(part, each)
    numbers = {"part": name} | _numbers(part)
    if not imports.is_path(name):
        return numbers
    try:
        return {"part": name} | describe(part, each)
    except ConfigError:  # fields that no run file can hold, such as arrays; run/python_objects.py lists them
        return numbers


def _of_list(part: Any, choices: Choices, name: str) -> Config:
    """Return the table for a run file of `part`, an entry of the list `name`, such as a logger.

    `choices` are the classes with short names. Raises ConfigError for another class that has no import path.
    """
    own = choices.name_of(part)
    if own not in choices and not imports.is_path(own):
        raise ConfigError(
            f"{name} = {part!r}: must be parts of the catalogue, {', '.join(x.__name__ for x in choices.values())}; "
            "pass a logger of your own, an object with log(row) and close(), among callbacks, or write its part in a "
            "module that can be imported"
        )
    return {"part": own} | describe(part)


def _numbers(part: Any) -> Config:
    """Return the fields of a user's part (a swappable object) that are numbers or strings, their limits checked."""
    fields = dataclasses.fields(part) if dataclasses.is_dataclass(part) else ()
    values = {field.name: _number(getattr(part, field.name)) for field in fields if field.metadata}
    limits: dict[str, Any] = {field.name: dict(field.metadata) for field in fields}
    kept = {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}
    return {name: check_limits(name, value, limits[name]) for name, value in kept.items()}


def _number(value: Any) -> Any:
    if getattr(value, "ndim", 0):  # one per player, in the shortest digits of float32
        return [float(str(x)) for x in np.asarray(value)]
    return value.item() if hasattr(value, "item") else value


def own_environment(env: Env) -> Config:
    """Return the options `env` and `env_params` for a run file that name a user's environment by its import path.

    {} if a run file cannot name it. A compiled environment must be an importable frozen dataclass; the wrappers
    `TimeLimit`, `PartialView` and `ActionFilter`, in this order from the inside, become entries of `env_params`. A
    built-in environment inside `PartialView` is named as in `make`. Fields that a run file cannot hold, such as an
    array, are left out silently: `run/python_objects.py` finds them by comparing the objects. Environments on the host
    must come from a class or function, or a `functools.partial` of one, with arguments that a run file can hold
    unchanged.
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
    """Return import path and arguments of a class, a function or a partial of one; None where no file can hold them."""
    values: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    if isinstance(source, functools.partial):  # those of a partial inside have been merged into it
        values, keywords, source = source.args, source.keywords, source.func
    path = imports.import_path(source)
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
    """Return import path and parameters of a compiled environment; None unless it is a dataclass that can be imported.

    Parameters that have the default of the class are left out.
    """
    while isinstance(env, (*params.AROUND, params.Randomised)):  # options of a run, and ranges among its env_params
        env = env.env
    around: Config = {}  # parameters of wrappers that a run file puts around an environment, in this order
    if isinstance(env, ActionFilter):
        around, env = {FILTER: plain_value(env.action_filter)}, env.env
    if isinstance(env, PartialView):
        around, env = around | {SEEN: list(env.seen)}, env.env
        builtin = next((name for name, make in BUILTIN.items() if _same_env(make(), env)), None)
        if builtin is not None:  # which has no import path
            return builtin, around
    if isinstance(env, TimeLimit):
        around, env = around | {LIMIT: plain_value(env.max_steps)}, env.env
    path = imports.import_path(type(env))
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
    usually = {name: plain_value(value_at(usual, place.path)) for name, place in before.items()}
    changed = {name: x for name, x in numbers.items() if name in needed or plain_value(x) != usually.get(name, ABSENT)}
    others = {name: getattr(world, name) for name in fields if name not in {str(x.path[0]) for x in known.values()}}
    arguments = {name: as_data(x, _default_of(fields[name])) for name, x in others.items()}
    arguments = {name: x for name, x in arguments.items() if name in needed or not _equal(x, usual, name)}
    if around.keys() & {*known, *fields} or any(arguments.get(name) is ABSENT for name in needed):
        return None
    arguments = {name: x for name, x in arguments.items() if x is not ABSENT}
    return path, {name: plain_value(x) for name, x in changed.items()} | arguments | around


def _same_env(env: Any, other: Any) -> bool:
    """Return whether two compiled environments have the same classes, static fields and numbers."""
    leaves, structure = jax.tree.flatten(env)
    others, also = jax.tree.flatten(other)
    return bool(structure == also) and all(  # type: ignore[operator]
        np.array_equal(x, y) for x, y in zip(leaves, others, strict=True)
    )


def _default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return ABSENT if field.default is dataclasses.MISSING else field.default


def _equal(value: Any, usual: Any, name: str) -> bool:
    return bool(value is not ABSENT and value == as_data(getattr(usual, name), getattr(usual, name)))


def as_data(value: Any, default: Any) -> Any:
    """Return the argument `value` as a run file holds it; the mark ABSENT where reading it back would change it.

    A tuple becomes a list if the parameter's `default` is a tuple: reading then turns the list back into a tuple.
    """
    data = plain_value(value)
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
