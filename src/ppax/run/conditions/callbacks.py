"""Callbacks passed to `fit`: functions, loggers and stop conditions. Only this file distinguishes and checks them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

from ppax.core.protocols import Callback, ConditionState, Logger, Row, StopCondition
from ppax.core.types import ConfigError, TrainState

FORMS = (
    "must be a function f(state, row), called at every log row, which ends the run by returning True; a logger, an "
    "object with log(row) and close(); or a condition of ppax.stop"
)


@dataclasses.dataclass(frozen=True)
class Function:
    """Stop condition of a callback: met at the rows for which it returns True."""

    call: Callback

    def __str__(self) -> str:
        return f"callback {getattr(self.call, '__name__', '')}".strip()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that it reads: unknown."""
        return ()

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row."""
        return ConditionState(True, str(self)) if self.call(state, row) else ConditionState()


class Callbacks(NamedTuple):
    """Callbacks of a run: loggers, and conditions in the order in which they are updated."""

    loggers: list[Logger]
    conditions: list[StopCondition]


def sort_callbacks(callbacks: Iterable[object]) -> Callbacks:
    """Sort the callbacks passed to `fit` into loggers and conditions; ConfigError for other objects."""
    if not isinstance(callbacks, Iterable):
        raise ConfigError(f"callbacks = {callbacks!r}: must be a list; write callbacks=[...]. Each {FORMS}")
    sorted_ = Callbacks([], [])
    for one in callbacks:
        if isinstance(one, Logger) and not isinstance(one, type):
            sorted_.loggers.append(one)
        else:
            sorted_.conditions.append(as_condition(one))
    return sorted_


def as_condition(given: Any) -> StopCondition:
    """Return a condition unchanged, and a function as the condition of its results; ConfigError for others."""
    if isinstance(given, type):
        raise ConfigError(f"callback {given.__name__} is a class: pass an object, {given.__name__}(...). It {FORMS}")
    if isinstance(given, StopCondition):
        return given
    if not callable(given):
        raise ConfigError(f"callback {given!r}: {FORMS}")
    return Function(given)
