"""Clipping of continuous actions to [-limit, limit], by a wrapper, before they reach the environment."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvStep, Key, PyTree, part, static
from ppax.envs.wrappers.wrapper import Wrapper


@part
class ClipActions(Wrapper):
    """Wrapper of `env` that clips every element of its Box actions to [-limit, limit], and narrows their bounds to it.

    An unbounded Box becomes a bounded one, over which the distributions squashed and beta work too.
    """

    limit: float = static("largest absolute value of an action's element", above=0.0)

    @property
    def action_space(self) -> spaces.Space:
        """Action space of the inner environment, with the bounds of its boxes within the limit."""
        return narrowed(self.env.action_space, self.limit)

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment with the clipped action."""
        return self.env.step(state, clip_boxes(self.env.action_space, action, self.limit), key)


def clip_actions(env: Environment, limit: float | None) -> Environment:
    """Return `env` with actions clipped to [-limit, limit]; `env` itself if `limit` is None.

    Raises ConfigError where no action is continuous, or a Box has no action within the limit.
    """
    if limit is None:
        return env
    if not _has_box(env.action_space):
        raise ConfigError(f"clip_actions = {limit}: actions are {env.action_space}, without a Box; leave it out")
    narrowed(env.action_space, limit)
    return ClipActions(env, limit)


def narrowed(space: spaces.Space, limit: float) -> spaces.Space:
    """Return `space` with the bounds of its boxes within [-limit, limit].

    Raises ConfigError where a box has nothing within.
    """
    if isinstance(space, spaces.Box):
        outside = (space.low > limit) | (space.high < -limit)
        if outside.any():
            low, high = (x.ravel()[np.argmax(outside)] for x in (space.low, space.high))
            raise ConfigError(
                f"clip_actions = {limit:g}: an element of the actions has the bounds {low:g} and {high:g}, and none of "
                f"its numbers is within [-{limit:g}, {limit:g}]; must be at least {max(low, -high):g}, or leave it out"
            )
        low, high = (np.clip(x, -limit, limit).astype(space.dtype) for x in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype)  # type: ignore[arg-type]
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: narrowed(inner, limit) for name, inner in space.spaces.items()})
    return spaces.Tuple([narrowed(x, limit) for x in space.spaces]) if isinstance(space, spaces.Tuple) else space


def clip_boxes(space: spaces.Space, action: Any, limit: float) -> Any:
    """Return an action of `space` with its continuous elements clipped to [-limit, limit]."""
    if isinstance(space, spaces.Box):
        return jnp.clip(action, -limit, limit)
    if isinstance(space, spaces.Dict):
        return {name: clip_boxes(inner, action[name], limit) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(clip_boxes(inner, x, limit) for inner, x in zip(space.spaces, action, strict=True))
    return action


def _has_box(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Dict):
        return any(map(_has_box, space.spaces.values()))
    return any(map(_has_box, space.spaces)) if isinstance(space, spaces.Tuple) else isinstance(space, spaces.Box)
