"""Rendering of compiled environments, inside any wrappers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ppax.core.types import ConfigError, PyTree
from ppax.envs.wrappers.agent_groups import Grouped
from ppax.envs.wrappers.clip_actions import ClipActions
from ppax.envs.wrappers.params import Randomised
from ppax.envs.wrappers.views import PartialView
from ppax.envs.wrappers.wrapper import Wrapper

SAME_STATE = PartialView | Grouped | ClipActions  # wrappers without a state of their own


def render(env: Any, state: PyTree) -> np.ndarray:
    """Return a picture of one environment, inside any wrappers, in `state`: uint8 [H, W, 3].

    Raises ConfigError if the environment has no `render(state)`.
    """
    while isinstance(env, Wrapper):
        if isinstance(env, Randomised):
            env, state = env.with_numbers(state.numbers), state.inner
        else:
            env, state = env.env, state if isinstance(env, SAME_STATE) else state.inner
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
