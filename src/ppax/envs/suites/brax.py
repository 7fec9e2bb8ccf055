"""Adapter for brax, https://github.com/google/brax (Freeman et al. 2021, https://arxiv.org/abs/2106.13281).

It takes the raw environment: brax's own wrappers send every episode back to one first state and refuse typed keys. The
raw one never truncates; the time limit is ours (TimeLimit).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.envs.suites.common import known, library, strong
from ppax.envs.wrappers import pictures
from ppax.envs.wrappers.time_limit import TimeLimit
from ppax.types import ConfigError, Environment, EnvReset, EnvStep, Key, PyTree, part, static

EPISODE_LENGTH = 1000  # what brax cuts every one of its environments at
BACKENDS = ("generalized", "spring", "positional", "mjx")


@part
class Brax:
    """One environment with brax's interface, without a time limit. Make it with `load`, not by hand.

    Brax's inverted pendulum marks each of its ends as `time_out`, falls too, for a PPO that bootstraps there. Taken at
    its word, falling would cost nothing and there would be nothing to learn, so by default an end is an end.
    """

    env: Any = static(doc="brax's own environment")
    time_out_truncates: bool = static(doc="an end marked `time_out` is a truncation", default=False)

    num_agents = None  # no agent axis

    @property
    def observation_space(self) -> spaces.Space:
        """Box without bounds, or a Dict of them."""
        return _observation_space(self.env)

    @property
    def action_space(self) -> spaces.Box:
        """Box from -1 to 1."""
        return spaces.Box(-1.0, 1.0, (self.env.action_size,), np.float32)

    def reset(self, key: Key) -> EnvReset:
        """Begin an episode."""
        state = strong(self.env.reset(key))
        return EnvReset(state, state.obs)

    def step(self, state: PyTree, action: Array, key: Key) -> EnvStep:
        """Advance by one step; what is random in it is drawn from the state's own key."""
        own = jax.tree.map(lambda x: x, state)  # ant and others write into the dicts of the state they are given
        state = strong(self.env.step(own, jnp.asarray(action, jnp.float32)))
        done = state.done > 0.5  # a float there
        cut = jnp.zeros((), bool)
        if self.time_out_truncates and "time_out" in state.info:
            cut = done & (state.info["time_out"] > 0.5)
        return EnvStep(state, state.obs, jnp.asarray(state.reward, jnp.float32), done & ~cut, cut)

    def render(self, state: PyTree) -> np.ndarray:
        """Bodies from the side, [H, W, 3]; MuJoCo Playground's too."""
        if hasattr(self.env, "mj_model"):
            return pictures.bodies(self.env.mj_model, state.data.qpos)
        return pictures.bodies(self.env.sys.mj_model, state.pipeline_state.q)


def load(env_id: str, time_out_truncates: bool = False, **kwargs: Any) -> Environment:
    """The brax environment `env_id`, cut after 1000 steps: "ant", or with a backend of its physics "spring/ant".

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
    """All environments there are."""
    return sorted(library("brax.envs", "brax")._envs)


@functools.cache
def _make(name: str, **kwargs: Any) -> Any:
    """One object for each configuration: brax compares its environments by identity, and so does jit."""
    return library("brax.envs", "brax").get_environment(name, **kwargs)


@functools.cache
def _observation_space(env: Any) -> spaces.Space:
    """Brax states sizes only; to find them, its reset is traced, so they are kept."""

    def box(x: Any) -> spaces.Space:
        if isinstance(x, dict):
            return spaces.Dict({name: box(inner) for name, inner in x.items()})
        return spaces.Box(-np.inf, np.inf, x.shape, x.dtype)

    return box(jax.eval_shape(env.reset, jax.random.key(0)).obs)
