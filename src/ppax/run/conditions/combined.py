"""Combined stop conditions: all or any of several."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from ppax.core.protocols import Callback, ConditionState, Row, StopCondition
from ppax.core.types import ConfigError, TrainState
from ppax.run.conditions.callbacks import as_condition

Conditions = tuple[StopCondition, ...]


@dataclasses.dataclass(frozen=True, init=False)
class And:
    """Condition: all of `conditions` are met at the same row."""

    conditions: Conditions

    def __init__(self, *conditions: StopCondition | Callback):
        object.__setattr__(self, "conditions", _checked("And", conditions))

    def __str__(self) -> str:
        return " and ".join(f"({one})" if isinstance(one, Or) else str(one) for one in self.conditions)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that it reads."""
        return _metrics(self.conditions)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row; every condition sees every row."""
        return _combined(all, " and ", _updated(self.conditions, before, state, row))


@dataclasses.dataclass(frozen=True, init=False)
class Or:
    """Condition: at least one of `conditions` is met."""

    conditions: Conditions

    def __init__(self, *conditions: StopCondition | Callback):
        object.__setattr__(self, "conditions", _checked("Or", conditions))

    def __str__(self) -> str:
        return " or ".join(map(str, self.conditions))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that it reads."""
        return _metrics(self.conditions)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row; every condition sees every row."""
        return _combined(any, " or ", _updated(self.conditions, before, state, row))


def _checked(name: str, conditions: tuple[StopCondition | Callback, ...]) -> Conditions:
    if not conditions:
        raise ConfigError(f"{name} needs conditions: {name}(HitsUpperBound(...), ...)")
    return tuple(map(as_condition, conditions))


def _metrics(conditions: Conditions) -> tuple[str, ...]:
    return tuple(name for one in conditions for name in one.metrics)


def _updated(conditions: Conditions, before: ConditionState, state: TrainState, row: Row) -> list[ConditionState]:
    states = before.parts or (ConditionState(),) * len(conditions)
    return [one.update(own, state, row) for one, own in zip(conditions, states, strict=True)]


def _combined(rule: Callable[[Iterable[bool]], bool], word: str, parts: list[ConditionState]) -> ConditionState:
    met = rule(part.met for part in parts)
    reason = word.join(part.reason for part in parts if part.met) if met else ""
    return ConditionState(met, reason, parts=tuple(parts))
