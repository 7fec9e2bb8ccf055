"""Time limits: a wrapper that truncates the episodes of a compiled environment.

Pardo et al., "Time Limits in Reinforcement Learning", 2018, https://arxiv.org/abs/1712.00378: a limit that is not part
of the task must not be learned as a terminal state, so it never sets `terminated`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from ppax.core.types import EnvReset, EnvStep, Key, PyTree, Scalar, number, part
from ppax.envs.wrappers.wrapper import Wrapper


class TimeLimitState(NamedTuple):
    """State of the environment with a time limit, and the length of its episode so far."""

    inner: PyTree
    elapsed: Array  # [] int32, steps since the reset


@part
class TimeLimit(Wrapper):
    """Wrapper of `env` that truncates after `max_steps` steps; a termination in that step sets both flags.

    Example of an environment of your own, a walk to the right over a distance of 10 (types from `ppax.core.types`):

        @ppax.part
        class Walk:
            observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
            action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
            num_agents = None

            def reset(self, key):
                place = jax.random.uniform(key, (1,))
                return EnvReset(place, place)

            def step(self, state, action, key):
                place = state + action
                return EnvStep(place, place, -jnp.ones(()), place[0] >= 10.0, jnp.zeros((), bool))

        env = VectorEnv(TimeLimit(Walk(), 50), num_envs=64)
    """

    # a leaf, so that evaluation can use another limit without recompilation
    max_steps: Scalar = number("steps after which an episode is truncated", default=dataclasses.MISSING, low=1)

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment, of length 0 so far."""
        start = self.env.reset(key)
        return start._replace(state=TimeLimitState(start.state, jnp.zeros((), jnp.int32)))

    def step(self, state: TimeLimitState, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment, truncated if the episode has `max_steps` steps."""
        step = self.env.step(state.inner, action, key)
        elapsed = state.elapsed + 1
        return step._replace(
            state=TimeLimitState(step.state, elapsed),
            truncated=step.truncated | (elapsed >= self.max_steps),
        )
