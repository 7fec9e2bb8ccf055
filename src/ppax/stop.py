"""When to stop, and which policy to keep: callbacks for `fit`, called with (state, row) at every log row.

    best = KeepBest("episode_return")
    stop = Or(HitsUpperBound("episode_return", 475), StopsRising("episode_return", patience=20))
    run = ppax.fit(agent, env, callbacks=[best, stop])
    ppax.evaluate(agent, env, best.learner, jax.random.key(0))

A row where the metric is NaN (no episode finished) does not count: the verdict stays as it was. What they remember is
of one run, and begins anew when rows of another run come, or when a run is resumed by a new process.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping

import jax
import numpy as np

from ppax.types import ConfigError, LearnerState, TrainState

Condition = Callable[[TrainState, Mapping[str, float]], bool | None]


class _Watch:
    """What all that watch one metric share."""

    def __init__(self, key: str):
        self.key = key
        self._iteration = -math.inf
        self.forget()

    def forget(self) -> None:
        """As before the first row."""
        self.met = False

    def __call__(self, state: TrainState, row: Mapping[str, float]) -> bool:
        """Whether the condition is met, this row included."""
        if self.key not in row:
            nearest = difflib.get_close_matches(self.key, row, n=1, cutoff=0.0)
            raise ConfigError(
                f"{type(self).__name__}: no metric {self.key!r} is logged"
                + (f"; did you mean {nearest[0]!r}?" if nearest else "")
            )
        iteration = row.get("iteration", math.inf)
        if iteration <= self._iteration and iteration < math.inf:  # rows of one run only go up
            self.forget()
        self._iteration = iteration
        if not math.isnan(row[self.key]):
            self.met = self._judge(float(row[self.key]), state, row)
        return self.met

    def _judge(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        raise NotImplementedError


class HitsUpperBound(_Watch):
    """The metric is at `bound` or above."""

    def __init__(self, key: str, bound: float):
        super().__init__(key)
        self.bound = _checked(self, "bound", bound)

    def _judge(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        return value >= self.bound


class HitsLowerBound(_Watch):
    """The metric is at `bound` or below."""

    def __init__(self, key: str, bound: float):
        super().__init__(key)
        self.bound = _checked(self, "bound", bound)

    def _judge(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        return value <= self.bound


class Plateaus(_Watch):
    """For `patience` rows in succession the metric stayed within `rtol` of where it was before them.

    Compared with the value before all of them, not with the row before: a slow climb is no plateau.
    """

    def __init__(self, key: str, patience: int = 5, rtol: float = 1e-3):
        super().__init__(key)
        self.patience, self.rtol = _checked(self, "patience", patience, 1), _checked(self, "rtol", rtol, 0.0)

    def forget(self) -> None:
        """As before the first row."""
        self.met, self.level, self.rows = False, math.nan, 0

    def _judge(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        if abs(value - self.level) <= self.rtol * abs(self.level):
            self.rows += 1
        else:
            self.level, self.rows = value, 0
        return self.rows >= self.patience


class StopsRising(_Watch):
    """For `patience` rows in succession the metric was not above its highest."""

    sign = 1.0

    def __init__(self, key: str, patience: int = 5):
        super().__init__(key)
        self.patience = _checked(self, "patience", patience, 1)

    def forget(self) -> None:
        """As before the first row."""
        self.met, self.best, self.rows = False, math.nan, 0

    def _judge(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        if math.isnan(self.best) or self.sign * value > self.sign * self.best:
            self.best, self.rows = value, 0
        else:
            self.rows += 1
        return self.rows >= self.patience


class StopsFalling(StopsRising):
    """For `patience` rows in succession the metric was not below its lowest."""

    sign = -1.0


class And:
    """All of the conditions are met at once."""

    def __init__(self, *conditions: Condition):
        self.conditions = _checked_conditions(self, conditions)

    def __call__(self, state: TrainState, row: Mapping[str, float]) -> bool:
        """Whether all are met; every one sees every row."""
        return all([bool(condition(state, row)) for condition in self.conditions])


class Or:
    """At least one of the conditions is met."""

    def __init__(self, *conditions: Condition):
        self.conditions = _checked_conditions(self, conditions)

    def __call__(self, state: TrainState, row: Mapping[str, float]) -> bool:
        """Whether one is met; every one sees every row."""
        return any([bool(condition(state, row)) for condition in self.conditions])


class KeepBest(_Watch):
    """Keeps the learner as it was at the row with the best value of a metric; never ends a run.

    A row's metrics are of the iterations up to it, and most of them of policies a little older than what is kept.
    """

    def __init__(self, key: str, mode: str = "max"):
        if mode not in ("max", "min"):
            raise ConfigError(f"KeepBest: mode = {mode!r}: must be 'max' or 'min'")
        super().__init__(key)
        self.mode = mode

    def forget(self) -> None:
        """As before the first row."""
        self.met = False
        self.value = math.nan  # NaN and None until a row has a value
        self.learner: LearnerState | None = None  # on the host, in NumPy
        self.row: dict[str, float] | None = None

    def _judge(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        better = value > self.value if self.mode == "max" else value < self.value
        if self.learner is None or better:
            # copied: the next chunk of training overwrites the memory of this state
            self.learner = jax.tree.map(lambda x: np.array(x, copy=True), state.learner)
            self.value, self.row = value, dict(row)
        return False


def _checked(owner: _Watch, name: str, value: float, low: float = -math.inf) -> float:
    if math.isnan(value) or value < low:
        raise ConfigError(f"{type(owner).__name__}: {name} = {value}: must be a number, {low:g} or more")
    return value


def _checked_conditions(owner: And | Or, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    if not conditions or not all(map(callable, conditions)):
        raise ConfigError(f"{type(owner).__name__} needs conditions: {type(owner).__name__}(HitsUpperBound(...), ...)")
    return conditions
