"""Linear schedule."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.core.types import Scalar, number, part, static
from ppax.ppo.schedules.base import scale


@part
class Linear:
    """Linear schedule: each named number is annealed from its value to `end` times its value."""

    leaves: tuple[str, ...] = static(
        "paths of the numbers to anneal, such as learning_rate or loss.clip_eps", default=("learning_rate",)
    )
    end: Scalar = number("ratio of the final value to the initial value", default=0.0, low=0.0)

    def __call__(self, agent: Any, progress: Array, env_steps: Array | float = 0.0) -> Any:
        """Agent at `progress` of training, in [0, 1]."""
        return scale(agent, self.leaves, 1.0 - jnp.clip(progress, 0.0, 1.0) * (1.0 - self.end))
