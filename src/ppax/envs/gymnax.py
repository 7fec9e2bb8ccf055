"""Adapter for gymnax, https://github.com/RobertTLange/gymnax (Lange 2022), releases 0.0.9 and 1.x alike.

It calls gymnax's inner `reset_env` and `step_env`, below its autoreset, so the last observation of an episode
is the true one; the time limit is ours (TimeLimit), so a cut is never mistaken for an end.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.time_limit import TimeLimit
from ppax.types import ConfigError, Environment, EnvReset, EnvStep, Key, PyTree, part, static

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
        with jax.ensure_compile_time_eval():
            space = self.env.observation_space(self.env.default_params)
        obs = jax.eval_shape(lambda key: self.reset(key).obs, jax.random.key(0))
        # declared bounds do not hold (MemoryChain, MetaMaze, GaussianBandit leave theirs): claim none
        if jnp.issubdtype(obs.dtype, jnp.floating):
            return spaces.Box(-np.inf, np.inf, obs.shape, obs.dtype)
        return _convert(space, obs.dtype)

    @property
    def action_space(self) -> spaces.Space:
        """Discrete, or a Box with the bounds that gymnax declares."""
        with jax.ensure_compile_time_eval():
            space = self.env.action_space(self.env.default_params)
            return _convert(space, np.dtype(space.dtype))

    def reset(self, key: Key) -> EnvReset:
        """Begin an episode."""
        obs, state = self.env.reset_env(key, self.params)
        return EnvReset(*_strong((state, obs)))

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Advance by one step; never truncates."""
        obs, state, reward, terminated, _ = self.env.step_env(key, state, action, self.params)
        state, obs = _strong((state, obs))
        return EnvStep(
            state,
            obs,
            jnp.asarray(reward, jnp.float32),  # some are integers or booleans
            jnp.asarray(terminated, bool),
            jnp.zeros((), bool),
        )


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


@functools.cache
def _make(env_id: str, **kwargs: Any) -> Any:
    """One object for each configuration: gymnax compares its environments by identity, and so does jit."""
    try:
        import gymnax
    except ImportError as error:
        raise ImportError(f'gymnax cannot be imported ({error}): pip install "ppax[gymnax]"') from error
    try:
        env, _ = gymnax.make(env_id, **kwargs)
    except ValueError as error:
        nearest = difflib.get_close_matches(env_id, gymnax.registered_envs, n=1, cutoff=0.0)[0]
        raise ConfigError(f"gymnax has no environment {env_id!r}; did you mean 'gymnax/{nearest}'?") from error
    # Before 1.0 the test for an end also holds at the time limit, which would pass off every cut as an end.
    # From 1.0 on it does not, and this changes nothing. The limit is lifted here and not in `params`, for
    # DiscountingChain shows the time as a share of it.
    env.is_terminal = functools.partial(_is_terminal_without_limit, env.is_terminal)
    return env


def _is_terminal_without_limit(is_terminal: Callable[..., Array], state: PyTree, params: Any) -> Array:
    return is_terminal(state, params.replace(max_steps_in_episode=NO_LIMIT))


def _strong(tree: PyTree) -> PyTree:
    """The same values with explicit dtypes: gymnax starts with Python numbers, a drift in a scan."""
    arrays = jax.tree.map(jnp.asarray, tree)
    return jax.tree.map(lambda x: jnp.asarray(x, x.dtype), arrays)


def _convert(space: Any, dtype: np.dtype) -> spaces.Space:
    """A gymnax space as a gymnasium space of values of `dtype`."""
    from gymnax.environments import spaces as gymnax_spaces

    if isinstance(space, gymnax_spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, gymnax_spaces.Box):
        low = np.broadcast_to(np.asarray(space.low, dtype), space.shape)
        high = np.broadcast_to(np.asarray(space.high, dtype), space.shape)
        return spaces.Box(low, high, dtype=dtype.type)
    raise TypeError(f"received a {type(space).__name__} space: ppax converts gymnax's Discrete and Box")
