"""Piecewise-linear schedule."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.core.types import Scalar, number, part, static
from ppax.ppo.schedules.base import piecewise


@part
class Interpolated:
    """Piecewise-linear schedule through the points (at[i], values[i]); constant after the last point."""

    leaves: tuple[str, ...] = static(
        "paths of the numbers to set, such as learning_rate or loss.clip_eps", default=("learning_rate",)
    )
    at: tuple[Scalar, ...] = number("position of each value; the first is 0", default=(0.0,), low=0.0)
    values: tuple[Scalar, ...] = number("value at each position; linear in between", default=(3e-4,))
    by: str = static(
        "unit of at: progress of training in [0, 1], or env_steps",
        default="progress",
        choices=("progress", "env_steps"),
    )

    def __call__(self, agent: Any, progress: Array, env_steps: Array) -> Any:
        """Agent at `progress` of training in [0, 1], or after `env_steps` valid steps."""
        return piecewise(self, agent, progress, env_steps, jnp.interp)
