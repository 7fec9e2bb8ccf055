"""Composition of two schedules."""

from __future__ import annotations

from typing import Any

from jax import Array

from ppax.core.parts import slot
from ppax.core.protocols import Schedule
from ppax.core.types import part
from ppax.ppo.schedules.constant import Constant


@part
class Both:
    """Composition of two schedules; each may be a `Both` again."""

    first: Schedule = slot("schedule", "schedule applied first", default=Constant())
    second: Schedule = slot("schedule", "schedule applied second, to the result of the first", default=Constant())

    def __call__(self, agent: Any, progress: Array, env_steps: Array) -> Any:
        """Agent with both schedules applied."""
        return self.second(self.first(agent, progress, env_steps), progress, env_steps)
