"""Composition of two schedules."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax import Array

from ppax.protocols import Schedule
from ppax.schedules.constant import Constant
from ppax.types import part


@part
class Both:
    """Composition of two schedules; each may be a `Both` again."""

    first: Schedule = dataclasses.field(default=Constant(), metadata={"doc": "schedule applied first"})
    second: Schedule = dataclasses.field(
        default=Constant(), metadata={"doc": "schedule applied second, to the result of the first"}
    )

    def __call__(self, agent: Any, progress: Array, env_steps: Array) -> Any:
        """Agent with both schedules applied."""
        return self.second(self.first(agent, progress, env_steps), progress, env_steps)
