"""Checks of a JAX-native environment without an agent: interface, shapes, types, PRNG keys, determinism, resets."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import numbers as kinds
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays import masks
from ppax.checks.context import differing_leaves, labelled_leaves
from ppax.checks.report import Check, CheckResult, attempt, none_of, skip
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree
from ppax.envs.hosting.arrays import element_of, in_32_bits, leaves_of
from ppax.envs.vector import VectorEnv, narrow
from ppax.envs.wrappers.time import ActionRepeat, TimeLimit
from ppax.envs.wrappers.views import PartialView
from ppax.networks.observations import entries

MISSING = object()
METHODS = {
    "reset": "reset(key) -> ppax.core.types.EnvReset(state, obs)",
    "step": "step(state, action, key) -> ppax.core.types.EnvStep(state, obs, reward, terminated, truncated)",
}


def check_protocol(env: VectorEnv, key: Key) -> CheckResult:
    """Check that the environment is a frozen dataclass (`@ppax.part`) that has all of the `Environment` protocol."""
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


def check_declared(env: Any) -> CheckResult:
    """Check that ppax has networks for the declared observation space, and heads for the declared action space."""
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


def check_types(env: VectorEnv, key: Key) -> CheckResult:
    """Check that no array in state and observation is weakly typed, as JAX arrays made from Python numbers are."""
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


def check_side_effects(env: VectorEnv, key: Key) -> CheckResult:
    """Check that tracing reset and step changes no attribute of the environment."""
    inner: Any = env.env
    before = {name: repr(value) for name, value in vars(inner).items()}
    jax.eval_shape(lambda key: reset_and_step(env, key), key)
    after = {name: repr(value) for name, value in vars(inner).items()}
    changed = [f"{name} {_change(text, after.get(name))}" for name, text in before.items() if after.get(name) != text]
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
    """Yield a message if a field of the environment `inner` is one that JAX cannot handle; nothing otherwise.

    That is a static field that cannot be hashed, or any other field whose value is neither a number nor an array, nor a
    tree of these. `inner` is the user's environment without ppax's wrappers.
    """
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
    """Yield messages about `space`, or spaces inside it, that no action head supports or that have low = high."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for inner in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _actions(inner)
    elif masks.size_of(space) is None:
        yield f"action space {space}: supported are Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple of them"
    elif isinstance(space, spaces.Box) and (space.low == space.high).any():
        yield f"action space {space} has a number with one value only (low = high): leave it out"


