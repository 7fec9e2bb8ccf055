"""When to stop, and which policy to keep: callbacks for `fit`, called with (state, row) at every log row.

    best = KeepBest("episode_return")
    stop = Or(HitsUpperBound("episode_return", 475), StopsRising("episode_return", patience=20))
    run = ppax.fit(agent, env, callbacks=[best, stop])
    ppax.evaluate(agent, env, best.learner, jax.random.key(0))

A row where the metric is NaN (no episode finished) does not count: the verdict stays as it was. What they remember is
of one run, and begins anew when rows of another run come, or when a run is resumed by a new process. Those that stand
in the run file (`stop`, `best`; conditions.py, ending.py) remember over a resume too.
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
    """What all that watch one metric share."""

    def __init__(self, key: str):
        self.key, self.latest = key, math.nan
        self._iteration = -math.inf
        self.forget()

    def forget(self) -> None:
        """As before the first row."""
        self.met = False

    def __call__(self, state: TrainState, row: Mapping[str, float]) -> bool:
        """Whether the condition is met, this row included."""
        self.check(row)
        iteration = row.get("iteration", math.inf)
        if iteration <= self._iteration and iteration < math.inf:  # rows of one run only go up
            self.forget()
        self._iteration = iteration
        if not math.isnan(row[self.key]):
            self.latest = float(row[self.key])
            self.met = self._judge(self.latest, state, row)
        return self.met

    def check(self, names: Collection[str]) -> None:
        """Raise ConfigError, with the nearest name, where none of `names` is the metric's."""
        if self.key not in names:
            nearest = difflib.get_close_matches(self.key, names, n=1, cutoff=0.0)
            raise ConfigError(
                f"{type(self).__name__}: no metric {self.key!r} is logged"
                + (f"; did you mean {nearest[0]!r}?" if nearest else "")
            )

    def _judge(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        raise NotImplementedError


class HitsUpperBound(_Watch):
    """The metric is at `bound` or above."""

    def __str__(self) -> str:
        return f"{self.key} >= {self.bound:.12g}"

    def __init__(self, key: str, bound: float):
        super().__init__(key)
        self.bound = _checked(self, "bound", bound)

    def _judge(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        return value >= self.bound


class HitsLowerBound(_Watch):
    """The metric is at `bound` or below."""

    def __str__(self) -> str:
        return f"{self.key} <= {self.bound:.12g}"

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

    def __str__(self) -> str:
        return f"{self.key} plateaus for {self.patience} within {self.rtol:.12g}"

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

    def __str__(self) -> str:
        return f"{self.key} stops {'rising' if self.sign > 0.0 else 'falling'} for {self.patience}"

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
        self.verdicts = [bool(condition(state, row)) for condition in self.conditions]
        return all(self.verdicts)

    def __str__(self) -> str:
        return " and ".join(f"({c})" if isinstance(c, Or) else _name(c) for c in self.conditions)


class Or:
    """At least one of the conditions is met."""

    def __init__(self, *conditions: Condition):
        self.conditions = _checked_conditions(self, conditions)

    def __call__(self, state: TrainState, row: Mapping[str, float]) -> bool:
        """Whether one is met; every one sees every row."""
        self.verdicts = [bool(condition(state, row)) for condition in self.conditions]
        return any(self.verdicts)

    def __str__(self) -> str:
        return " or ".join(map(_name, self.conditions))


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
        self.policy: TrainState | None = None  # on the host, in NumPy; without `actor` and `key`
        self.row: dict[str, float] | None = None

    @property
    def learner(self) -> LearnerState | None:
        """The best learner so far; None until a row has a value."""
        return None if self.policy is None else self.policy.learner

    def _judge(self, value: float, state: TrainState, row: Mapping[str, float]) -> bool:
        better = value > self.value if self.mode == "max" else value < self.value
        if self.policy is None or better:
            # copied: the next chunk of training overwrites the memory of this state
            self.policy = jax.tree.map(lambda x: np.array(x, copy=True), policy_of(state))
            self.value, self.row = value, dict(row)
        return False


def policy_of(state: TrainState) -> TrainState:
    """What of a state plays and says when it was, without environments and keys."""
    without: dict[str, Any] = {"actor": (), "key": ()}
    return dataclasses.replace(state, **without)


def watches(condition: object) -> Iterator[_Watch]:
    """Everything in `condition` that looks at a metric."""
    if isinstance(condition, _Watch):
        yield condition
    elif isinstance(condition, And | Or):
        for part in condition.conditions:
            yield from watches(part)


def why(condition: object) -> str:
    """What of `condition`, which was met at the last row, was met, and where the metrics stood."""
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
        raise ConfigError(f"{type(owner).__name__}: {name} = {value}: must be a number, {low:g} or more")
    return value


def _checked_conditions(owner: And | Or, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    if not conditions or not all(map(callable, conditions)):
        raise ConfigError(f"{type(owner).__name__} needs conditions: {type(owner).__name__}(HitsUpperBound(...), ...)")
    return conditions
