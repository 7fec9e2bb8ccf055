"""Python objects of a run that its run file cannot hold, listed in the file as `objects`.

A run made in Python may have a user-defined head, loss or environment. At its start, agent and environment are built
from the configuration that will be written, and compared with those that were passed; the paths of the differences are
written as `objects`. A file with `objects` builds nothing unless they are passed: it would train something else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ppax import config, envs
from ppax.agents.self_play import Pool
from ppax.config import OBJECTS
from ppax.core import imports
from ppax.core.options import Config, flatten, unflatten
from ppax.core.parts import name_of, slot_chains
from ppax.core.protocols import Agent
from ppax.core.types import ConfigError
from ppax.envs import Env
from ppax.storage.paths import quoted, relative
from ppax.training.backends import backend_of

# Fields of PPO that only learning reads
LEARNING = (
    "advantage",
    "loss",
    "minibatch",
    "recompute",
    "gradient",
    "optimizer",
    "schedule",
    "extensions",
    "program",
)
# Libraries whose functions make environments by name
LIBRARIES = ("ppax", "gymnasium", "pettingzoo", "envpool", "ale_py")
SOURCE = "init_from"
NOT_NEEDED = ("callbacks", SOURCE)  # objects that a resume can do without


def objects(
    agent: Agent, env: Env, run_config: Config, callbacks: Sequence[Any] = (), source: object = None
) -> list[str]:
    """Return a list of texts that name what a run file cannot hold: objects in agent or environment, and callbacks.

    Each object has its dotted path and class, as "agent.loss (MyLoss)"; the callbacks are one text with their names.
    `source` is the object in memory whose weights the run starts with, and gets a text, too; None if there is no such
    object.
    """
    differences = [*_of_env(env, run_config), *_of_agent(agent, env, run_config)]
    names = ", ".join(getattr(one, "__name__", type(one).__name__) for one in callbacks)
    not_needed = {"callbacks": names, SOURCE: "" if source is None else type(source).__name__}
    return differences + [f"{place} ({name}), which resume does not need" for place, name in not_needed.items() if name]


RESUME = "run = ppax.resume({where!r}, {arguments})"
EVALUATE = "policy = ppax.load({where!r}{acting}), then policy.evaluate(env) or ppax.film(policy, 'play.gif', env)"


def require_passed(run_config: Config, agent: Any, env: Any, where: str, call: str = RESUME) -> None:
    """Raise ConfigError if an agent or environment that the run or bundle `where` needs was not passed again.

    They are needed if the entry `objects` of `run_config` names a Python object in them, which no file can hold.
    `agent` and `env` are what the user has passed; None: not passed. `call` is the Python call that the message
    recommends: a format string such as RESUME or EVALUATE, with the fields {where}, {arguments} and {acting}.
    """
    passed = {"agent": agent is not None, "env": env is not None} | dict.fromkeys(NOT_NEEDED, True)
    lacking = [place for place in config.objects_of(run_config) if not passed.get(_root(place), False)]
    if not lacking:
        return
    needed = _to_pass(run_config)
    acting = [name for name in _to_pass(to_act(run_config)) if name != "env"]
    call = call.format(where=where, arguments=_arguments(needed), acting="".join(f", {x}={x}" for x in acting))
    raise ConfigError(
        f"{where} was made from Python objects that its run file cannot hold: {', '.join(lacking)}. Pass the same "
        f"{' and '.join(needed)} in Python: {call}. Classes and functions "
        'in an imported module are recorded by their path, and need none of this (page "Your environment in JAX")'
    )


def _to_pass(run_config: Config) -> list[str]:
    """Return the arguments of `resume` ("agent", "env") that a run needs, as its run file cannot hold them."""
    return sorted({_root(place) for place in config.objects_of(run_config)} - {*NOT_NEEDED})


def _arguments(names: Sequence[str]) -> str:
    return ", ".join(f"{name}={name}" for name in names)


def resume_line(run_config: Config, path: Path) -> str:
    """Return the command, or the call in Python, that resumes the run in the directory `path`."""
    needed = _to_pass(run_config)
    if needed:
        return f"ppax.resume({str(relative(path))!r}, {_arguments(needed)}) in Python"
    return f"ppax resume {quoted(path)}{trust_flags([run_config], SOURCE)}"


def trust_flags(run_configs: Iterable[Config], *without: str) -> str:
    """Return options such as " --trust my_package" as text, to be appended to a command that reads recorded runs.

    There is one for each package, path or address that the runs' configurations name and the user's settings do not
    trust, and for each package that the present command line trusts; "" if there is none. Names in the tables `without`
    of the configurations are left out, as the command does not read these tables.
    """
    return imports.flags(names_to_trust(run_configs, *without))


def to_act(run_config: Config) -> Config:
    """Return the configuration with its list of recorded Python objects reduced to those that acting needs.

    So a policy can be loaded without passing objects that only learning needs, such as a loss.
    """
    places = [place for place in config.objects_of(run_config) if not _of_learning(place)]
    return {name: value for name, value in run_config.items() if name != OBJECTS} | {OBJECTS: places}


def without_learning(run_config: Config) -> Config:
    """Return the configuration with default parts in place of user-defined ones that acting does not need.

    Parts are swappable objects of an agent, and a user-defined one is named by its import path. Acting needs no loss,
    for example.
    """
    kept = {place: x for place, x in flatten(run_config) if ".extensions." not in f".{place}"}  # all: they name files
    return config.plain(unflatten(kept), lambda place: place.startswith("log.") or _of_learning(_in_agent(place)))


def _in_agent(place: str) -> str:
    """Return the dotted path of a part as it is in a run without groups.

    For "groups.NAME.agent.loss.part" this is "agent.loss.part". Other paths are returned unchanged.
    """
    return ".".join(place.split(".")[2:]) if place.startswith("groups.") else place


def _of_learning(place: str) -> bool:
    """Return True if only learning, not acting, reads the object at the dotted path `place`, such as "agent.loss"."""
    root, *fields = place.partition(" ")[0].split(".")
    while fields and fields[0] in ("agent", "agents"):
        fields = fields[1:] if fields[0] == "agent" else fields[2:]
    return root in NOT_NEEDED or (root == "agent" and bool(fields) and fields[0] in LEARNING)


def callbacks_of(run_config: Config) -> str:
    """Return the names of the callbacks of a run as one text; "" without callbacks."""
    places = [place for place in config.objects_of(run_config) if _root(place) == "callbacks"]
    return places[0].partition("(")[2].rpartition(")")[0] if places else ""


def recorded(run_config: Config) -> Config:
    """Return `run_config` so that it can be built: default parts replace user-defined ones without an import path.

    Parts are swappable objects of the agent, such as its loss.
    """
    flat = {path: value for path, value in flatten(run_config) if path != OBJECTS}
    user_defined = [
        f"{path.rpartition('.')[0]}.part"
        for path, value in flat.items()
        if path.endswith((".part", ".module")) and "." in str(value) and not imports.is_path(value)
    ]
    return unflatten(config.without_parts(flat, user_defined))


def same_value(value: Any, other: Any) -> bool:
    """Return True if two values of a configuration are the same; numbers are compared in float32, as used."""
    return not list(_differences(value, other, ""))


def _root(place: str) -> str:
    return place.partition(" ")[0].partition(".")[0]


def _of_env(env: Any, run_config: Config) -> list[str]:
    factories = backend_of(env).factories
    if factories is not None:  # rebuilding it could start processes
        by_name = env.name.partition("/")[0] in envs.HOST_SUITES and all(map(_of_library, factories))
        own = config.own_environment(env)
        by_path = bool(own) and same_value(own, {name: run_config.get(name) for name in own})
        return [] if by_name or by_path or env.settings.by_name else [f"env ({env.name})"]
    try:
        with _as_given(run_config):
            rebuilt = config.build_env(_without_agents(recorded(run_config)))
    except Exception:  # an unknown name, or any exception of a suite
        return [f"env ({_class_name(env.env)})"]
    unnamed = imports.is_path(run_config["env"]) or not env.name
    given = dataclasses.replace(env, name=rebuilt.name) if unnamed else env
    return list(_differences(given, rebuilt, "env"))


def _without_agents(run_config: Config) -> Config:
    """Return a configuration without its agents, which may be of classes that cannot be built from a file.

    Groups keep only their `players`, the agents inside the environment that are in them.
    """
    groups = {name: {"players": table.get("players")} for name, table in run_config.get("groups", {}).items()}
    return {name: x for name, x in run_config.items() if name != "agent"} | ({"groups": groups} if groups else {})


def _as_given(run_config: Config) -> contextlib.AbstractContextManager[None]:
    """Return a context that trusts all packages, paths and addresses in a configuration, so that it can be built again.

    The configuration describes objects that the user has passed in Python, so that the names in it are the user's
    choice and not a stranger's.
    """
    return imports.trusting(names_to_trust([run_config]))


def names_to_trust(run_configs: Iterable[Config], *without: str) -> set[str]:
    """Return the packages, paths and addresses that configurations name, as `ppax.trust` takes them.

    Paths and addresses in the tables that `without` names are left out.
    """
    found: set[str] = set()
    for run_config in run_configs:
        found |= {config.package_of(path) for path in config.import_paths(run_config).values()}
        used = {name: x for name, x in recorded(run_config).items() if name not in without}
        with imports.trusting(found):
            found |= {one.name for one in config.outside(used).values()}
    return found


def _of_agent(agent: Agent, env: Env, run_config: Config) -> list[str]:
    try:
        with _as_given(run_config):
            rebuilt = config.build_agent(recorded(run_config), env, agent.pool or Pool())
    except Exception:  # e.g. no built-in network fits the spaces
        return [f"agent ({_class_name(agent)})"]
    return list(_differences(agent, rebuilt, "agent"))


def _differences(given: Any, rebuilt: Any, path: str) -> Iterator[str]:
    """Yield a text for each dotted path at which `given` differs from `rebuilt`, such as "agent.loss (MyLoss)".

    The text has the path, which begins with `path`, and the class of the object there in `given`; for a number it is
    the path alone. Numbers are compared in float32.
    """
    if _is_number(given) and _is_number(rebuilt):
        same = np.array_equal(np.asarray(given, np.float32), np.asarray(rebuilt, np.float32), equal_nan=True)
        yield from () if same else (path,)
        return
    parts, others = _parts(given), _parts(rebuilt)
    if type(given) is not type(rebuilt) or parts.keys() != others.keys():
        yield f"{path} ({_class_name(given)})"
        return
    for name in parts:
        yield from _differences(parts[name], others[name], f"{path}.{name}")
    if not parts and not _equal(given, rebuilt):
        yield f"{path} ({_class_name(given)})"


def _parts(x: Any) -> dict[Any, Any]:
    """Return the fields of a dataclass, or the entries of a dict, list or tuple, by name or position; {} for others."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = {field.name: getattr(x, field.name) for field in dataclasses.fields(x) if field.compare}
        return fields | {name: {name_of(one): one for one in fields[name]} for name in slot_chains(type(x))}
    if isinstance(x, tuple | list):
        return dict(zip(getattr(x, "_fields", range(len(x))), x, strict=True))
    return x if isinstance(x, dict) else {}


