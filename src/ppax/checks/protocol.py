"""Checks that run no step: interface, declared spaces, weak types, and side effects of tracing."""

from __future__ import annotations

import dataclasses
import numbers as kinds
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from ppax.arrays import masks
from ppax.checks.environment import reset_and_step
from ppax.checks.report import Finding, none_of
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers.action_repeat import ActionRepeat
from ppax.envs.wrappers.partial_view import PartialView
from ppax.envs.wrappers.time_limit import TimeLimit
from ppax.networks.observations import entries

MISSING = object()
METHODS = {
    "reset": "reset(key) -> ppax.core.types.EnvReset(state, obs)",
    "step": "step(state, action, key) -> ppax.core.types.EnvStep(state, obs, reward, terminated, truncated)",
}


def check_protocol(env: VectorEnv, key: Key) -> Finding:
    """Check that the environment is a part with the methods and attributes of the `Environment` protocol."""
    inner: Any = env.env
    while isinstance(inner, TimeLimit | ActionRepeat | PartialView):  # check the user's environment, not our wrappers
        inner = inner.env
    env = dataclasses.replace(env, env=inner)
    problems = [*_methods(inner), *_attributes(inner), *_leaves(inner)]
    if not problems:
        begin = jax.eval_shape(inner.reset, key)
        if not isinstance(begin, EnvReset):
            problems = [f"reset returns a {type(begin).__name__}, not an EnvReset: {METHODS['reset']}"]
        else:
            after = jax.eval_shape(lambda key: reset_and_step(env, key), key)[1]
            if not isinstance(after, EnvStep):
                problems = [f"step returns a {type(after).__name__}, not an EnvStep: {METHODS['step']}"]
    return none_of(
        problems,
        "reset, step, spaces and num_agents are there",
        "Write it as a part, `@ppax.part class MyWorld`, with observation_space, action_space, num_agents (None for "
        "one agent), reset and step; help(ppax.envs.TimeLimit) shows one.",
    )


def check_declared(env: Any) -> Finding:
    """Check that networks can read the declared observations and heads can produce the declared actions."""
    problems = list(_actions(env.action_space))
    try:
        list(entries(env.observation_space))
    except ConfigError as error:
        problems.append(str(error))
    return none_of(
        problems,
        "networks and heads support the declared spaces",
        "Declare a Box for real numbers, with true or infinite bounds, a Discrete for a choice, a Dict for several "
        "spaces.",
    )


def check_types(env: VectorEnv, key: Key) -> Finding:
    """Check that no leaf of state and observation has a weak type."""
    begin, after = jax.eval_shape(lambda key: reset_and_step(env, key), key)
    problems = []
    for verb, given in (("reset", begin), ("step", after)):
        tree = {"state": given.state, "obs": given.obs}  # carried from step to step, unlike rewards and flags
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if leaf.weak_type:
                place = jax.tree_util.keystr(path, simple=True, separator=".")
                problems.append(
                    f"{place} of {verb} is weakly typed {leaf.dtype}: made from Python numbers; give a dtype"
                )
    return none_of(
        problems,
        "no leaf of state and observation is weakly typed",
        "Weak types are promoted by other types, so that types change from step to step and programs compile twice: "
        "write jnp.zeros((), jnp.float32), not 0.0, and jnp.where(up, 1.0, -1.0).astype(jnp.float32).",
    )


def check_side_effects(env: VectorEnv, key: Key) -> Finding:
    """Check that tracing reset and step changes no attribute of the environment."""
    inner: Any = env.env
    before = {name: _short(value) for name, value in vars(inner).items()}
    jax.eval_shape(lambda key: reset_and_step(env, key), key)
    after = {name: _short(value) for name, value in vars(inner).items()}
    changed = [f"{name} was {before[name]}, is {after.get(name)}" for name in before if after.get(name) != before[name]]
    new = [name for name, value in vars(inner).items() if name not in before and isinstance(value, jax.core.Tracer)]
    changed += [f"{name} holds a tracer" for name in new]
    return none_of(
        changed,
        "reset and step leave the environment itself as it is",
        "Python code runs only once, when the program is traced: values that change from step to step must be in the "
        "state that step returns.",
    )


def _methods(inner: Any) -> Iterator[str]:
    for method, signature in METHODS.items():
        if not callable(getattr(inner, method, None)):
            yield f"there is no {method}: {signature}"


def _attributes(inner: Any) -> Iterator[str]:
    for name in ("observation_space", "action_space"):
        value = getattr(inner, name, MISSING)
        if value is MISSING:
            yield f"there is no {name}: a gymnasium.spaces space"
        elif not isinstance(value, spaces.Space):
            yield f"{name} is a {type(value).__name__}, not one of gymnasium.spaces (spaces.Box, spaces.Discrete, ...)"
    agents = getattr(inner, "num_agents", MISSING)
    if agents is MISSING:
        yield "there is no num_agents: None without an agent axis, else its length"
    elif agents is not None and not all(isinstance(n, int) and n >= 1 for n in _counts(agents)):
        yield f"num_agents = {agents!r}: must be None (no agent axis), an int of at least 1, or a dict of them by group"


def _counts(agents: Any) -> list[Any]:
    return list(agents.values()) or [0] if isinstance(agents, dict) else [agents]


def _leaves(inner: Any) -> Iterator[str]:
    """Yield messages about leaves that are no numbers, and about static fields that cannot be hashed."""
    leaves, structure = jax.tree.flatten(inner)
    for leaf in leaves:
        if not isinstance(leaf, kinds.Number | np.ndarray | np.generic | jax.Array):
            problem = "the class is no part" if leaf is inner else f"a leaf is a {type(leaf).__name__}"
            yield f"{problem}: decorate it with @ppax.part, and make sizes and choices ppax.static(...) fields"
            return
    try:
        hash(structure)
    except TypeError as error:
        yield f"a static field cannot be hashed ({error}): use tuples, not lists, dicts or arrays"


def _actions(space: spaces.Space) -> Iterator[str]:
    """Yield messages about action spaces that heads do not support."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for inner in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _actions(inner)
    elif masks.size_of(space) is None:
        yield f"action space {space}: supported are Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple of them"
    elif isinstance(space, spaces.Box) and (space.low == space.high).any():
        yield f"action space {space} has a number with one value only (low = high): leave it out"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
