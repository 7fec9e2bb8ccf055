"""Stop conditions and the best policy as callbacks of `fit`, called with (state, row) at every log row.

    best = KeepBest("episode_return")
    stop = Or(HitsUpperBound("episode_return", 475), StopsRising("episode_return", patience=20))
    run = ppax.fit(agent, env, callbacks=[best, stop])
    ppax.evaluate(agent, env, best.learner, jax.random.key(0))

A row where the metric is NaN (no episode finished) is skipped: the verdict stays the same. The state of a condition
belongs to one run; it is reset when rows of another run arrive, and lost when a new process resumes the run. Conditions
of the run file (`stop`, `best`; condition_text.py, ending.py) are restored at a resume.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from ppax.types import ConfigError, LearnerState, TrainState

Condition = Callable[[TrainState, Mapping[str, float]], bool | None]


class _Watch:
    """Base of the conditions on one metric: skips NaN, resets for a new run."""

    def __init__(self, key: str):
        self.key, self.latest = key, math.nan
        self._iteration = -math.inf
        self.forget()

    def forget(self) -> None:
        """Reset to the state before the first row."""
        self.met = False

    def __call__(self, state: TrainState, row: Mapping[str, float]) -> bool:
        """Return whether the condition is met after this row; ConfigError if the row lacks the metric."""
        self.check(row)
        iteration = row.get("iteration", math.inf)
        if iteration <= self._iteration and iteration < math.inf:  # a new run: iterations of one run only increase
            self.forget()
        self._iteration = iteration
        if not math.isnan(row[self.key]):
            self.latest = float(row[self.key])
            self.met = self._update(self.latest, state, row)
        return self.met

    def check(self, names: Collection[str]) -> None:
        """Raise ConfigError, with the nearest name, if the metric is not among `names`."""
        if self.key not in names:
            nearest = difflib.get_close_matches(self.key, names, n=1, cutoff=0.0)
            raise ConfigError(
                f"{type(self).__name__}: no metric {self.key!r} is logged"
                + (f"; did you mean {nearest[0]!r}?" if nearest else "")
            )

    def _update(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        """Take a row with the metric's `value`; return whether the condition is met."""
        raise NotImplementedError


