"""What of a run its run file cannot hold: objects that are not what the file builds.

A run made in Python may have a head, a loss, an environment of its own. When it begins, agent and environment are built
from what is about to be written and compared with those that were given, and the places where they differ stand in the
file as `objects`. Without these objects nothing is then built from the file: another run would go on in silence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from ppax import config, envs
from ppax.agents.multi_agent import Agent
from ppax.config import OBJECTS
from ppax.envs import Env, HostEnv
from ppax.options import Config, flatten, unflatten
from ppax.types import ConfigError

LIBRARIES = ("ppax", "gymnasium", "pettingzoo", "envpool", "ale_py")  # whose functions make environments by their names


def objects(agent: Agent, env: Env, plan: Config, callbacks: Sequence[Any] = ()) -> list[str]:
    """Places of `agent` and `env` that `plan` does not give again, with the class there; and the callbacks' names."""
    found = [*_of_env(env, plan), *_of_agent(agent, env, plan)]
    names = ", ".join(getattr(one, "__name__", type(one).__name__) for one in callbacks)
    return found + ([f"callbacks ({names})"] if callbacks else [])


def require(plan: Config, agent: Agent | None, env: Env | None, where: str) -> None:
    """Raise ConfigError, with what to write, where the run `where` needs an object that is not given."""
    given = {"agent": agent is not None, "env": env is not None, "callbacks": True}
    lacking = [place for place in config.objects_of(plan) if not given.get(_root(place), False)]
    if not lacking:
        return
    needed = sorted({_root(place) for place in config.objects_of(plan)} - {"callbacks"})
    passed = ", ".join(f"{name}={name}" for name in needed)
    raise ConfigError(
        f"{where} was made from Python objects that its run file cannot hold: {', '.join(lacking)}. Pass the same "
        f"{' and '.join(needed)} in Python: run = ppax.resume({where!r}, {passed}), then run.evaluate()"
    )


def callbacks_of(plan: Config) -> str:
    """Names of the callbacks that a run had; "" where it had none."""
    places = [place for place in config.objects_of(plan) if _root(place) == "callbacks"]
    return places[0].partition(" ")[2].strip("()") if places else ""


def recorded(plan: Config) -> Config:
    """`plan` as a file that can be built: the default part where one of the user's own stood."""
    flat = {path: value for path, value in flatten(plan) if path != OBJECTS}
    own = [path.removesuffix("part") for path, value in flat.items() if path.endswith(".part") and "." in str(value)]
    return unflatten({path: value for path, value in flat.items() if not path.startswith(tuple(own))})


def _root(place: str) -> str:
    return place.partition(" ")[0].partition(".")[0]


def _of_env(env: Env, plan: Config) -> list[str]:
    if isinstance(env, HostEnv):  # to make it again could start processes
        by_name = env.name.partition("/")[0] in envs.HOST_SUITES and all(map(_of_library, env.host.factories))
        return [] if by_name else [f"env ({env.name})"]
    try:
        again = config.build_env(recorded(plan))
    except Exception:  # a name that is none, or whatever a suite raises
        return [f"env ({_called(env.env)})"]
    return list(_unlike(env, again, "env"))


def _of_agent(agent: Agent, env: Env, plan: Config) -> list[str]:
    try:
        again = config.build(recorded(plan), env).agent
    except Exception:  # as where no network of ours fits the spaces
        return [f"agent ({_called(agent)})"]
    return list(_unlike(agent, again, "agent"))


def _unlike(given: Any, again: Any, path: str) -> Iterator[str]:
    """Places where `given` is not what was built again."""
    if _is_number(given) and _is_number(again):
        same = np.array_equal(np.asarray(given, np.float32), np.asarray(again, np.float32), equal_nan=True)
        yield from () if same else (path,)
    elif type(given) is not type(again):
        yield f"{path} ({_called(given)})"
    elif dataclasses.is_dataclass(given) and not isinstance(given, type):
        for field in dataclasses.fields(given):
            yield from _unlike(getattr(given, field.name), getattr(again, field.name), f"{path}.{field.name}")
    elif isinstance(given, dict) and given.keys() == again.keys():
        for name in given:
            yield from _unlike(given[name], again[name], f"{path}.{name}")
    elif isinstance(given, tuple | list) and len(given) == len(again):
        places = getattr(given, "_fields", range(len(given)))
        for place, one, other in zip(places, given, again, strict=True):
            yield from _unlike(one, other, f"{path}.{place}")
    elif not _equal(given, again):
        yield f"{path} ({_called(given)})"


def _equal(given: Any, again: Any) -> bool:
    if given is again:
        return True
    if callable(given) and hasattr(given, "__code__"):  # made anew by whoever builds: the same text, the same closure
        mine, theirs = ([cell.cell_contents for cell in f.__closure__ or ()] for f in (given, again))
        return bool(given.__code__ == again.__code__) and not list(_unlike(mine, theirs, ""))
    if getattr(type(given), "__eq__", None) is getattr(
        object, "__eq__", None
    ):  # as worlds of other libraries: nothing to compare but what they are
        return True
    try:
        return bool(given == again)
    except Exception:  # an array's comparison, or whatever a user's class raises
        return False


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.ndarray | np.generic | jax.Array)


def _of_library(function: Callable[..., Any]) -> bool:
    """Whether a function that makes an environment is one of ours, or of a library's."""
    if isinstance(function, partial):
        inner = [function.func, *(x for x in (*function.args, *function.keywords.values()) if callable(x))]
        return all(map(_of_library, inner))
    return getattr(function, "__module__", "").partition(".")[0] in LIBRARIES


def _called(x: Any) -> str:
    return getattr(x, "__name__", type(x).__name__)
