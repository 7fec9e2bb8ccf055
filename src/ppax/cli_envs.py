"""`ppax envs`: the environments that are here, those that an extra would add, and what one of them is like."""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium

from ppax import envs
from ppax.envs import suites
from ppax.envs.action_repeat import ActionRepeat
from ppax.envs.time_limit import TimeLimit

LIMITS = ("time_limit", "max_steps")  # where suites keep limits of their own


def add_envs(parser: argparse.ArgumentParser) -> None:
    """Options that only `ppax envs` has."""
    parser.add_argument("name", nargs="?", help="describe this one: spaces, agents, time limit")


def run_envs(options: argparse.Namespace, say: Any) -> dict[str, Any]:
    """Say what there is, or what one environment is like; the same as plain data."""
    if options.name is not None:
        about = describe(options.name)
        width = max(map(len, about))
        say("\n".join(f"{name:<{width}}  {'none' if value is None else value}" for name, value in about.items()))
        return about
    there = catalogue()
    lines = ["built in:", *(f"  {name}" for name in there["builtin"])]
    for suite, names in there["installed"].items():
        lines += [f"{suite}:", *(f"  {suite}/{name}" for name in names)]
    lines += [f"{suite} is installed and cannot be imported: {why}" for suite, why in there["broken"].items()]
    lines += ["with an extra:"] if there["extras"] else []
    lines += [f'  {suite + "/ID":<16} pip install "ppax[{suite}]"' for suite in there["extras"]]
    say("\n".join(lines))
    return there


def catalogue() -> dict[str, Any]:
    """Built-in names, the ids of installed suites, why others do not import, and the extras that would add more."""
    there: dict[str, list[str]] = {"gymnasium": gymnasium_ids()}
    broken: dict[str, str] = {}
    for suite in filter(suites.installed, suites.SUITES):
        try:
            there[suite] = suites.ids(suite)
        except Exception as error:  # whatever a library that does not fit the others can raise
            broken[suite] = " ".join(f"{type(error).__name__}: {error}".split())
    extras = [suite for suite in suites.SUITES if suite not in there and suite not in broken]
    return {"builtin": list(envs.BUILTIN), "installed": there, "broken": broken, "extras": extras}


def gymnasium_ids() -> list[str]:
    """What Gymnasium has registered, of each environment the newest version."""
    newest: dict[tuple[str | None, str], gymnasium.envs.registration.EnvSpec] = {}
    for spec in gymnasium.registry.values():
        known = newest.setdefault((spec.namespace, spec.name), spec)
        if (spec.version or 0) > (known.version or 0):
            newest[spec.namespace, spec.name] = spec
    return sorted(spec.id for spec in newest.values())


def describe(name: str) -> dict[str, Any]:
    """What the environment called `name` is like."""
    env = envs.make(name, num_envs=1)
    spaces = {"observation_space": str(env.observation_space), "action_space": str(env.action_space)}
    if isinstance(env, envs.HostEnv):
        limit = gymnasium.spec(name.partition("/")[2]).max_episode_steps
        return {"name": name, **spaces, "agents": 1, "time_limit": limit, "stepped": "on the host"}
    resets = type(env.resets).__name__ if not hasattr(env.resets, "__name__") else env.resets.__name__
    inner = {"agents": env.num_agents, "time_limit": time_limit(env.env), "resets": resets}
    return {"name": name, **spaces, **inner}


def time_limit(env: Any) -> int | None:
    """Steps after which an episode is cut; None where there is no such limit, or the suite does not say."""
    if isinstance(env, TimeLimit):
        return int(env.max_steps)
    if isinstance(env, ActionRepeat):
        inner = time_limit(env.env)
        return None if inner is None else -(-inner // env.repeats)
    own = getattr(env, "env", None)
    limits = (getattr(own, name, None) for name in LIMITS)
    return next((int(limit) for limit in limits if limit is not None), None)
