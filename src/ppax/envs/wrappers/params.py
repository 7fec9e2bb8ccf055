"""Parameters of an environment by name: numbers in its parts and wrappers, set to a value or sampled at every reset."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.options import Option, check_value, hints_of, nearest, option_of
from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, Scalar, part, static
from ppax.envs.wrappers.agent_groups import Grouped
from ppax.envs.wrappers.boundary_sampling import BoundarySampling
from ppax.envs.wrappers.clip_actions import ClipActions
from ppax.envs.wrappers.time import ActionRepeat
from ppax.envs.wrappers.views import TeamView
from ppax.envs.wrappers.wrapper import Wrapper

# Names of an environment's parameters: numbers in its parts, nested structures and wrappers.
#
# A name is that of the field, such as `gravity`; where several have it, the outermost one, and the others are reached
# by their dotted paths, such as `cart.gravity`. Fields called `env` and `params`, of wrappers and suites, are left out
# of paths. Dotted paths are always understood.

ParameterPath = tuple[Any, ...]  # names of fields, keys of mappings, indices of sequences
Value = Any  # a number or a string, or {"low": number, "high": number}
# time limits of gymnax and Craftax, replaced by `max_steps` of TimeLimit
HIDDEN = ("max_steps_in_episode", "max_timesteps")
# parameters that `make` adds to environments without them, as wrappers: a time limit, a filter of continuous actions,
# and the entries of vectors that the agent sees
ADDED = ("max_steps", "action_filter", "seen")
PASSED = ("env", "params")  # fields that are left out of dotted paths
LARGEST_WHOLE = 2**24  # of whole numbers that are drawn from a range; float32 has all of them exactly


class Parameter(NamedTuple):
    """Parameter of an environment: its path, its type and limits, and whether it is static (compiled in)."""

    path: ParameterPath
    option: Option
    is_static: bool

    @property
    def dotted(self) -> str:
        """Dotted path of this parameter, such as "cart.gravity"; fields `env` and `params` are left out of it."""
        return _option_path(self.path).partition(".")[2]


class Item(NamedTuple):
    """Entry of a dataclass, mapping or sequence: its key, value and dataclass field, and whether it is compiled in."""

    key: Any
    value: Any
    field: dataclasses.Field[Any] | None  # None: an entry of a mapping or sequence
    is_static: bool


def parameters(env: Any) -> dict[str, Parameter]:
    """Return every parameter of an environment, such as gravity, by its shortest unique name."""
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

    {"cart": {"gravity": 9.8}} and {"cart.gravity": 9.8} both become {"gravity": 9.8}: tables are nested like the
    environment. Names that are not in `known` stay as they are, and so do tables without a parameter in `known`.
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
    added = [one for one in ADDED if one not in known]
    also = f"; wrappers can add {', '.join(added)}" if added else ""
    near = nearest(name, [*known, *added])
    return f"unknown option {path!r}; did you mean {near!r}? There are {', '.join(known)}{also}"


def require_known(names: Mapping[str, Any], known: Mapping[str, Parameter]) -> None:
    """Raise ConfigError for the first of the parameters `names` that is not in `known`; nothing if all are."""
    for name in names:
        if name not in known:
            raise ConfigError(unknown_parameter(name, known))


def parameter_value(env: Any, name: str) -> Value:
    """Return the value of the environment's parameter `name`; an array of shape [] becomes a Python number."""
    return plain_value(value_at(env, parameters(env)[name].path))


def value_at(thing: Any, path: ParameterPath) -> Any:
    """Return the entry at `path` of `thing`, a dataclass, mapping or sequence that may contain others."""
    for step in path:
        thing = next(entry.value for entry in _entries(thing) if entry.key == step)
    return thing


def put(thing: Any, path: ParameterPath, value: Any) -> Any:
    """Return a copy of `thing` with the entry at `path` replaced by `value`.

    `thing` is a dataclass, mapping or sequence that may contain others; `path` leads through these.
    """
    step, *rest = path
    new = put(value_at(thing, (step,)), tuple(rest), value) if rest else value
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return dataclasses.replace(thing, **{step: new})
    if isinstance(thing, Mapping):
        return {**thing, step: new}
    entries = [new if entry.key == step else entry.value for entry in _entries(thing)]
    return type(thing)(*entries) if isinstance(step, str) else type(thing)(entries)


