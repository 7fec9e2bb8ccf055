"""Two schedules at once."""

from __future__ import annotations

import dataclasses
from typing import Any

from jax import Array

from ppax.schedules.constant import Constant
from ppax.types import Schedule, part


@part
class Both:
    """Two schedules, one after the other; `both` may hold another `both`."""

    first: Schedule = dataclasses.field(default=Constant(), metadata={"doc": "the one that acts first"})
    second: Schedule = dataclasses.field(default=Constant(), metadata={"doc": "the one that acts after it"})

    def __call__(self, agent: Any, progress: Array, env_steps: Array) -> Any:
        """The agent as both make it."""
        return self.second(self.first(agent, progress, env_steps), progress, env_steps)
