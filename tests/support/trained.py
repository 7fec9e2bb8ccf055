"""Policies with random weights and statistics, and random observations and masks for them."""

from typing import Any

import jax
import numpy as np
from gymnasium import spaces

import ppax
from ppax.envs import VectorEnv
from ppax.policy.spec import spec_of
from support.compositions import OBSERVATIONS, Rules, World, allowed
from support.worlds import SPACES


def env_of(action="two", seen="vector", masked=False, **rules) -> VectorEnv:
    return VectorEnv(World(Rules(action, seen, masked, **rules)), 5, name="Own")


def random_learner(agent, env, seed=1) -> Any:
    """A learner with random numbers for parameters and statistics; nothing is compiled for it."""
    rng = np.random.default_rng(seed)

    def fill(path: Any, x: Any) -> np.ndarray:
        if x.dtype != np.float32:
            return np.ones(x.shape, x.dtype)
        numbers = rng.normal(0.0, 0.4, x.shape).astype(np.float32)
        # variances are positive; the decay of an LRU is stable for small numbers
        return np.abs(numbers) + np.float32(0.1) if "obs_stats" in str(path) else numbers

    shapes = jax.eval_shape(lambda key: agent.init(env.observation_space, key), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(fill, shapes)


def policy_of(agent, env, learner=None) -> ppax.Policy:
    with jax.numpy_rank_promotion("allow"):
        mask = jax.eval_shape(env.reset, jax.random.key(0))[2]
    return ppax.Policy(agent, random_learner(agent, env) if learner is None else learner, spec_of(agent, env, mask, {}))


def observations(space: spaces.Space, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Random elements of `space`, arrays [*shape, ...]."""
    if isinstance(space, spaces.Dict):
        return {name: observations(inner, rng, shape) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(observations(inner, rng, shape) for inner in space.spaces)
    space.seed(int(rng.integers(2**31)))
    drawn = np.stack([np.asarray(space.sample()) for _ in range(int(np.prod(shape)))])
    return drawn.reshape(*shape, *drawn.shape[1:])


def masks_of(action: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    """Random masks of SPACES[action], [*shape, n], which always allow something."""
    return allowed(SPACES[action], rng.normal(0.0, 5.0, shape).astype(np.float32), False, np)


def rows(tree: Any, where: Any) -> Any:
    return jax.tree.map(lambda x: x[where], tree)


__all__ = ["OBSERVATIONS", "env_of", "masks_of", "observations", "policy_of", "random_learner", "rows"]
