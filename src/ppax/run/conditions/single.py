"""Stop conditions on one metric. To write another: a frozen value with `metrics` and `update` (`ppax.protocols`)."""

from __future__ import annotations

import dataclasses
import math

from ppax.core.protocols import ConditionState, Row
from ppax.core.types import ConfigError, TrainState


@dataclasses.dataclass(frozen=True)
class HitsUpperBound:
    """Condition: the metric is at least `bound`."""

    key: str
    bound: float

    def __post_init__(self) -> None:
        _require_number(self, "bound", self.bound)

    def __str__(self) -> str:
        return f"{self.key} >= {self.bound:.12g}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name of the metric."""
        return (self.key,)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row; the one before if the metric is NaN."""
        value = row[self.key]
        return before if math.isnan(value) else _state(self, value, value >= self.bound)


@dataclasses.dataclass(frozen=True)
class HitsLowerBound:
    """Condition: the metric is at most `bound`."""

    key: str
    bound: float

    def __post_init__(self) -> None:
        _require_number(self, "bound", self.bound)

    def __str__(self) -> str:
        return f"{self.key} <= {self.bound:.12g}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name of the metric."""
        return (self.key,)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row; the one before if the metric is NaN."""
        value = row[self.key]
        return before if math.isnan(value) else _state(self, value, value <= self.bound)


@dataclasses.dataclass(frozen=True)
class Plateaus:
    """Condition: for `patience` consecutive rows the metric stayed within relative tolerance `rtol`.

    The reference is the value before the first of these rows, not the previous row: a slow rise is not a plateau.
    """

    key: str
    patience: int = 5
    rtol: float = 1e-3

    def __post_init__(self) -> None:
        _require_number(self, "patience", self.patience, 1)
        _require_number(self, "rtol", self.rtol, 0.0)

    def __str__(self) -> str:
        return f"{self.key} plateaus for {self.patience} within {self.rtol:.12g}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name of the metric."""
        return (self.key,)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row; the one before if the metric is NaN."""
        value, level = row[self.key], before.reference
        if math.isnan(value):
            return before
        same = abs(value - level) <= self.rtol * abs(level)
        return _counted(self, value, before, same)


@dataclasses.dataclass(frozen=True)
class StopsRising:
    """Condition: for `patience` consecutive rows the metric did not exceed its maximum so far."""

    key: str
    patience: int = 5

    def __post_init__(self) -> None:
        _require_number(self, "patience", self.patience, 1)

    def __str__(self) -> str:
        return f"{self.key} stops rising for {self.patience}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name of the metric."""
        return (self.key,)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row; the one before if the metric is NaN."""
        value = row[self.key]
        return before if math.isnan(value) else _counted(self, value, before, value <= before.reference)


@dataclasses.dataclass(frozen=True)
class StopsFalling:
    """Condition: for `patience` consecutive rows the metric did not fall below its minimum so far."""

    key: str
    patience: int = 5

    def __post_init__(self) -> None:
        _require_number(self, "patience", self.patience, 1)

    def __str__(self) -> str:
        return f"{self.key} stops falling for {self.patience}"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name of the metric."""
        return (self.key,)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row; the one before if the metric is NaN."""
        value = row[self.key]
        return before if math.isnan(value) else _counted(self, value, before, value >= before.reference)


Patient = Plateaus | StopsRising | StopsFalling  # met after `patience` rows


def _state(condition: object, value: float, met: bool, reference: float = math.nan, rows: int = 0) -> ConditionState:
    return ConditionState(met, f"{condition} (at {value:.6g})" if met else "", reference, rows)


def _counted(condition: Patient, value: float, before: ConditionState, holds: bool) -> ConditionState:
    """Count a row for which the comparison holds; otherwise `value` is the new reference. False for the first row."""
    rows = before.rows + 1 if holds else 0
    return _state(condition, value, rows >= condition.patience, before.reference if holds else value, rows)


def _require_number(condition: object, name: str, value: float, low: float = -math.inf) -> None:
    if math.isnan(value) or value < low:
        raise ConfigError(f"{type(condition).__name__}: {name} = {value}: must be a number, at least {low:g}")
