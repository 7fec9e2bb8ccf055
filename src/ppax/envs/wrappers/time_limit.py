"""A time limit as a part: cuts the episodes of any native environment, and calls it truncation.

Pardo et al., "Time Limits in Reinforcement Learning", 2018, https://arxiv.org/abs/1712.00378: a cut that is
not part of the task must not be learned as an end, so it never touches `terminated`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.types import Environment, EnvReset, EnvStep, Key, PyTree, Scalar, number, part


class TimeLimitState(NamedTuple):
    """The limited environment's own state, and the age of its episode."""

    inner: PyTree
    elapsed: Array  # [] int32, steps since the reset


@part
class TimeLimit:
    """`env`, cut after `max_steps` steps. An episode that ends by itself on that step sets both flags.

    A walk to the right, 10 away, as an environment of one's own (`ppax.types` has Environment, EnvReset, EnvStep):

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

    env: Environment
    # a leaf, so that evaluation may run with another limit without recompiling
    max_steps: Scalar = number("steps after which an episode is truncated", default=dataclasses.MISSING, low=1)

    @property
    def observation_space(self) -> spaces.Space:
        """That of `env`."""
        return self.env.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """That of `env`."""
        return self.env.action_space

    @property
    def num_agents(self) -> int | dict[str, int] | None:
        """That of `env`."""
        return self.env.num_agents

    def reset(self, key: Key) -> EnvReset:
        """Reset `env` and its clock."""
        start = self.env.reset(key)
        return start._replace(state=TimeLimitState(start.state, jnp.zeros((), jnp.int32)))

    def step(self, state: TimeLimitState, action: PyTree, key: Key) -> EnvStep:
        """Step `env`; `truncated` from the step on that makes the episode `max_steps` long."""
        step = self.env.step(state.inner, action, key)
        elapsed = state.elapsed + 1
        return step._replace(
            state=TimeLimitState(step.state, elapsed),
            truncated=step.truncated | (elapsed >= self.max_steps),
        )
