"""Checks that need no step taken: what an environment is, what its spaces declare, how its types move."""

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
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers.action_repeat import ActionRepeat
from ppax.envs.wrappers.partial_view import PartialView
from ppax.envs.wrappers.time_limit import TimeLimit
from ppax.networks.observations import entries
from ppax.types import ConfigError, EnvReset, EnvStep, Key

MISSING = object()
VERBS = {
    "reset": "reset(key) -> ppax.types.EnvReset(state, obs)",
    "step": "step(state, action, key) -> ppax.types.EnvStep(state, obs, reward, terminated, truncated)",
}


def check_protocol(env: VectorEnv, key: Key) -> Finding:
    """The environment is a part with the two verbs and three attributes of the protocol."""
    inner: Any = env.env
    while isinstance(inner, TimeLimit | ActionRepeat | PartialView):  # what they wrap is what may be wrong
        inner = inner.env
    env = dataclasses.replace(env, env=inner)
    problems = [*_verbs(inner), *_attributes(inner), *_leaves(inner)]
    if not problems:
        begin = jax.eval_shape(inner.reset, key)
        if not isinstance(begin, EnvReset):
            problems = [f"reset returns a {type(begin).__name__}, not an EnvReset: {VERBS['reset']}"]
        else:
            after = jax.eval_shape(lambda key: reset_and_step(env, key), key)[1]
            if not isinstance(after, EnvStep):
                problems = [f"step returns a {type(after).__name__}, not an EnvStep: {VERBS['step']}"]
    return none_of(
        problems,
        "it has what an environment has: reset, step, spaces, num_agents",
        "Write it as a part, `@ppax.part class MyWorld`, with observation_space, action_space, num_agents (None for "
        "one agent), reset and step; help(ppax.envs.TimeLimit) shows one.",
    )


def check_declared(env: Any) -> Finding:
    """Networks can read the observations that are declared, and heads make the actions."""
    problems = list(_actions(env.action_space))
    try:
        list(entries(env.observation_space))
    except ConfigError as error:
        problems.append(str(error))
    return none_of(
        problems,
        "the declared spaces are ones that networks read and heads act in",
        "Declare the space that the numbers have: Box for amounts, with bounds that hold or infinite ones, Discrete "
        "for a choice, Dict for several.",
    )


def check_types(env: VectorEnv, key: Key) -> Finding:
    """No number keeps the weak type of a Python number."""
    begin, after = jax.eval_shape(lambda key: reset_and_step(env, key), key)
    problems = []
    for verb, given in (("reset", begin), ("step", after)):
        tree = {"state": given.state, "obs": given.obs}  # what goes round; rewards and flags do not
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            if leaf.weak_type:
                place = jax.tree_util.keystr(path, simple=True, separator=".")
                problems.append(f"{place} of {verb} is a Python number, weakly typed {leaf.dtype}")
    return none_of(
        problems,
        "all of state and observation has types of its own, not the weak ones of Python numbers",
        "What is weak takes the type of whatever it meets, so that types drift from step to step and programs compile "
        "twice: write jnp.zeros((), jnp.float32) or jnp.asarray(x, jnp.float32), not 0.0.",
    )


def check_side_effects(env: VectorEnv, key: Key) -> Finding:
    """Nothing of the environment's own changes while it is traced."""
    inner: Any = env.env
    before = {name: _short(value) for name, value in vars(inner).items()}
    jax.eval_shape(lambda key: reset_and_step(env, key), key)
    now = {name: _short(value) for name, value in vars(inner).items()}
    changed = [f"{name} was {before[name]}, is {now.get(name)}" for name in before if now.get(name) != before[name]]
    new = [name for name, value in vars(inner).items() if name not in before and isinstance(value, jax.core.Tracer)]
    changed += [f"{name} holds a tracer" for name in new]
    return none_of(
        changed,
        "reset and step leave the environment itself as it is",
        "Python runs once, when the program is compiled, and never again: what changes from step to step must be in "
        "the state that step returns.",
    )


def _verbs(inner: Any) -> Iterator[str]:
    for verb, how in VERBS.items():
        if not callable(getattr(inner, verb, None)):
            yield f"there is no {verb}: {how}"


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
    """JAX must see numbers as numbers, and everything else as part of the program."""
    leaves, structure = jax.tree.flatten(inner)
    for leaf in leaves:
        if not isinstance(leaf, kinds.Number | np.ndarray | np.generic | jax.Array):
            what = "the class is no part" if leaf is inner else f"a leaf is a {type(leaf).__name__}"
            yield f"{what}: decorate it with @ppax.part, and make sizes and choices ppax.static(...) fields"
            return
    try:
        hash(structure)
    except TypeError as error:
        yield f"a static field cannot be hashed ({error}): use tuples, not lists, dicts or arrays"


def _actions(space: spaces.Space) -> Iterator[str]:
    """What heads cannot do."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for inner in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _actions(inner)
    elif masks.size_of(space) is None:
        yield f"action space {space}: supported are Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple of them"
    elif isinstance(space, spaces.Box) and (space.low == space.high).any():
        yield f"action space {space} has a number with one value only: leave it out"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
