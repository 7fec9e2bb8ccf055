"""Parameters of an environment by name: set to a value, or sampled at every reset.

The names are fields of the environment's own parts, such as `gravity` of CartPole and `max_steps` of the time limit
around it. Sampled parameters are domain randomisation: Tobin et al., "Domain Randomization for Transferring Deep
Neural Networks from Simulation to the Real World", 2017, https://arxiv.org/abs/1703.06907.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.wrappers.action_repeat import ActionRepeat
from ppax.envs.wrappers.agent_groups import Grouped
from ppax.envs.wrappers.team_view import TeamView
from ppax.options import Option, check_value, nearest, option_of
from ppax.protocols import Environment
from ppax.types import ConfigError, EnvReset, EnvStep, Key, PyTree, Scalar, part, static

AROUND = (Grouped, TeamView, ActionRepeat)  # wrappers that stay outside of `Randomised`
Path = tuple[str, ...]
Value = Any  # a number or a string, or {"low": number, "high": number}
# time limits of gymnax and Craftax, replaced by `max_steps` of TimeLimit
HIDDEN = ("max_steps_in_episode", "max_timesteps")


class Place(NamedTuple):
    """Path of a parameter in an environment, its type and limits, and whether it is static."""

    path: Path
    option: Option
    is_static: bool


class RandomisedState(NamedTuple):
    """State of the environment, and the sampled parameters of this episode."""

    inner: PyTree
    numbers: dict[str, Array]  # []


@part
class Randomised:
    """Wrapper of `env` that samples parameters uniformly between `low` and `high` at every reset."""

    env: Environment
    low: dict[str, Scalar]
    high: dict[str, Scalar]
    paths: tuple[tuple[str, Path], ...] = static("path of each sampled parameter in `env`")

    @property
    def observation_space(self) -> spaces.Space:
        """Observation space of `env`."""
        return self.env.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """Action space of `env`."""
        return self.env.action_space

    @property
    def num_agents(self) -> int | dict[str, int] | None:
        """Number of agents of `env`."""
        return self.env.num_agents

    def reset(self, key: Key) -> EnvReset:
        """Sample the parameters of an episode and reset `env` with them."""
        keys = dict(zip(["", *self.low], jax.random.split(key, 1 + len(self.low)), strict=True))
        low, high = self.low, self.high
        numbers = {
            name: low[name] + (high[name] - low[name]) * jax.random.uniform(keys[name], (), jnp.float32) for name in low
        }
        start = self.with_numbers(numbers).reset(keys[""])
        return start._replace(state=RandomisedState(start.state, numbers))

    def step(self, state: RandomisedState, action: PyTree, key: Key) -> EnvStep:
        """Step `env` with the parameters of this episode."""
        step = self.with_numbers(state.numbers).step(state.inner, action, key)
        return step._replace(state=RandomisedState(step.state, state.numbers))

    def with_numbers(self, numbers: Mapping[str, Scalar]) -> Environment:
        """Return `env` with these parameters."""
        env = self.env
        for name, path in self.paths:
            env = _put(env, path, jnp.asarray(numbers[name], jnp.float32))
        return env


def places(env: Environment) -> dict[str, Place]:
    """Return every parameter of an environment by name; the outer one of two with the same name."""
    found: dict[str, Place] = {}
    for name, place in _places(env, ()):
        found.setdefault(name, place)
    return found


def adjust(env: Environment, params: Mapping[str, Value]) -> Environment:
    """Return `env` with other parameters: `{"gravity": 12.0, "half_length": {"low": 0.25, "high": 1.0}}`.

    Those with `low` and `high` are sampled uniformly at every reset. Raises ConfigError for an unknown name and for an
    invalid value.
    """
    if isinstance(env, AROUND):
        return dataclasses.replace(env, env=adjust(env.env, params))
    low: dict[str, Scalar] = {}
    high: dict[str, Scalar] = {}
    if isinstance(env, Randomised):
        low, high = ({name: x for name, x in ends.items() if name not in params} for ends in (env.low, env.high))
        env = env.env
    known = places(env)
    for name, value in params.items():
        place = known.get(name)
        if place is None:
            raise ConfigError(unknown(name, known))
        if isinstance(value, Mapping):
            low[name], high[name] = _range(name, value, place)
        else:
            env = _put(env, place.path, check_value(place.option, value))
    return Randomised(env, low, high, tuple((name, known[name].path) for name in low)) if low else env


def refuse_drawn(name: str, params: Mapping[str, Value]) -> None:
    """Raise ConfigError if an argument of the suite's own constructor is a range: only parameters can be sampled."""
    for key, value in params.items():
        if isinstance(value, Mapping):
            raise ConfigError(
                f"env_params.{key} = {dict(value)!r}: {name} takes it when it is made, so it cannot be drawn at a "
                "reset; give one value"
            )


