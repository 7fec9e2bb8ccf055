"""Constant schedule."""

from __future__ import annotations

from typing import Any

from jax import Array

from ppax.core.types import part


@part
class Constant:
    """Constant schedule: no number is annealed."""

    def __call__(self, agent: Any, progress: Array, env_steps: Array | float = 0.0) -> Any:
        """Return the agent unchanged."""
        return agent
