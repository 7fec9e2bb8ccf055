"""Options: the fields of parts as settings with a dotted path, checked where a configuration enters."""

from __future__ import annotations

import dataclasses
import difflib
import math
import typing
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import jax

from ppax.types import ConfigError

Config = dict[str, Any]
LIMITS = ("low", "high", "above", "choices")  # in the metadata of a field
NONE = "none"  # TOML and command lines have no None
DEEPEST = 32  # tables in tables; a run has four
# What other libraries call an option, by which name it is looked for here
ALIASES = {
    "lr": "learning_rate",
    "total_timesteps": "total_steps",
    "timesteps": "total_steps",
    "n_steps": "num_steps",
    "n_envs": "num_envs",
    "n_epochs": "num_epochs",
    "update_epochs": "num_epochs",
    "clip": "clip_eps",
    "clip_range": "clip_eps",
    "clip_coef": "clip_eps",
    "clip_ratio": "clip_eps",
    "entropy_coef": "ent_coef",
    "value_coef": "vf_coef",
    "lam": "gae_lambda",
    "lambda": "gae_lambda",
    "n_minibatches": "num_minibatches",
    "hidden_sizes": "hidden",
    "episodes": "eval.episodes",
}


class Option(NamedTuple):
    """One setting: where it stands, what it may be."""

    path: str
    kind: type  # int, float, bool or str
    many: bool  # a list of them
    optional: bool  # None is allowed
    default: Any
    doc: str
    limits: dict[str, Any]
    leaf: bool = False  # a number of a part: with independent agents a list has one for each player


def option_of(field: dataclasses.Field[Any], hint: Any, path: str) -> Option:
    """The option that a field of a part is."""
    optional = many = False
    kind: Any = float
    if field.metadata.get("static"):
        optional = type(None) in typing.get_args(hint)
        if optional:
            hint = next(h for h in typing.get_args(hint) if h is not type(None))
        if typing.get_origin(hint) is tuple:
            many, hint = True, typing.get_args(hint)[0]
        kind = hint
    else:
        optional, many = type(None) in typing.get_args(hint), typing.get_origin(hint) is tuple
    limits = {name: field.metadata[name] for name in LIMITS if name in field.metadata}
    leaf = not field.metadata.get("static") and not many
    return Option(path, kind, many, optional, field.default, field.metadata.get("doc", ""), limits, leaf)


def check_value(option: Option, value: Any, each: bool = False) -> Any:
    """`value` in the option's type; ConfigError with field, value, what is allowed and the nearest valid value.

    `each`: a number may also be a list, one for each player.
    """
    if option.leaf and isinstance(value, list | tuple):
        if not each:
            raise ConfigError(
                f"{option.path} = {value!r}: must be one number; a list has one for each player, "
                'which takes agents = "independent"'
            )
        return [check_value(option._replace(optional=False), x) for x in value]
    if option.optional and value in (None, NONE):
        return None
    if option.many:
        if not isinstance(value, list | tuple):
            raise ConfigError(f"{option.path} = {value!r}: must be a list of {option.kind.__name__}")
        return [check_value(option._replace(many=False), x) for x in value]
    if option.kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value) if abs(value) < 2**1000 else math.inf
    if not isinstance(value, option.kind) or (option.kind is int and isinstance(value, bool)):
        raise ConfigError(f"{option.path} = {value!r}: must be of type {option.kind.__name__}")
    return check_limits(option.path, value, option.limits)


def check_limits(path: str, value: Any, limits: dict[str, Any]) -> Any:
    """`value`, if it is within `limits`; else ConfigError with the nearest valid one, which calls it `path`."""
    choices, low, high, above = (limits.get(name) for name in ("choices", "low", "high", "above"))
    if choices is not None and value not in choices:
        nearest = difflib.get_close_matches(str(value), choices, n=1, cutoff=0.0)[0]
        raise ConfigError(f"{path} = {value!r}: must be one of {', '.join(choices)}; nearest: {nearest}")
    if isinstance(value, str | bool):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{path} = {value}: must be a finite number")
    if above is not None and value <= above:
        raise ConfigError(f"{path} = {value}: must be above {above:g}")
    if low is not None and value < low:
        raise ConfigError(f"{path} = {value}: must be at least {low:g}; nearest valid value: {low:g}")
    if high is not None and value > high:
        raise ConfigError(f"{path} = {value}: must be at most {high:g}; nearest valid value: {high:g}")
    if isinstance(value, int) and value >= 2**64:
        raise ConfigError(f"{path}: must be below 2^64")
    return value


def check_numbers(part: Any, path: str = "agent") -> None:
    """ConfigError for a number or choice out of range in a part and the parts inside it; traced numbers pass."""
    if isinstance(part, type):  # a class, as the family of a head's distribution
        return
    if isinstance(part, Mapping):
        for name, inner in part.items():
            check_numbers(inner, f"{path}[{name!r}]")
        return
    for field in dataclasses.fields(part) if dataclasses.is_dataclass(part) else ():
        value, where = getattr(part, field.name), f"{path}.{field.name}"
        limits = {name: field.metadata[name] for name in LIMITS if name in field.metadata}
        if dataclasses.is_dataclass(value) or isinstance(value, Mapping):
            check_numbers(value, where)
        elif limits and not isinstance(value, jax.core.Tracer):
            # a sweep and independent players have an array of numbers
            for one in _numbers_in(value):
                check_limits(where, one, limits)


def _numbers_in(value: Any) -> Iterator[Any]:
    """Each concrete number or choice in a value, an array, or nested lists and tuples of them."""
    value = value.tolist() if hasattr(value, "tolist") and not isinstance(value, jax.core.Tracer) else value
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _numbers_in(inner)
    elif value is not None and not isinstance(value, jax.core.Tracer):
        yield value


def nearest(path: str, known: Collection[str]) -> str:
    """The option that an unknown `path` most likely means: one of the same name elsewhere, else the most alike."""
    own = path.rpartition(".")[2]
    name = ALIASES.get(own, own)
    namesakes = [other for other in known if other == name or other.rpartition(".")[2] == name]
    return difflib.get_close_matches(path, namesakes or known, n=1, cutoff=0.0)[0]


def flatten(config: Config, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted path, value) of every leaf."""
    _require_shallow(prefix)
    for name, value in config.items():
        if isinstance(value, dict) and value:
            yield from flatten(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _require_shallow(path: str) -> None:
    if path.count(".") > DEEPEST:
        raise ConfigError(f"{path[:60]}...: {path.count('.')} tables in one another; must be at most {DEEPEST}")


def unflatten(values: dict[str, Any]) -> Config:
    """The inverse of `flatten`."""
    config: Config = {}
    for path, value in values.items():
        _require_shallow(path)
        *sections, name = path.split(".")
        table = config
        for section in sections:
            table = table.setdefault(section, {})
        table[name] = value
    return config
