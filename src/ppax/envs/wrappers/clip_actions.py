"""Clipping of continuous actions to [low, high] before they reach the environment, compiled or on the host."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from ppax.core.protocols import Environment
from ppax.core.types import ConfigError, EnvStep, Key, PyTree, part, static
from ppax.envs.wrappers.wrapper import Wrapper

Bounds = tuple[float, float]  # low, high


@part
class ClipActions(Wrapper):
    """Wrapper of `env` that clips every element of its Box actions to [low, high], and narrows their bounds to it.

    So an unbounded Box becomes a bounded one, as the action distributions "squashed" and "beta" need it.
    """

    low: float = static("smallest value of an action's element")
    high: float = static("largest value of an action's element")

    @property
    def action_space(self) -> spaces.Space:
        """Action space of the inner environment, with the bounds of its boxes within [low, high]."""
        return narrowed(self.env.action_space, (self.low, self.high))

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Return the result of a step of the inner environment with the clipped action."""
        return self.env.step(state, clip_boxes(self.env.action_space, action, (self.low, self.high)), key)


def clip_actions(env: Environment, bounds: Bounds | None) -> Environment:
    """Return `env` with actions clipped to `bounds`, (low, high); `env` itself if they are None.

    Raises ConfigError where no action is continuous, or a Box has no action within the bounds.
    """
    if bounds is None:
        return env
    narrowed_actions(env.action_space, bounds)
    return ClipActions(env, *bounds)


def narrowed_actions(space: spaces.Space, bounds: Bounds) -> spaces.Space:
    """Return the action space `space` with the bounds of its boxes within `bounds`, (low, high).

    Raises ConfigError where there is no Box, or a Box has no action within the bounds.
    """
    if not _has_box(space):
        raise ConfigError(f"{_option(bounds)}: actions are {space}, without a Box; leave it out")
    return narrowed(space, bounds)


def narrowed(space: spaces.Space, bounds: Bounds) -> spaces.Space:
    """Return `space` with the bounds of its boxes within `bounds`, (low, high).

    Raises ConfigError where a Box has no element within the bounds.
    """
    if isinstance(space, spaces.Box):
        outside = (space.low > bounds[1]) | (space.high < bounds[0])
        if outside.any():
            low, high = (x.ravel()[np.argmax(outside)] for x in (space.low, space.high))
            valid = [min(bounds[0], high), max(bounds[1], low)]
            raise ConfigError(
                f"{_option(bounds)}: an element of the actions has the bounds {low:g} and {high:g}, and none of its "
                f"numbers is within; nearest valid value: [{valid[0]:g}, {valid[1]:g}]; or leave it out"
            )
        low, high = (np.clip(x, *bounds).astype(space.dtype) for x in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype)  # type: ignore[arg-type]
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: narrowed(inner, bounds) for name, inner in space.spaces.items()})
    return spaces.Tuple([narrowed(x, bounds) for x in space.spaces]) if isinstance(space, spaces.Tuple) else space


def clip_boxes(space: spaces.Space, action: Any, bounds: Bounds) -> Any:
    """Return an action of `space` with its continuous elements clipped to `bounds`, (low, high)."""
    if isinstance(space, spaces.Box):
        return jnp.clip(action, *bounds)
    if isinstance(space, spaces.Dict):
        return {name: clip_boxes(inner, action[name], bounds) for name, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(clip_boxes(inner, x, bounds) for inner, x in zip(space.spaces, action, strict=True))
    return action


def _option(bounds: Bounds) -> str:
    return f"clip_actions = [{bounds[0]:g}, {bounds[1]:g}]"


def _has_box(space: spaces.Space) -> bool:
    if isinstance(space, spaces.Dict):
        return any(map(_has_box, space.spaces.values()))
    return any(map(_has_box, space.spaces)) if isinstance(space, spaces.Tuple) else isinstance(space, spaces.Box)
