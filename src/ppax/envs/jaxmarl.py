"""Adapter for JaxMARL, https://github.com/FLAIROx/JaxMARL (Rutherford et al. 2023, https://arxiv.org/abs/2311.10090).

For agents that are alike: their observations, actions, rewards and ends stand in an agent axis, in the order of
`env.agents`. The time limit of MPE and SMAX, which they call an end, is lifted; ours cuts. It calls the inner
`step_env`, which never resets.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.adapting import known, library, strong
from ppax.envs.time_limit import TimeLimit
from ppax.types import ConfigError, Environment, EnvReset, EnvStep, Key, PyTree, part, static

NO_LIMIT = 2**30  # steps
CUT = ("MPE_", "SMAX")  # whose time limit cuts; elsewhere it belongs to the game, or observations show it


@part
class JaxMARL:
    """One JaxMARL environment without its time limit. Make it with `load`, not by hand."""

    env: Any = static(doc="JaxMARL's own environment")

    @property
    def num_agents(self) -> int:
        """All of them, whether still alive or not."""
        return len(self.env.agents)

    @property
    def observation_space(self) -> spaces.Box:
        """Box without bounds, of one agent."""
        return spaces.Box(-np.inf, np.inf, _shape(self.env), np.float32)

    @property
    def action_space(self) -> spaces.Space:
        """Discrete or Box, of one agent."""
        with jax.ensure_compile_time_eval():
            return _action_space(self.env.action_space(self.env.agents[0]))

    def reset(self, key: Key) -> EnvReset:
        """Begin an episode."""
        obs, state = self.env.reset(key)
        return EnvReset(strong(state), self._stack(obs, jnp.float32), self._mask(state))

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Advance by one step; never truncates. An agent that is out is terminated."""
        actions = {name: action[place] for place, name in enumerate(self.env.agents)}
        obs, state, reward, done, _ = self.env.step_env(key, state, actions)
        return EnvStep(
            strong(state),
            self._stack(obs, jnp.float32),
            self._stack(reward, jnp.float32),
            self._stack(done, bool) | jnp.asarray(done["__all__"], bool),
            jnp.zeros((self.num_agents,), bool),
            self._mask(state),
        )

    def _stack(self, of_each: Any, dtype: Any) -> Array:
        return jnp.stack([jnp.asarray(of_each[name], dtype) for name in self.env.agents])

    def _mask(self, state: PyTree) -> Array | None:
        return self._stack(self.env.get_avail_actions(state), bool) if _masks(self.env) else None


def load(env_id: str, **kwargs: Any) -> Environment:
    """The environment `env_id` ("MPE_simple_spread_v3"), cut at its own time limit.

    `kwargs` go to `jaxmarl.make` and must be hashable. Raises ImportError without JaxMARL, ConfigError for an unknown
    id and where agents differ in what they see or do.
    """
    env, limit = _make(known("jaxmarl", env_id, ids()), **kwargs)
    adapter = JaxMARL(env)
    return adapter if limit is None else TimeLimit(adapter, limit)


def ids() -> list[str]:
    """All environments there are; in some of them agents differ."""
    return list(library("jaxmarl", "jaxmarl").registered_envs)


@functools.cache
def _make(env_id: str, **kwargs: Any) -> tuple[Any, int | None]:
    """One object for each configuration, without its time limit, and that limit."""
    env = library("jaxmarl", "jaxmarl").make(env_id, **kwargs)
    described = {
        name: f"{_words(env.observation_space(name))} and {_words(env.action_space(name))}" for name in env.agents
    }
    if len(set(described.values())) > 1:
        first, *others = env.agents
        other = next(name for name in others if described[name] != described[first])
        raise ConfigError(
            f"jaxmarl/{env_id}: agents differ, {first} has {described[first]}, {other} has {described[other]}; "
            "ppax takes agents that are alike, as in 'jaxmarl/MPE_simple_spread_v3'"
        )
    if not env_id.startswith(CUT) and not env_id.endswith(CUT):
        return env, None
    limit = int(env.max_steps)
    vars(env).get("_env", env).max_steps = NO_LIMIT  # where allies only are played, the game is inside
    return env, limit


@functools.cache
def _shape(env: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = jax.eval_shape(lambda key: env.reset(key)[0], jax.random.key(0))[env.agents[0]].shape
    return shape


@functools.cache
def _masks(env: Any) -> bool:
    """Whether actions are masked: most environments refuse to say which are available."""
    try:
        shapes = jax.eval_shape(lambda key: env.get_avail_actions(env.reset(key)[1]), jax.random.key(0))
    except (NotImplementedError, AttributeError):
        return False
    space = env.action_space(env.agents[0])
    return isinstance(shapes, dict) and hasattr(space, "n") and shapes[env.agents[0]].shape == (int(space.n),)


def _words(space: Any) -> str:
    """A JaxMARL space; it has no words of its own."""
    return f"{type(space).__name__}{[int(space.n)] if hasattr(space, 'n') else list(space.shape)}"


def _action_space(space: Any) -> spaces.Space:
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n))
    low, high = (np.broadcast_to(np.asarray(x, np.float32), space.shape) for x in (space.low, space.high))
    return spaces.Box(low, high, dtype=np.float32)