def plain_value(value: Any) -> Any:
    """Return an array of shape [] as a Python number; everything else, traced arrays too, unchanged."""
    is_scalar = isinstance(value, np.ndarray | np.generic | Array) and value.ndim == 0
    return value.item() if is_scalar and not isinstance(value, jax.core.Tracer) else value


def _parameters(thing: Any, path: ParameterPath, in_static: bool) -> Iterator[Parameter]:
    """Yield the parameters of an environment that are in `thing`, the environment or a structure inside of it.

    `path` is the path of `thing` in the environment. With `in_static`, as `thing` is inside of a static field, only
    fields that are declared as parameters are yielded, otherwise all numbers.
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


AROUND = (Grouped, TeamView, ActionRepeat, ClipActions, BoundarySampling)  # wrappers that stay outside of `Randomised`


class RandomisedState(NamedTuple):
    """State of an environment with sampled parameters, and the values of these parameters in this episode, by name."""

    inner: PyTree
    numbers: dict[str, Array]  # []


@part
class Randomised(Wrapper):
    """Wrapper of `env` that samples parameters uniformly between `low` and `high` at every reset.

    A parameter whose value in `env` is a whole number is drawn as a whole number, each from `low` to `high` with equal
    probability; ends that are not whole, as of a range that moves, are rounded.
    """

    low: dict[str, Scalar] = dataclasses.field(metadata={"parameters": ()})
    high: dict[str, Scalar] = dataclasses.field(metadata={"parameters": ()})
    paths: tuple[tuple[str, ParameterPath], ...] = static("path of each sampled parameter in `env`")

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment, with parameters that are sampled for it."""
        keys = dict(zip(["", *self.low], jax.random.split(key, 1 + len(self.low)), strict=True))
        numbers = {name: self._draw(name, keys[name]) for name in self.low}
        start = self.with_numbers(numbers).reset(keys[""])
        return start._replace(state=RandomisedState(start.state, numbers))

    def step(self, state: RandomisedState, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment, with the parameters of this episode."""
        step = self.with_numbers(state.numbers).step(state.inner, action, key)
        return step._replace(state=RandomisedState(step.state, state.numbers))

    def inside(self, state: RandomisedState) -> tuple[Environment, PyTree]:
        """Return the inner environment with the parameters of this episode, and its state."""
        return self.with_numbers(state.numbers), state.inner

    def with_numbers(self, numbers: Mapping[str, Scalar]) -> Environment:
        """Return the inner environment with the values `numbers` of its sampled parameters, by name."""
        env = self.env
        for name, path in self.paths:
            number = jnp.asarray(numbers[name], jnp.float32)
            env = put(env, path, jnp.round(number).astype(jnp.int32) if self._is_whole(name) else number)
        return env

    def ends(self, name: str) -> tuple[Array, Array]:
        """Return the least and the greatest value that is drawn for the parameter `name`."""
        low, high = (jnp.asarray(end[name], jnp.float32) for end in (self.low, self.high))
        return (jnp.round(low), jnp.round(high)) if self._is_whole(name) else (low, high)

    def _draw(self, name: str, key: Key) -> Array:
        """Return a value for the parameter `name`, [] float32, drawn with the random key `key`."""
        low, high = self.low[name], self.high[name]
        if not self._is_whole(name):
            return low + (high - low) * jax.random.uniform(key, (), jnp.float32)
        first, last = (end.astype(jnp.int32) for end in self.ends(name))
        return jax.random.randint(key, (), first, last + 1).astype(jnp.float32)

    def _is_whole(self, name: str) -> bool:
        return _kind(value_at(self.env, dict(self.paths)[name])) is int


def adjust(env: Environment, params: Mapping[str, Value]) -> Environment:
    """Return `env` with other parameters: `{"gravity": 12.0, "half_length": {"low": 0.25, "high": 1.0}}`.

    A parameter with "low" and "high" is sampled uniformly at every reset, as whole numbers if its value in `env` is a
    whole number. All parameters that `params` does not name stay as they are. Raises ConfigError for an unknown name
    and for an invalid value.
    """
    if isinstance(env, AROUND):
        return dataclasses.replace(env, env=adjust(env.env, params))
    known = parameters(env)
    params = by_short_name(params, known)
    require_known(params, known)
    low: dict[str, Scalar] = {}
    high: dict[str, Scalar] = {}
    if isinstance(env, Randomised):
        low, high = ({name: x for name, x in ends.items() if name not in params} for ends in (env.low, env.high))
        known, env = parameters(env.env), env.env
    for name, value in params.items():
        if isinstance(value, Mapping):
            low[name], high[name] = _range(name, value, known[name])
        else:
            option = known[name].option
            if option.kind in (int, float) and not option.many:
                _refuse_list(name, value)
            env = put(env, known[name].path, check_value(option, value))
    return Randomised(env, low, high, tuple((name, known[name].path) for name in low)) if low else env


def ranges_of(env: Environment) -> dict[str, dict[str, ParameterPath]]:
    """Return the paths in `env` of both ends of each range from which `env` draws a parameter at resets.

    They are {name of the parameter: {"low": path, "high": path}}; {} if the environment draws none.
    """
    path: ParameterPath = ()
    while isinstance(env, AROUND):
        env, path = env.env, (*path, "env")
    drawn = env.low if isinstance(env, Randomised) else ()
    return {name: {end: (*path, end, name) for end in ("low", "high")} for name in drawn}


def is_range(value: Any) -> bool:
    """Return whether a parameter's value is a range to be drawn from: a table of "low", "high" or both, and no more."""
    return isinstance(value, Mapping) and bool(value) and {*value} <= {"low", "high"}


def nested(params: Mapping[str, Any], place: str = "env_params") -> dict[str, Any]:
    """Return parameters with dotted names as nested dicts: {"config.lanes": 2} as {"config": {"lanes": 2}}.

    If a value and a dict have the same name, the later one stays. Raises ConfigError for a name that is no string, as
    names in run files are strings; `place` is the name of `params` in the error.
    """
    require_table(params, place)
    tables: dict[str, Any] = {}
    for name, value in params.items():
        _require_text(name, value, place)
        *outer, last = name.split(".")
        own = nested(value, f"{place}.{name}") if isinstance(value, Mapping) else value
        tables = merged(tables, functools.reduce(lambda inner, key: {key: inner}, reversed(outer), {last: own}))
    return tables


def require_table(given: Any, place: str = "env_params") -> None:
    """Raise ConfigError unless the parameters `given` are a mapping; `place` is their name in the error."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{place} = {given!r}: must be a table, [{place}]; in Python a dict, as {{'gravity': 9.8}}")


def _require_text(name: Any, value: Any, place: str) -> None:
    if not isinstance(name, str):
        raise ConfigError(f"{place}: the name {name!r} of {value!r} must be a text, as run files have no others")


def merged(params: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return `params` updated with `changes`, also inside of nested dicts, whose other entries are kept.

    A range, a dict of "low" and "high", counts as one value: it is replaced as a whole.
    """
    both = dict(params)
    for name, value in changes.items():
        tables = [isinstance(one, Mapping) and {*one} != {"low", "high"} for one in (both.get(name), value)]
        both[name] = merged(both[name], value) if all(tables) else value
    return both


def first_values(params: Mapping[str, Value]) -> dict[str, Value]:
    """Return parameters by name with the low end of each range in place of the range.

    With these values an environment is made whose ranges are drawn from later, at its resets.
    """
    return {name: value.get("low", 0.0) if is_range(value) else value for name, value in params.items()}


def refuse_drawn(name: str, params: Mapping[str, Value], drawable: Collection[str] = ()) -> None:
    """Raise ConfigError if one of `params` is a range: arguments of a constructor cannot be drawn at resets.

    Only an environment's own numbers can be drawn: `drawable` are their names, and `name` is that of the environment,
    both for the error.
    """
    for key, value in params.items():
        if is_range(value):
            others = f", or draw {', '.join(drawable)}" if drawable else ""
            raise ConfigError(
                f"env_params.{key} = {dict(value)!r}: {name} takes it when it is made, so it cannot be drawn at a "
                f"reset; give one value{others}"
            )


def refuse_lists(params: Mapping[str, Value], function: Callable[..., Any]) -> None:
    """Raise ConfigError for a list where the argument of `function` is one number, by its annotation or default."""
    try:
        arguments = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a class in C
        return
    for name in params.keys() & arguments.keys():
        annotation = arguments[name].annotation
        by_default = annotation is inspect.Parameter.empty and is_number(arguments[name].default)
        if by_default or annotation in (int, float, "int", "float"):
            _refuse_list(name, params[name])


def _refuse_list(name: str, value: Any) -> None:
    """Raise ConfigError if `value`, given for the number `name`, is a list; nothing otherwise.

    Two numbers are probably meant as a range, which the error then shows how to write.
    """
    if not isinstance(value, list | tuple):
        return
    path = f"env_params.{name}"
    remedy = ""
    if len(value) == 2 and all(map(is_number, value)):
        low, high = value
        flag = f"--env-params.{name}"
        remedy = f'; a range is {{"low": {low}, "high": {high}}}, or {flag}.low {low} {flag}.high {high}'
    raise ConfigError(f"{path} = {value!r}: must be one number{remedy}")


def can_be_drawn(parameter: Parameter) -> bool:
    """Return whether a parameter can be sampled at every reset: it is a number, and not static (compiled in)."""
    return not parameter.is_static and parameter.option.kind in (int, float)


def require_numbers(ranges: Iterable[str], defaults: Mapping[str, Any]) -> None:
    """Raise ConfigError for an argument that is to be drawn from a range and whose default is no number.

    `ranges` are names of arguments, and `defaults` their defaults.
    """
    for name in ranges:
        default = defaults.get(name, 0.0)
        if not is_number(default):
            raise ConfigError(
                f"env_params.{name}: cannot be drawn at a reset, for it is no number: {default!r}; give one value"
            )


def is_number(default: Any) -> bool:
    """Return whether an argument's default is a number (not a bool), so that the argument can be drawn from a range."""
    return isinstance(default, int | float) and not isinstance(default, bool)


def split_ranges(
    params: Mapping[str, Value], defaults: Mapping[str, Any] = MappingProxyType({})
) -> tuple[dict[str, Value], dict[str, tuple[float, float]]]:
    """Return two dicts of a host environment's parameters: those with one value, and (low, high) of those to draw.

    `defaults` are those of the arguments of the environment's constructor. If an argument's default and both ends of
    its range are of type int, the result has the ends as int, too, and whole numbers are drawn.
    """
    fixed = {name: value for name, value in params.items() if not is_range(value)}
    numbers = {name: Parameter((), Option(f"env_params.{name}", float), False) for name in params if name not in fixed}
    ranges = {name: _range(name, params[name], parameter) for name, parameter in numbers.items()}
    for name, (low, high) in ranges.items():
        if all(type(x) is int for x in (defaults.get(name), *params[name].values())):
            ranges[name] = int(low), int(high)
    return fixed, ranges


def _range(name: str, value: Mapping[str, Value], parameter: Parameter) -> tuple[float, float]:
    """Return (low, high) of a parameter to be sampled; ConfigError for a range that is invalid or cannot be drawn."""
    path = f"env_params.{name}"
    if set(value) != {"low", "high"}:
        raise ConfigError(f"{path} = {dict(value)!r}: must be a number, or have low and high, and nothing else")
    if not can_be_drawn(parameter):
        raise ConfigError(f"{path}: cannot be drawn at a reset, for the program depends on it; give one value")
    option, whole = parameter.option._replace(kind=float), parameter.option.kind is int
    if whole:
        limits = option.limits
        least, most = max(limits.get("low", -LARGEST_WHOLE), -LARGEST_WHOLE), limits.get("high", LARGEST_WHOLE)
        option = option._replace(limits={**limits, "low": least, "high": min(most, LARGEST_WHOLE)})
    low, high = (check_value(option._replace(path=f"{path}.{end}"), value[end]) for end in ("low", "high"))
    for end, x in (("low", low), ("high", high)):
        if whole and x != round(x):
            raise ConfigError(f"{path}.{end} = {x}: must be a whole number; nearest valid value: {round(x)}")
    if low > high:
        raise ConfigError(f"{path}.low = {low}: must be at most {path}.high = {high}; nearest valid value: {high}")
    return low, high
