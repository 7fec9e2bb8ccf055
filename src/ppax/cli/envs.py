"""Command `ppax envs`: list environments that are installed or need an extra, or describe one environment."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import io
from collections.abc import Iterator
from typing import Any

from ppax import envs
from ppax.core import imports
from ppax.envs import imported
from ppax.envs.suites import registry
from ppax.envs.suites.gymnasium import constructor_arguments, gymnasium_spec
from ppax.envs.wrappers import params
from ppax.envs.wrappers.params import can_be_drawn, is_number
from ppax.envs.wrappers.time import ActionRepeat, TimeLimit
from ppax.training.backends import backend_of

MANY, FEW = 300, 20  # a suite of more than MANY ids is listed by its first FEW
LIMITS = ("time_limit", "max_steps")  # attributes in which suites keep their own time limit


def add_envs(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax envs` has."""
    text = "environment to describe, an id or an import path: spaces, agents, time limit, parameters"
    parser.add_argument("name", nargs="?", help=text)


def run_envs(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Print the list of environments, or the description of one that is named; return the same as data for JSON."""
    if options.name is not None:
        about = describe_env(options.name)
        there = {name: _shown(value) for name, value in about.items() if value not in ([], {}, "")}
        width = max(map(len, there))
        if not options.json:
            say("\n".join(f"{name:<{width}}  {text}" for name, text in there.items()))
        return about
    listed = catalogue()
    tasks = {name: task_of(make()) for name, make in envs.BUILTIN.items()}
    width = max(map(len, tasks))
    lines = ["built in:", *(f"  {name:<{width}}  {task}" for name, task in tasks.items())]
    if listed["registered"]:
        lines += ["of installed packages, with --trust PACKAGE:"]
        lines += [f"  {name:<16} {path}" for name, path in listed["registered"].items()]
    for suite, names in listed["installed"].items():
        shown = [f"  {suite}/{name}" for name in names]
        lines += [
            f"{suite}:",
            *(shown if len(shown) <= MANY else [*shown[:FEW], f"  and {len(shown) - FEW:,} more: --json"]),
        ]
    lines += [f"{suite} is installed and cannot be imported: {why}" for suite, why in listed["broken"].items()]
    lines += ["with an extra:"] if listed["extras"] else []
    lines += [f'  {suite + "/ID":<16} pip install "ppax[{suite}]"' for suite in listed["extras"]]
    if not options.json:
        say("\n".join(lines))
    return listed


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_shown(inner)}" for name, inner in value.items()) or "{}"
    return "none" if value is None else str(value)


def catalogue() -> dict[str, Any]:
    """Return all environments by their origin: "builtin", "registered" (by packages) and "installed" (by suite).

    The first two are lists of names, "installed" is a dict of lists. Two more entries are "broken", a dict of the
    suites that cannot be imported, with the error texts, and "extras", the list of suites that need an extra of ppax.
    """
    listed: dict[str, list[str]] = {}
    broken: dict[str, str] = {}
    every = [*registry.HOST_SUITES, *registry.SUITES]
    for suite in filter(registry.installed, every):
        try:
            with without_output():
                listed[suite] = registry.ids(suite)
        except Exception as error:  # incompatible versions of libraries raise anything
            broken[suite] = " ".join(f"{type(error).__name__}: {error}".split())
    extras = [suite for suite in every if suite not in listed and suite not in broken]
    registered = imports.registered("env")
    found = {"builtin": list(envs.BUILTIN), "registered": registered}
    return found | {"installed": listed, "broken": broken, "extras": extras}


@contextlib.contextmanager
def without_output() -> Iterator[None]:
    """Return a context in which nothing is printed; some suites report missing optional packages when imported."""
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def describe_env(name: str) -> dict[str, Any]:
    """Return the description of an environment: spaces, agents, time limit, resets and parameters with their defaults.

    Listed under "can_be_drawn" are the parameters that a reset can draw at random. An environment that needs parameters
    without a default cannot be made for this: only its parameters are described.
    """
    found = imported.find_env(name) if imported.is_own(name) else None
    arguments = {key: x.default for key, x in imported.parameters_of(found).items() if key != "render_mode"}
    needed = imported.needed(found)
    if needed:  # without them it cannot be made
        fields = dataclasses.fields(found) if dataclasses.is_dataclass(found) else ()
        sizes = {field.name for field in fields if field.metadata.get("static")}
        drawn = [
            key
            for key, default in arguments.items()
            if key not in sizes and (default is inspect.Parameter.empty or is_number(default))
        ]
        defaults = {key: default for key, default in arguments.items() if key not in needed}
        return {"name": name, "needed": needed, "env_params": defaults, "can_be_drawn": drawn}
    env: Any = envs.make(name, num_envs=1)
    spaces = {"observation_space": str(env.observation_space), "action_space": str(env.action_space)}
    suite, _, env_id = name.partition("/")
    agents = {"agents": env.num_agents} | ({"agent_names": list(env.agent_names)} if env.agent_names else {})
    if backend_of(env).name == "host":
        is_gymnasium = suite == "gymnasium"
        limit = gymnasium_spec(env_id).max_episode_steps if is_gymnasium else None
        about = {"name": name, **spaces, **agents, "time_limit": limit, "stepped": "on the host"}
        if not is_gymnasium and found is None:
            return about
        arguments = constructor_arguments(env_id) if is_gymnasium else arguments
        drawn = [key for key, default in arguments.items() if is_number(default) and env.host.spec.agents is None]
        return about | {"env_params": arguments, "can_be_drawn": drawn}
    resets = getattr(env.resets, "__name__", type(env.resets).__name__)
    inner = {"task": task_of(env.env), **agents, "time_limit": time_limit(env.env), "resets": resets}
    known = params.parameters(env.env)
    numbers = {key: params.parameter_value(env.env, key) for key in known}
    drawn = [key for key, place in known.items() if can_be_drawn(place)]
    return {"name": name, **spaces, **inner, "env_params": arguments | numbers, "can_be_drawn": drawn}


def task_of(env: Any) -> str:
    """Return the task of a compiled environment in words: the first line of its class's docstring, without wrappers."""
    while getattr(env, "env", None) is not None:
        env = env.env
    text = type(env).__doc__ or ""  # not inherited: a base class describes no task
    if text.startswith(f"{type(env).__name__}("):  # that of a dataclass without a docstring: its fields
        return ""
    return next(iter(inspect.cleandoc(text).splitlines()), "")


def time_limit(env: Any) -> int | None:
    """Return the number of steps after which a compiled environment truncates an episode; None if unknown."""
    if isinstance(env, TimeLimit):
        return int(env.max_steps)
    if isinstance(env, ActionRepeat):
        inner = time_limit(env.env)
        return None if inner is None else -(-inner // env.repeats)
    own = getattr(env, "env", None)
    limits = (getattr(own, name, None) for name in LIMITS)
    return next((int(limit) for limit in limits if limit is not None), None)
