"""Best policy so far: a copy of the learner at the row where a metric was best."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import numpy as np

from ppax.core.protocols import ConditionState, Row
from ppax.core.types import ConfigError, LearnerState, TrainState

MODES = ("max", "min")


class KeepBest:
    """Callback that keeps a copy of the learner at the row with the best value of a metric; it never ends a run.

    The metrics of a row cover the iterations since the row before, so most of them come from slightly older policies
    than the one kept. What is kept is of one run: rows of another run, whose iterations begin anew, replace it.
    """

    def __init__(self, key: str, mode: str = "max"):
        if mode not in MODES:
            raise ConfigError(f"KeepBest: mode = {mode!r}: must be 'max' or 'min'")
        self.key, self.mode = key, mode
        self._iteration = -math.inf
        self.value = math.nan  # NaN until a row has a value
        self.policy: TrainState | None = None  # NumPy arrays on the host; without `actor` and `key`
        self.row: Row | None = None

    def __str__(self) -> str:
        return f"KeepBest({self.key!r})"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name of the metric."""
        return (self.key,)

    @property
    def learner(self) -> LearnerState | None:
        """Best learner so far; None until a row has a value."""
        return None if self.policy is None else self.policy.learner

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """Keep the learner of `state` if `row` is the best so far; the returned state is never met."""
        iteration, value = row.get("iteration", math.inf), float(row[self.key])
        if iteration <= self._iteration and iteration < math.inf:  # iterations of one run only increase
            self.value, self.policy, self.row = math.nan, None, None
        self._iteration = iteration
        better = value > self.value if self.mode == "max" else value < self.value
        if better or (self.policy is None and not math.isnan(value)):
            # copy: the next chunk of training reuses the memory of this state (buffer donation)
            self.keep(jax.tree.map(lambda x: np.array(x, copy=True), policy_of(state)), row)
        return before

    def keep(self, policy: TrainState, row: Row) -> None:
        """Keep `policy`, a host copy without environments and keys, as the best so far."""
        self.policy, self.row, self.value = policy, dict(row), float(row[self.key])


def policy_of(state: TrainState) -> TrainState:
    """Copy of a state without environments and keys: the learner and its step counters."""
    without: dict[str, Any] = {"actor": (), "key": ()}
    return dataclasses.replace(state, **without)