def read(env: Environment, name: str) -> Value:
    """Return the value of the parameter `name`."""
    value: Any = env
    for step in places(env)[name].path:
        value = getattr(value, step)
    return _plain(value)


def unknown(name: str, known: Mapping[str, Place]) -> str:
    """Return the error message for a name that is not in `known`."""
    path = f"env_params.{name}"
    if not known:
        remedy = "those of your own environment are fields of a ppax.part, declared with ppax.number or ppax.static"
        return f"unknown option {path!r}: this environment has no parameters; {remedy}"
    return f"unknown option {path!r}; did you mean {nearest(name, known)!r}? There are {', '.join(known)}"


def _range(name: str, value: Mapping[str, Value], place: Place) -> tuple[float, float]:
    """Return the checked limits of a sampled parameter."""
    path = f"env_params.{name}"
    if set(value) != {"low", "high"}:
        raise ConfigError(f"{path} = {dict(value)!r}: must be a number, or have low and high, and nothing else")
    if place.is_static or place.option.kind not in (int, float):
        raise ConfigError(f"{path}: cannot be drawn at a reset, for the program depends on it; give one value")
    option = place.option._replace(kind=float)
    low, high = (check_value(option._replace(path=f"{path}.{end}"), value[end]) for end in ("low", "high"))
    if low > high:
        raise ConfigError(f"{path}.low = {low}: must be at most {path}.high = {high}; nearest valid value: {high}")
    return low, high


def _places(thing: Any, path: Path) -> Iterator[tuple[str, Place]]:
    """Yield the parameters of one part, then those of the parts inside it."""
    if not dataclasses.is_dataclass(thing):
        return
    hints = typing.get_type_hints(type(thing))
    inside = []
    for field in dataclasses.fields(thing):
        value, here = _plain(getattr(thing, field.name)), (*path, field.name)
        if field.name in ("env", "params") and dataclasses.is_dataclass(value):
            inside.append((value, here))
        elif field.name in HIDDEN or not isinstance(value, bool | int | float | str):
            continue
        elif "doc" in field.metadata:
            option = option_of(field, hints[field.name], f"env_params.{field.name}")
            is_static = bool(field.metadata.get("static"))
            yield field.name, Place(here, option if is_static else option._replace(kind=type(value)), is_static)
        elif path[-1:] == ("params",):  # parameters of another library, which declares no limits
            option = Option(f"env_params.{field.name}", type(value), default=value)
            yield field.name, Place(here, option, False)
    for value, here in inside:
        yield from _places(value, here)


def _put(thing: Any, path: Path, value: Any) -> Any:
    """Return `thing` with the field at `path` replaced."""
    name, *rest = path
    new = _put(getattr(thing, name), tuple(rest), value) if rest else value
    return dataclasses.replace(thing, **{name: new})


def _plain(value: Any) -> Any:
    """Convert a scalar array to a Python number; leave everything else."""
    is_scalar = isinstance(value, np.ndarray | np.generic | Array) and value.ndim == 0
    return value.item() if is_scalar and not isinstance(value, jax.core.Tracer) else value