class HitsUpperBound(_Watch):
    """Condition: the metric is at least `bound`."""

    def __str__(self) -> str:
        return f"{self.key} >= {self.bound:.12g}"

    def __init__(self, key: str, bound: float):
        super().__init__(key)
        self.bound = _checked(self, "bound", bound)

    def _update(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        return value >= self.bound


class HitsLowerBound(_Watch):
    """Condition: the metric is at most `bound`."""

    def __str__(self) -> str:
        return f"{self.key} <= {self.bound:.12g}"

    def __init__(self, key: str, bound: float):
        super().__init__(key)
        self.bound = _checked(self, "bound", bound)

    def _update(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        return value <= self.bound


class Plateaus(_Watch):
    """Condition: for `patience` consecutive rows the metric stayed within relative tolerance `rtol`.

    The reference is the value before the first of these rows, not the previous row: a slow rise is not a plateau.
    """

    def __init__(self, key: str, patience: int = 5, rtol: float = 1e-3):
        super().__init__(key)
        self.patience, self.rtol = _checked(self, "patience", patience, 1), _checked(self, "rtol", rtol, 0.0)

    def __str__(self) -> str:
        return f"{self.key} plateaus for {self.patience} within {self.rtol:.12g}"

    def forget(self) -> None:
        """Reset to the state before the first row."""
        self.met, self.level, self.rows = False, math.nan, 0

    def _update(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        if abs(value - self.level) <= self.rtol * abs(self.level):
            self.rows += 1
        else:
            self.level, self.rows = value, 0
        return self.rows >= self.patience


class StopsRising(_Watch):
    """Condition: for `patience` consecutive rows the metric did not exceed its maximum so far."""

    sign = 1.0

    def __init__(self, key: str, patience: int = 5):
        super().__init__(key)
        self.patience = _checked(self, "patience", patience, 1)

    def __str__(self) -> str:
        return f"{self.key} stops {'rising' if self.sign > 0.0 else 'falling'} for {self.patience}"

    def forget(self) -> None:
        """Reset to the state before the first row."""
        self.met, self.best, self.rows = False, math.nan, 0

    def _update(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        if math.isnan(self.best) or self.sign * value > self.sign * self.best:
            self.best, self.rows = value, 0
        else:
            self.rows += 1
        return self.rows >= self.patience


class StopsFalling(StopsRising):
    """Condition: for `patience` consecutive rows the metric did not fall below its minimum so far."""

    sign = -1.0


class And:
    """Condition: all of `conditions` are met at the same row."""

    def __init__(self, *conditions: Condition):
        self.conditions = _checked_conditions(self, conditions)

    def __call__(self, state: TrainState, row: Mapping[str, float]) -> bool:
        """Return whether all are met; every condition is called with every row."""
        self.verdicts = [bool(condition(state, row)) for condition in self.conditions]
        return all(self.verdicts)

    def __str__(self) -> str:
        return " and ".join(f"({c})" if isinstance(c, Or) else _name(c) for c in self.conditions)


class Or:
    """Condition: at least one of `conditions` is met."""

    def __init__(self, *conditions: Condition):
        self.conditions = _checked_conditions(self, conditions)

    def __call__(self, state: TrainState, row: Mapping[str, float]) -> bool:
        """Return whether any is met; every condition is called with every row."""
        self.verdicts = [bool(condition(state, row)) for condition in self.conditions]
        return any(self.verdicts)

    def __str__(self) -> str:
        return " or ".join(map(_name, self.conditions))


class KeepBest(_Watch):
    """Callback that keeps a copy of the learner at the row with the best value of a metric; it never ends a run.

    The metrics of a row cover the iterations since the row before, so most of them come from slightly older policies
    than the one kept.
    """

    def __init__(self, key: str, mode: str = "max"):
        if mode not in ("max", "min"):
            raise ConfigError(f"KeepBest: mode = {mode!r}: must be 'max' or 'min'")
        super().__init__(key)
        self.mode = mode

    def forget(self) -> None:
        """Reset to the state before the first row."""
        self.met = False
        self.value = math.nan  # NaN, and below None, until a row has a value
        self.policy: TrainState | None = None  # NumPy arrays on the host; without `actor` and `key`
        self.row: dict[str, float] | None = None

    @property
    def learner(self) -> LearnerState | None:
        """Best learner so far; None until a row has a value."""
        return None if self.policy is None else self.policy.learner

    def _update(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        better = value > self.value if self.mode == "max" else value < self.value
        if self.policy is None or better:
            # copy: the next chunk of training reuses the memory of this state (buffer donation)
            self.policy = jax.tree.map(lambda x: np.array(x, copy=True), policy_of(state))
            self.value, self.row = value, dict(row)
        return False


def policy_of(state: TrainState) -> TrainState:
    """Copy of a state without environments and keys: the learner and its step counters."""
    without: dict[str, Any] = {"actor": (), "key": ()}
    return dataclasses.replace(state, **without)


def watches(condition: object) -> Iterator[_Watch]:
    """Yield the conditions on single metrics in `condition`, inside And and Or too."""
    if isinstance(condition, _Watch):
        yield condition
    elif isinstance(condition, And | Or):
        for part in condition.conditions:
            yield from watches(part)


def why(condition: object) -> str:
    """Describe the parts of `condition` that were met at the last row, with the values of their metrics."""
    if isinstance(condition, And | Or):
        met = [why(part) for part, verdict in zip(condition.conditions, condition.verdicts, strict=True) if verdict]
        return (" and " if isinstance(condition, And) else " or ").join(met)
    return f"{condition} (at {condition.latest:.6g})" if isinstance(condition, _Watch) else _name(condition)


def _name(condition: object) -> str:
    return (
        str(condition)
        if isinstance(condition, _Watch | And | Or)
        else f"callback {getattr(condition, '__name__', '')}".strip()
    )


def _checked(owner: _Watch, name: str, value: float, low: float = -math.inf) -> float:
    if math.isnan(value) or value < low:
        raise ConfigError(f"{type(owner).__name__}: {name} = {value}: must be a number, at least {low:g}")
    return value


def _checked_conditions(owner: And | Or, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    if not conditions or not all(map(callable, conditions)):
        raise ConfigError(f"{type(owner).__name__} needs conditions: {type(owner).__name__}(HitsUpperBound(...), ...)")
    return conditions