def _change(before: str, after: str | None) -> str:
    """Return how the text of a value has changed, in words that show the first difference of two long texts."""
    if after is None:
        return f"was {_short(before)}, is gone"
    pairs = itertools.zip_longest(before, after)
    same = next(place for place, (old, new) in enumerate(pairs) if old != new)
    begin = max(0, same - SHORT // 2) if max(len(before), len(after)) > SHORT else 0
    return f"was {_short(before, begin)}, is {_short(after, begin)}"


SHORT = 40  # characters of a value in a message


def _short(text: str, begin: int = 0) -> str:
    """Return at most SHORT characters of a text, from character `begin` on."""
    cut = f"...{text[begin:]}" if begin else text
    return cut if len(cut) <= SHORT else f"{cut[: SHORT - 3]}..."


RESETS = 16
DRAWS = {"random_bits", "threefry2x32", "rng_bit_generator", "random_gamma"}


def check_shapes(env: VectorEnv, key: Key) -> CheckResult:
    """Check shapes and types of observations, rewards, flags, masks and state against the spaces and the protocol."""
    begin, step = jax.eval_shape(lambda key: reset_and_step(env, key), key)
    axis = () if env.env.num_agents is None else (env.num_agents,)
    groups = {name: _like_space(one.observation_space, (one.num_agents,)) for name, one in env.groups.items()}
    expected = groups or _like_space(env.observation_space, axis)
    flag, reward = jax.ShapeDtypeStruct(axis, bool), jax.ShapeDtypeStruct(axis, jnp.float32)
    problems = [
        *_differences("obs at reset", _narrowed(env, begin.obs), expected),
        *_differences("obs after a step", _narrowed(env, step.obs), expected),
        *_differences("reward", _narrow(step.reward), reward),
        *_differences("terminated", step.terminated, flag),
        *_differences("truncated", step.truncated, flag),
        *_differences("state after a step", step.state, begin.state),
        *_differences("action_mask after a step", step.action_mask, begin.action_mask),
    ]
    if begin.action_mask is not None and isinstance(env.action_space, spaces.Discrete):
        mask = jax.ShapeDtypeStruct((*axis, int(env.action_space.n)), bool)
        problems += _differences("action_mask at reset", begin.action_mask, mask)
    return none_of(
        problems,
        "of observations, rewards, flags, masks and state are as declared, and constant",
        "The network and the compiled loop are made for the declared spaces: return those types "
        "(jnp.asarray(x, jnp.float32)), or declare the returned ones.",
    )


def checks_without_agent(env: VectorEnv, key: Key) -> list[Check]:
    """Return the results of those checks of `selftest` that examine the environment only, without the agent."""
    checks = {"shapes": check_shapes, "keys": check_keys, "environment": check_repeats, "resets": check_resets}
    keys = jax.random.split(key, len(checks))
    return [attempt(name, check, env, key) for (name, check), key in zip(checks.items(), keys, strict=True)]


def check_keys(env: VectorEnv, key: Key) -> CheckResult:
    """Check that `reset` and `step` use no PRNG key twice."""
    problems = []
    with jax.debug_key_reuse(True):
        try:
            jax.block_until_ready(jax.jit(lambda key: reset_and_step(env, key))(jax.random.clone(key)))
        except jax.errors.KeyReuseError as error:
            problems = [f"a key is used twice: {' '.join(str(error).split())[:120]}"]
    return none_of(
        problems,
        "are each used once in reset and step",
        "Samples from the same key are equal: key, other = jax.random.split(key), and sample once from each.",
    )


def check_repeats(env: VectorEnv, key: Key) -> CheckResult:
    """Check that a step with the same key and action gives the same result in two separately compiled programs."""
    # a new function each time, so that both are traced and state kept in Python between traces shows
    one, other = (jax.jit(lambda key: reset_and_step(env, key))(jax.random.clone(key)) for _ in range(2))
    return none_of(
        [f"{path} differs" for path in differing_leaves(one, other)],
        "the same key and action give the same step, bit for bit",
        "reset and step must be functions of their arguments: no numpy.random, no counter or list in Python; "
        "keep what changes in the state, and sample with jax.random from the key.",
    )


def check_resets(env: VectorEnv, key: Key) -> CheckResult:
    """Check that different keys give different initial states; skipped if reset draws no random numbers."""
    begin = jax.jit(jax.vmap(env.env.reset))(jax.random.split(key, RESETS))
    rows = [x.reshape(RESETS, -1) for _, x in labelled_leaves(_without_keys((begin.state, begin.obs)))]
    distinct = len({b"".join(x[i].tobytes() for x in rows) for i in range(RESETS)})
    if distinct == 1:
        if not _is_random(jax.make_jaxpr(env.env.reset)(jax.random.key(0)).jaxpr):
            return skip("reset draws nothing at random: all episodes start in the same state")
        return CheckResult(
            False,
            f"{RESETS} keys give the same start",
            1.0,
            "reset draws random numbers, but not from the key that it is given: use that key, not one made inside.",
        )
    return CheckResult(True, f"{RESETS} keys give {distinct} different starts", float(distinct))


def reset_and_step(env: VectorEnv, key: Key) -> tuple[EnvReset, EnvStep]:
    """Return the results of one reset of one environment, and of one step with an action of its action space."""
    reset_key, step_key = jax.random.split(key)
    begin = env.env.reset(reset_key)
    groups = {name: _some_actions(one.action_space, one.num_agents) for name, one in env.groups.items()}
    action = groups or _some_actions(env.action_space, env.num_agents)
    if env.env.num_agents is None:
        action = jax.tree.map(lambda x: x[0], action)
    return begin, env.env.step(begin.state, action, step_key)


def _some_actions(space: spaces.Space, agents: int) -> PyTree:
    """Return actions sampled from `space` for `agents` agents, stacked: [agents, ...]."""
    space = copy.deepcopy(space)  # its random state is the user's
    space.seed(0)
    actions = [_plain(space.sample()) for _ in range(agents)]
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *actions)


def _like_space(space: spaces.Space, axis: tuple[int, ...]) -> PyTree:
    shapes = (jax.ShapeDtypeStruct((*axis, *leaf.shape), leaf.dtype) for leaf in leaves_of(space))
    return element_of(space, shapes)


def _narrow(tree: PyTree) -> PyTree:
    """Return the shapes and dtypes of a tree of arrays after `VectorEnv` has converted 64-bit dtypes to 32-bit ones."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, in_32_bits(x.dtype)), tree)


def _narrowed(env: VectorEnv, obs: PyTree) -> PyTree:
    """Return the shapes and dtypes of observations as `VectorEnv` returns them: with 32-bit dtypes for 64-bit ones."""
    shapes: PyTree = jax.eval_shape(partial(narrow, env.observation_space), obs)
    return shapes


def _plain(tree: Any) -> Any:
    """Return `tree` with plain dicts in place of subclasses of dict, such as OrderedDict.

    JAX regards trees with different kinds of dicts as different structures.
    """
    return {name: _plain(x) for name, x in tree.items()} if isinstance(tree, dict) else tree


def _differences(name: str, given: PyTree, expected: PyTree) -> Iterator[str]:
    if jax.tree.structure(given) != jax.tree.structure(expected):  # type: ignore[operator]
        yield f"{name} is {jax.tree.structure(given)}, not {jax.tree.structure(expected)}"
        return
    leaves = jax.tree_util.tree_leaves_with_path(given)
    for (path, a), b in zip(leaves, jax.tree.leaves(expected), strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            yield f"{name}{jax.tree_util.keystr(path)} is {_shape_text(a)}, not {_shape_text(b)}"


def _shape_text(x: Any) -> str:
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"


def _without_keys(tree: PyTree) -> list[Array]:
    return [x for x in jax.tree.leaves(tree) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]


def _is_random(jaxpr: Any) -> bool:
    """Return True if a jaxpr (JAX's traced program), or one inside it, draws random numbers."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in DRAWS:
            return True
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns") and _is_random(inner):
                return True
    return False
