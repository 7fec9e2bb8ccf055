"""Checks of the environment alone: shapes, keys, and that it is a function of its arguments."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.checks.report import Finding, none_of, skip
from ppax.checks.world import numbers, unlike
from ppax.envs.hosting.arrays import in_32_bits
from ppax.envs.vector import VectorEnv
from ppax.types import EnvReset, EnvStep, Key, PyTree

RESETS = 16
DRAWS = {"random_bits", "threefry2x32", "rng_bit_generator", "random_gamma"}


def check_shapes(env: VectorEnv, key: Key) -> Finding:
    """Observations, rewards, flags, masks and state have the shapes and types that the spaces and the protocol say."""
    begin, step = jax.eval_shape(lambda key: reset_and_step(env, key), key)
    axis = () if env.env.num_agents is None else (env.num_agents,)
    groups = {name: _like_space(one.observation_space, (one.num_agents,)) for name, one in env.groups.items()}
    expected = groups or _like_space(env.observation_space, axis)
    flag, reward = jax.ShapeDtypeStruct(axis, bool), jax.ShapeDtypeStruct(axis, jnp.float32)
    problems = [
        *_differences("obs at reset", _narrow(begin.obs), expected),
        *_differences("obs after a step", _narrow(step.obs), expected),
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
        "of observations, rewards, flags, masks and state are as declared, and stay",
        "The network and the compiled loop are made for what the spaces declare: return those types "
        "(jnp.asarray(x, jnp.float32)), or declare what is returned.",
    )


def check_keys(env: VectorEnv, key: Key) -> Finding:
    """`reset` and `step` draw from each key once."""
    problems = []
    with jax.debug_key_reuse(True):
        try:
            jax.block_until_ready(jax.jit(lambda key: reset_and_step(env, key))(jax.random.clone(key)))
        except jax.errors.KeyReuseError as error:
            problems = [f"a key is used twice: {' '.join(str(error).split())[:120]}"]
    return none_of(
        problems,
        "are each used once in reset and step",
        "What is drawn from one key twice is the same numbers twice: key, other = jax.random.split(key), "
        "and draw once from each.",
    )


def check_repeats(env: VectorEnv, key: Key) -> Finding:
    """The same key and action give the same result, in another program too."""
    # a new function each time, so that both are traced: what Python remembers between traces shows
    one, other = (jax.jit(lambda key: reset_and_step(env, key))(jax.random.clone(key)) for _ in range(2))
    return none_of(
        [f"{path} differs" for path in unlike(one, other)],
        "the same key and action give the same step, bit for bit",
        "reset and step must be functions of their arguments: no numpy.random, no counter or list in Python; "
        "keep what changes in the state, and draw with jax.random from the key.",
    )


def check_resets(env: VectorEnv, key: Key) -> Finding:
    """Episodes begin differently where anything is drawn."""
    begin = jax.jit(jax.vmap(env.env.reset))(jax.random.split(key, RESETS))
    rows = [x.reshape(RESETS, -1) for _, x in numbers(_without_keys((begin.state, begin.obs)))]
    distinct = len({b"".join(x[i].tobytes() for x in rows) for i in range(RESETS)})
    if distinct == 1:
        if not _draws(jax.make_jaxpr(env.env.reset)(jax.random.key(0)).jaxpr):
            return skip("reset draws nothing at random, so every episode begins alike")
        return Finding(
            False,
            f"{RESETS} keys give one and the same start",
            1.0,
            "reset draws random numbers, but not from the key that it is given: use that key, not one made inside.",
        )
    return Finding(True, f"{RESETS} keys give {distinct} different starts", float(distinct))


def reset_and_step(env: VectorEnv, key: Key) -> tuple[EnvReset, EnvStep]:
    """A reset of one environment, and a step from there with some action."""
    reset_key, step_key = jax.random.split(key)
    begin = env.env.reset(reset_key)
    groups = {name: _some_actions(one.action_space, one.num_agents) for name, one in env.groups.items()}
    action = groups or _some_actions(env.action_space, env.num_agents)
    if env.env.num_agents is None:
        action = jax.tree.map(lambda x: x[0], action)
    return begin, env.env.step(begin.state, action, step_key)


def _some_actions(space: spaces.Space, agents: int) -> PyTree:
    """Actions [agents, ...] of `space`."""
    space = copy.deepcopy(space)  # its random state is the user's
    space.seed(0)
    actions = [_plain(space.sample()) for _ in range(agents)]
    return jax.tree.map(lambda *x: jnp.stack([jnp.asarray(y) for y in x]), *actions)


def _like_space(space: spaces.Space, axis: tuple[int, ...]) -> PyTree:
    def one(x: Any) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((*axis, *np.shape(x)), in_32_bits(np.asarray(x).dtype))

    return jax.tree.map(one, _plain(copy.deepcopy(space).sample()))


def _narrow(tree: PyTree) -> PyTree:
    """Shapes as `VectorEnv` hands them on, which makes 32 bits of 64."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, in_32_bits(x.dtype)), tree)


def _plain(tree: Any) -> Any:
    """Mappings as dicts."""
    return {name: _plain(x) for name, x in tree.items()} if isinstance(tree, dict) else tree


def _differences(name: str, given: PyTree, expected: PyTree) -> Iterator[str]:
    if jax.tree.structure(given) != jax.tree.structure(expected):  # type: ignore[operator]
        yield f"{name} is {jax.tree.structure(given)}, not {jax.tree.structure(expected)}"
        return
    leaves = jax.tree_util.tree_leaves_with_path(given)
    for (path, a), b in zip(leaves, jax.tree.leaves(expected), strict=True):
        if (a.shape, a.dtype) != (b.shape, b.dtype):
            yield f"{name}{jax.tree_util.keystr(path)} is {_words(a)}, not {_words(b)}"


def _words(x: Any) -> str:
    return f"{x.dtype}[{','.join(map(str, x.shape))}]"


def _without_keys(tree: PyTree) -> list[Array]:
    return [x for x in jax.tree.leaves(tree) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]


def _draws(jaxpr: Any) -> bool:
    """Whether a program draws random numbers anywhere."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in DRAWS:
            return True
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns") and _draws(inner):
                return True
    return False
