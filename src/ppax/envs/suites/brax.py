"""Adapter for brax, https://github.com/google/brax (Freeman et al. 2021, https://arxiv.org/abs/2106.13281).

The adapter uses the unwrapped environment: brax's own wrappers reset every episode to the same initial state and reject
typed keys. The unwrapped environment never truncates; TimeLimit does.
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
from ppax.devices.platforms import float32_products
from ppax.envs.suites import pictures
from ppax.envs.suites.registry import known, library, strong
from ppax.envs.wrappers.time import TimeLimit

EPISODE_LENGTH = 1000  # time limit of all brax environments, steps
BACKENDS = ("generalized", "spring", "positional", "mjx")


@part
class Brax:
    """Environment of brax, or with brax's interface, without a time limit. Create it with `load`.

    Brax's inverted pendulum marks all its terminations as `time_out`, falls included. If those were truncations, the
    bootstrap value would make falls free and there would be nothing to learn. So by default they are terminations.
    """

    env: Any = static(doc="environment object of brax")
    time_out_truncates: bool = static(doc="treat an end marked `time_out` as a truncation", default=False)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Space:
        """Space of observations: a Box without bounds, or a Dict of Boxes without bounds."""
        return _observation_space(self.env)

    @property
    def action_space(self) -> spaces.Box:
        """Space of actions: a Box from -1 to 1."""
        return spaces.Box(-1.0, 1.0, (self.env.action_size,), np.float32)

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the brax environment."""
        with float32_products():
            state = strong(self.env.reset(key))
        return EnvReset(state, state.obs)

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Return the result of one step of the brax environment; randomness comes from the key inside the state."""
        copied = jax.tree.map(lambda x: x, state)  # ant and others modify the dicts of their argument
        with float32_products():
            state = strong(self.env.step(copied, jnp.asarray(action, jnp.float32)))
        done = state.done > 0.5  # brax uses a float
        truncated = jnp.zeros((), bool)
        if self.time_out_truncates and "time_out" in state.info:
            truncated = done & (state.info["time_out"] > 0.5)
        return EnvStep(state, state.obs, jnp.asarray(state.reward, jnp.float32), done & ~truncated, truncated)

    def render(self, state: PyTree) -> np.ndarray:
        """Return a picture [H, W, 3] of the bodies from the side; also of environments of MuJoCo Playground."""
        if hasattr(self.env, "mj_model"):
            return pictures.draw_bodies(self.env.mj_model, state.data.qpos)
        return pictures.draw_bodies(self.env.sys.mj_model, state.pipeline_state.q)


def load(env_id: str, time_out_truncates: bool = False, **kwargs: Any) -> Environment:
    """Return the brax environment `env_id`, "ant" or with a physics backend "spring/ant", truncated after 1000 steps.

    With `time_out_truncates` an end that the environment marks as `time_out` is a truncation, otherwise a termination.
    `kwargs` go to the environment and must be hashable. Raises ImportError without brax, ConfigError for an unknown
    environment or backend.
    """
    backend, _, name = env_id.rpartition("/")
    if backend and backend not in BACKENDS:
        raise ConfigError(f"brax has no backend {backend!r}; there are {', '.join(BACKENDS)}: 'brax/spring/{name}'")
    known("brax", name, ids())
    if backend:
        kwargs["backend"] = backend
    return TimeLimit(Brax(_make(name, **kwargs), time_out_truncates), EPISODE_LENGTH)


def ids() -> list[str]:
    """Return the ids of all environments of brax."""
    return sorted(library("brax.envs", "brax")._envs)


@functools.cache
def _make(name: str, **kwargs: Any) -> Any:
    """Return brax's environment, the same object for equal arguments, as brax and jit compare objects by identity."""
    return library("brax.envs", "brax").get_environment(name, **kwargs)


@functools.cache
def _observation_space(env: Any) -> spaces.Space:
    """Return the space of brax's observations, from a traced reset, as brax declares only sizes.

    Cached, because tracing is slow.
    """

    def box(x: Any) -> spaces.Space:
        if isinstance(x, dict):
            return spaces.Dict({name: box(inner) for name, inner in x.items()})
        return spaces.Box(-np.inf, np.inf, x.shape, x.dtype)

    return box(jax.eval_shape(env.reset, jax.random.key(0)).obs)