def _equal(given: Any, rebuilt: Any) -> bool:
    if given is rebuilt:
        return True
    if inspect.isfunction(given):  # rebuilt functions: compare code and closure
        mine, theirs = ([cell.cell_contents for cell in f.__closure__ or ()] for f in (given, rebuilt))
        return bool(given.__code__ == rebuilt.__code__) and not list(_differences(mine, theirs, ""))
    if getattr(type(given), "__eq__", None) is getattr(object, "__eq__", None):
        return True  # objects without equality, as environments of other libraries: the types are compared already
    try:
        return bool(given == rebuilt)
    except Exception:  # comparison of arrays, or any exception of a user's class
        return False


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float | np.ndarray | np.generic | jax.Array)


def _of_library(function: Callable[..., Any]) -> bool:
    """Return True if a function that makes an environment is defined in one of LIBRARIES: ppax, gymnasium and others.

    Such an environment can be made again by its name. A `functools.partial` passes if its function does, and all
    functions among its arguments.
    """
    if isinstance(function, partial):
        inner = [function.func, *(x for x in (*function.args, *function.keywords.values()) if callable(x))]
        return all(map(_of_library, inner))
    return getattr(function, "__module__", "").partition(".")[0] in LIBRARIES


def _class_name(x: Any) -> str:
    return getattr(x, "__name__", type(x).__name__)
