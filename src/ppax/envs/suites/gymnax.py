"""Adapter for gymnax, https://github.com/RobertTLange/gymnax (Lange 2022), releases 0.0.9 and 1.x alike.

It calls gymnax's inner `reset_env` and `step_env`, below its autoreset, so the last observation of an episode
is the true one; the time limit is ours (TimeLimit), so a cut is never mistaken for an end.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs import builtin
from ppax.envs.suites.common import known, library, strong
from ppax.envs.wrappers import pictures
from ppax.envs.wrappers.time_limit import TimeLimit
from ppax.types import Environment, EnvReset, EnvStep, Key, PyTree, part, static

# Classic control by the class that gymnax has it in: ours, and what our states call its numbers
ANGLES = {"joint_angle1": "theta1", "joint_angle2": "theta2"}
DRAWN: dict[str, tuple[Any, dict[str, str]]] = {
    "CartPole": (builtin.CartPole, {}),
    "Pendulum": (builtin.Pendulum, {}),
    "Acrobot": (builtin.Acrobot, ANGLES),
    "MountainCar": (builtin.MountainCar, {}),
    "ContinuousMountainCar": (builtin.MountainCarContinuous, {}),
}
NO_LIMIT = 2**30  # steps; far away, and gymnax's int32 clock can still count past it


@part
class Gymnax:
    """One gymnax environment without its time limit. Make it with `load`, not by hand.

    The numbers of the environment are leaves, in `params`; the spaces are those of its default numbers, for
    spaces must be known while tracing.
    """

    params: PyTree  # gymnax's own EnvParams
    env: Any = static(doc="gymnax's own environment")

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Space:
        """Shape and dtype as the observations really have them."""
        obs = jax.eval_shape(lambda key: self.reset(key).obs, jax.random.key(0))
        with jax.ensure_compile_time_eval():
            return _observed(self.env.observation_space(self.env.default_params), obs)

    @property
    def action_space(self) -> spaces.Space:
        """As gymnax declares it, bounds too."""
        with jax.ensure_compile_time_eval():
            return _taken(self.env.action_space(self.env.default_params))

    def reset(self, key: Key) -> EnvReset:
        """Begin an episode."""
        obs, state = self.env.reset_env(key, self.params)
        return EnvReset(*strong((state, _plain(obs))))

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Advance by one step; never truncates."""
        obs, state, reward, terminated, _ = self.env.step_env(key, state, action, self.params)
        state, obs = strong((state, _plain(obs)))
        return EnvStep(
            state,
            obs,
            jnp.asarray(reward, jnp.float32),  # some are integers or booleans
            jnp.asarray(terminated, bool),
            jnp.zeros((), bool),
        )

    def render(self, state: PyTree) -> np.ndarray:
        """Classic control as ours, grids as grids, the rest as the numbers that the agent sees; [H, W, 3]."""
        drawn, rename = DRAWN.get(type(self.env).__name__, (None, {}))
        if drawn is not None:
            return drawn().render(
                types.SimpleNamespace(**{rename.get(name, name): x for name, x in vars(state).items()})
            )
        return pictures.numbers(self.env.get_obs(state, params=self.params, key=jax.random.key(0)))


def load(env_id: str, **kwargs: Any) -> Environment:
    """The gymnax environment `env_id` (say "CartPole-v1"), cut at the time limit that gymnax gives it.

    `kwargs` go to `gymnax.make` and must be hashable. Raises ImportError without gymnax, ConfigError for an
    unknown id.
    """
    env = _make(env_id, **kwargs)
    params = env.default_params
    limit = getattr(params, "max_steps_in_episode", None)  # someone's own parameters need not have one
    adapter = Gymnax(params, env)
    return adapter if limit is None else TimeLimit(adapter, int(limit))


def ids() -> list[str]:
    """All environments there are."""
    return list(library("gymnax", "gymnax").registered_envs)


@functools.cache
def _make(env_id: str, **kwargs: Any) -> Any:
    """One object for each configuration: gymnax compares its environments by identity, and so does jit."""
    gymnax = library("gymnax", "gymnax")
    env, _ = gymnax.make(known("gymnax", env_id, gymnax.registered_envs), **kwargs)
    # Before 1.0 the test for an end also holds at the time limit, which would pass off every cut as an end.
    # From 1.0 on it does not, and this changes nothing. The limit is lifted here and not in `params`, for
    # DiscountingChain shows the time as a share of it.
    env.is_terminal = functools.partial(_is_terminal_without_limit, env.is_terminal)
    return env


def _is_terminal_without_limit(is_terminal: Callable[..., Array], state: PyTree, params: Any) -> Array:
    return is_terminal(state, params.replace(max_steps_in_episode=NO_LIMIT))


def _plain(obs: PyTree) -> PyTree:
    """Mappings of any kind as dicts, as networks expect them."""
    if isinstance(obs, Mapping):
        return {name: _plain(x) for name, x in obs.items()}
    return tuple(_plain(x) for x in obs) if isinstance(obs, tuple) else obs


def _observed(space: Any, obs: PyTree) -> spaces.Space:
    """The space of observations like `obs`. Declared dtypes and bounds do not hold."""
    if hasattr(space, "spaces"):
        return _several(space, lambda name, inner: _observed(inner, obs[name]))
    if jnp.issubdtype(obs.dtype, jnp.floating):  # MemoryChain, MetaMaze, GaussianBandit leave their bounds: claim none
        return spaces.Box(-np.inf, np.inf, obs.shape, obs.dtype)
    return _convert(space, obs.dtype)


def _taken(space: Any) -> spaces.Space:
    """The space of actions."""
    if hasattr(space, "spaces"):
        return _several(space, lambda _, inner: _taken(inner))
    return _convert(space, np.dtype(space.dtype))


def _several(space: Any, one: Callable[[Any, Any], spaces.Space]) -> spaces.Space:
    """A gymnax Dict or Tuple, each of its spaces as `one` has it."""
    if isinstance(space.spaces, Mapping):
        return spaces.Dict({name: one(name, inner) for name, inner in space.spaces.items()})
    return spaces.Tuple([one(place, inner) for place, inner in enumerate(space.spaces)])


def _convert(space: Any, dtype: np.dtype) -> spaces.Space:
    """A gymnax space of one array as a gymnasium space of values of `dtype`."""
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    if hasattr(space, "low"):
        low = np.broadcast_to(np.asarray(space.low, dtype), space.shape)
        high = np.broadcast_to(np.asarray(space.high, dtype), space.shape)
        return spaces.Box(low, high, dtype=dtype.type)
    raise TypeError(f"received a {type(space).__name__} space: ppax converts gymnax's Discrete, Box, Dict and Tuple")
