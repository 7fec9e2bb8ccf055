"""Cosine schedule. Loshchilov and Hutter 2017, https://arxiv.org/abs/1608.03983"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ppax.schedules.base import scale
from ppax.types import Scalar, number, part, static


@part
class Cosine:
    """Each named number falls along half a cosine, to a power, from its value to `end` times its value."""

    leaves: tuple[str, ...] = static("dotted names of the numbers to anneal", default=("learning_rate",))
    end: Scalar = number("share of the value that is left at the end", default=0.0, low=0.0)
    exponent: Scalar = number("power of the cosine's half wave: above 1 it falls sooner", default=1.0, above=0.0)

    def __call__(self, agent: Any, progress: Array, env_steps: Array | float = 0.0) -> Any:
        """The agent at `progress`."""
        wave = 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(progress, 0.0, 1.0)))
        return scale(agent, self.leaves, self.end + (1.0 - self.end) * wave**self.exponent)
