"""Adapter for XLand-MiniGrid, https://github.com/dunnolab/xland-minigrid (Nikulin et al. 2024, https://arxiv.org/abs/2312.12044).

It has rooms of MiniGrid, and XLand's rooms, whose goal and rules come from a set of rules. The library's `step` never
resets; at the end of an episode its `discount` is 0 where the goal was reached, and 1 at the time limit.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, part, static
from ppax.envs.suites.registry import known, library, strong


@part
class XMiniGrid:
    """Room of XLand-MiniGrid. Create it with `load`.

    An observation is the field of view as planes of 0 and 1, [view, view, tiles + colours]. In XLand's rooms every
    reset draws one of the `rules`, which are not observed.
    """

    rules: PyTree  # XLand-MiniGrid's Benchmark: goals, rules and first tiles, [n, ...]; None in rooms of MiniGrid
    env: Any = static(doc="environment object of XLand-MiniGrid")
    params: Any = static(doc="parameters of XLand-MiniGrid: sizes and the time limit")

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Box:
        """Space of observations: planes of 0 and 1, one for each kind of tile and for each colour."""
        size = self.params.view_size
        return spaces.Box(0, 1, (size, size, sum(_categories())), np.uint8)

    @property
    def action_space(self) -> spaces.Discrete:
        """Space of actions, which are discrete: forward, turn right, turn left, pick up, put down, toggle."""
        return spaces.Discrete(self.env.num_actions(self.params))

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode in a newly generated room; raise ConfigError if it needs rules and has none."""
        key, rule_key = jax.random.split(key)
        params = self.params
        if self.rules is not None:
            params = params.replace(ruleset=self.rules.sample_ruleset(rule_key))
        elif hasattr(params, "ruleset"):
            raise ConfigError(f"env_params.benchmark: must be one of {_benchmarks()}: this room has no goal of its own")
        timestep = strong(self.env.reset(params, key))
        return EnvReset(timestep, _planes(timestep.observation))

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Return the result of one step in the room; an end with discount 0 is a termination, else a truncation."""
        timestep = strong(self.env.step(self.params, state, jnp.asarray(action, jnp.int32)))
        ended, terminated = timestep.last(), timestep.discount == 0.0
        reward = jnp.asarray(timestep.reward, jnp.float32)
        return EnvStep(timestep, _planes(timestep.observation), reward, ended & terminated, ended & ~terminated)

    def render(self, state: PyTree) -> np.ndarray:
        """Return a picture [H, W, 3] of the room from above."""
        return np.asarray(self.env.render(self.params, state), np.uint8)


def load(env_id: str, benchmark: str | None = None, **kwargs: Any) -> Environment:
    """Return the room `env_id` ("MiniGrid-DoorKey-8x8"); `kwargs` are the library's parameters, such as `view_size`.

    XLand's rooms need the name of a `benchmark`, sets of rules that XLand-MiniGrid downloads once ("trivial-21k").
    Raises ImportError without XLand-MiniGrid, ConfigError for an unknown id, benchmark or parameter.
    """
    package = library("xminigrid", "xminigrid")
    env, params = _make(known("xminigrid", env_id, ids()))
    if unknown := sorted(kwargs.keys() - _sizes(params)):
        raise ConfigError(f"{unknown[0]} is no parameter of xminigrid/{env_id}; there are {', '.join(_sizes(params))}")
    if benchmark is None:
        return XMiniGrid(None, env, params.replace(**kwargs))
    if not hasattr(params, "ruleset"):
        raise ConfigError(f"benchmark = {benchmark!r}: xminigrid/{env_id} has a goal of its own; leave it out")
    if benchmark not in package.registered_benchmarks():
        raise ConfigError(f"benchmark = {benchmark!r}: must be one of {_benchmarks()}")
    return XMiniGrid(package.load_benchmark(benchmark), env, params.replace(**kwargs))


def ids() -> list[str]:
    """Return the ids of all rooms of XLand-MiniGrid."""
    return list(library("xminigrid", "xminigrid").registered_environments())


@functools.cache
def _make(env_id: str) -> tuple[Any, Any]:
    """Return the environment and its parameters, the same objects for equal ids, as jit compares them by identity."""
    env, params = library("xminigrid", "xminigrid").make(env_id)
    return env, params


def _benchmarks() -> str:
    return ", ".join(library("xminigrid", "xminigrid").registered_benchmarks())


def _sizes(params: Any) -> list[str]:
    """Return the names of a room's parameters that `load` takes: all except its rules and its mode of rendering."""
    return sorted(vars(params).keys() - {"ruleset", "render_mode"})


@functools.cache
def _categories() -> tuple[int, int]:
    """Return the numbers of kinds of tiles and of colours."""
    constants = library("xminigrid.core.constants", "xminigrid")
    return int(constants.NUM_TILES), int(constants.NUM_COLORS)


def _planes(grid: Array) -> Array:
    """Return a field of view [H, W, 2] of tile and colour as planes of 0 and 1, [H, W, tiles + colours]."""
    return jnp.concatenate(
        [jax.nn.one_hot(grid[..., i], size, dtype=jnp.uint8) for i, size in enumerate(_categories())], axis=-1
    )
