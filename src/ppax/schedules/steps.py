"""Piecewise-constant schedule."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.schedules.base import knots, replace_at
from ppax.types import Scalar, number, part, static


@part
class Steps:
    """Each named number is values[i] from at[i] on, until at[i + 1]: a stairway."""

    leaves: tuple[str, ...] = static("dotted names of the numbers to set", default=("learning_rate",))
    at: tuple[Scalar, ...] = number("where each value begins; the first at 0", default=(0.0,), low=0.0)
    values: tuple[Scalar, ...] = number("the value from there on", default=(3e-4,))
    by: str = static("what `at` counts", default="progress", choices=("progress", "env_steps"))

    def __call__(self, agent: Any, progress: Array, env_steps: Array) -> Any:
        """The agent at `progress` of training, or after `env_steps`."""
        at, values = knots(self)
        now = progress if self.by == "progress" else env_steps
        value = values[jnp.sum(now >= at) - 1]
        for path in self.leaves:
            agent = replace_at(agent, path, lambda _: value)
        return agent
