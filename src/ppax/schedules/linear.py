"""Linear schedule."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.schedules.base import scale
from ppax.types import Scalar, number, part, static


@part
class Linear:
    """Each named number falls on a straight line from its value to `end` times its value."""

    leaves: tuple[str, ...] = static("dotted names of the numbers to anneal", default=("learning_rate",))
    end: Scalar = number("share of the value that is left at the end", default=0.0, low=0.0)

    def __call__(self, agent: Any, progress: Array, env_steps: Array | float = 0.0) -> Any:
        """The agent at `progress`."""
        return scale(agent, self.leaves, 1.0 - jnp.clip(progress, 0.0, 1.0) * (1.0 - self.end))
