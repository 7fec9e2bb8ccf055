"""Base class of the wrappers, and functions that unwrap and draw compiled environments inside of wrappers."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvReset, EnvStep, Key, PyTree, part


@part
class Wrapper:
    """Base of wrappers: a compiled environment around `env`, with its spaces, agents, resets and steps.

    A subclass overrides what it changes, for example `step` to change the reward. One that keeps a state of its own
    beside that of `env` also defines `inside`, so that films can be drawn.
    """

    env: Environment

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one agent's observation, that of the inner environment."""
        return self.env.observation_space

    @property
    def action_space(self) -> spaces.Space:
        """Space of one agent's action, that of the inner environment."""
        return self.env.action_space

    @property
    def num_agents(self) -> int | dict[str, int] | None:
        """Number of agents of the inner environment; with groups a dict by group; None without an agent axis."""
        return self.env.num_agents

    def reset(self, key: Key) -> EnvReset:
        """Return a new episode of the inner environment."""
        return self.env.reset(key)

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment."""
        return self.env.step(state, action, key)

    def inside(self, state: Any) -> tuple[Environment, PyTree]:
        """Return the inner environment and its state, which is `state` itself for a stateless wrapper."""
        return self.env, state


def unwrapped(env: Any, state: Any) -> tuple[Any, PyTree]:
    """Return the environment inside all wrappers of `env`, and its state, which is inside of `state`.

    `state` is the state of `env`, of one environment or of many with a leading axis.
    """
    while isinstance(env, Wrapper):
        env, state = env.inside(state)
    return env, state


def render(env: Any, state: PyTree) -> np.ndarray:
    """Return a picture of the environment inside any wrappers of `env`, in the state `state`: uint8 [H, W, 3].

    `state` is that of `env`, of one environment. Raises ConfigError if the environment has no `render(state)`.
    """
    env, state = unwrapped(env, state)
    draw = getattr(env, "render", None)
    if draw is None:
        raise ConfigError(
            f"{type(env).__name__} cannot be drawn: give the class a method render(state) -> uint8 [H, W, 3]; "
            "what is built in has one"
        )
    picture = np.asarray(draw(state))
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[-1] != 3:
        raise ConfigError(
            f"{type(env).__name__}.render gave {picture.dtype}{list(picture.shape)}: must be uint8 [H, W, 3]"
        )
    return picture
