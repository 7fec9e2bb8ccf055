"""Stop conditions (`ppax.stop`), the best policy so far, and the other callbacks of `fit`, updated at every log row.

A condition of your own is a frozen value with `metrics` and `update` (`ppax.protocols.StopCondition`).
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from ppax.core import imports
from ppax.core.protocols import Callback, ConditionState, Logger, Row, StopCondition
from ppax.core.types import ConfigError, LearnerState, TrainState

__all__ = ["And", "HitsLowerBound", "HitsUpperBound", "KeepBest", "Or", "Plateaus", "StopsFalling", "StopsRising"]


class _OnMetric(ABC):
    """Condition on one metric; rows in which it is NaN are left out."""

    key: str

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name of the metric."""
        return (self.key,)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row."""
        value = row[self.key]
        return before if math.isnan(value) else self._after(before, value)

    @abstractmethod
    def _after(self, before: ConditionState, value: float) -> ConditionState:
        """State after a row with a number."""

    def _state(self, value: float, met: bool, reference: float = math.nan, rows: int = 0) -> ConditionState:
        return ConditionState(met, f"{self} (at {value:.6g})" if met else "", reference, rows)


@dataclasses.dataclass(frozen=True)
class HitsUpperBound(_OnMetric):
    """Condition: the metric is at least `bound`."""

    key: str
    bound: float

    def __post_init__(self) -> None:
        _require_number(self, "bound", self.bound)

    def __str__(self) -> str:
        return f"{self.key} >= {self.bound:.12g}"

    def _after(self, before: ConditionState, value: float) -> ConditionState:
        return self._state(value, value >= self.bound)


@dataclasses.dataclass(frozen=True)
class HitsLowerBound(_OnMetric):
    """Condition: the metric is at most `bound`."""

    key: str
    bound: float

    def __post_init__(self) -> None:
        _require_number(self, "bound", self.bound)

    def __str__(self) -> str:
        return f"{self.key} <= {self.bound:.12g}"

    def _after(self, before: ConditionState, value: float) -> ConditionState:
        return self._state(value, value <= self.bound)


class _Patient(_OnMetric):
    """Condition that is met after `patience` consecutive rows which compare with a reference value."""

    patience: int

    def _after(self, before: ConditionState, value: float) -> ConditionState:
        if not self._continues(value, before.reference):  # also at the first row, whose reference is NaN
            return self._state(value, False, value)
        rows = before.rows + 1
        return self._state(value, rows >= self.patience, before.reference, rows)

    @abstractmethod
    def _continues(self, value: float, reference: float) -> bool:
        """Whether the row counts; otherwise `value` is the new reference."""


@dataclasses.dataclass(frozen=True)
class Plateaus(_Patient):
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

    def _continues(self, value: float, reference: float) -> bool:
        return abs(value - reference) <= self.rtol * abs(reference)


@dataclasses.dataclass(frozen=True)
class StopsRising(_Patient):
    """Condition: for `patience` consecutive rows the metric did not exceed its maximum so far."""

    key: str
    patience: int = 5

    def __post_init__(self) -> None:
        _require_number(self, "patience", self.patience, 1)

    def __str__(self) -> str:
        return f"{self.key} stops rising for {self.patience}"

    def _continues(self, value: float, reference: float) -> bool:
        return value <= reference


@dataclasses.dataclass(frozen=True)
class StopsFalling(_Patient):
    """Condition: for `patience` consecutive rows the metric did not fall below its minimum so far."""

    key: str
    patience: int = 5

    def __post_init__(self) -> None:
        _require_number(self, "patience", self.patience, 1)

    def __str__(self) -> str:
        return f"{self.key} stops falling for {self.patience}"

    def _continues(self, value: float, reference: float) -> bool:
        return value >= reference


def _require_number(condition: object, name: str, value: float, low: float = -math.inf) -> None:
    if math.isnan(value) or value < low:
        raise ConfigError(f"{type(condition).__name__}: {name} = {value}: must be a number, at least {low:g}")


@dataclasses.dataclass(frozen=True, init=False)
class _Combined(ABC):
    """Condition made of several; each of them sees every row."""

    conditions: tuple[StopCondition, ...]
    word: ClassVar[str]  # between their texts

    def __init__(self, *conditions: StopCondition | Callback):
        name = type(self).__name__
        if not conditions:
            raise ConfigError(f"{name} needs conditions: {name}(HitsUpperBound(...), ...)")
        object.__setattr__(self, "conditions", tuple(map(as_condition, conditions)))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that it reads."""
        return tuple(name for one in self.conditions for name in one.metrics)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row."""
        states = before.parts or (ConditionState(),) * len(self.conditions)
        parts = tuple(one.update(own, state, row) for one, own in zip(self.conditions, states, strict=True))
        met = self._is_met(part.met for part in parts)
        reason = self.word.join(part.reason for part in parts if part.met) if met else ""
        return ConditionState(met, reason, parts=parts)

    @abstractmethod
    def _is_met(self, parts: Iterable[bool]) -> bool:
        """Whether the condition is met, from whether each of `conditions` is."""


class And(_Combined):
    """Condition: all of `conditions` are met at the same row."""

    word = " and "

    def _is_met(self, parts: Iterable[bool]) -> bool:
        return all(parts)

    def __str__(self) -> str:
        return self.word.join(f"({one})" if isinstance(one, Or) else str(one) for one in self.conditions)


class Or(_Combined):
    """Condition: at least one of `conditions` is met."""

    word = " or "

    def _is_met(self, parts: Iterable[bool]) -> bool:
        return any(parts)

    def __str__(self) -> str:
        return self.word.join(map(str, self.conditions))


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


FORMS = (
    "must be a function f(state, row), called at every log row, which ends the run by returning True; a logger, an "
    "object with log(row) and close(); or a condition of ppax.stop"
)


@dataclasses.dataclass(frozen=True)
class CallbackCondition:
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
    return CallbackCondition(given)


GRAMMAR = (
    "METRIC >= NUMBER, METRIC <= NUMBER, METRIC plateaus [for ROWS] [within TOLERANCE], METRIC stops rising "
    "[for ROWS], METRIC stops falling [for ROWS], my_package.module:Condition; joined by `and`, `or` and parentheses, "
    "`and` first"
)
DEEPEST = 50  # maximum nesting of parentheses
LONGEST, DIGITS = 10_000, 9  # characters of a condition, and of a number of rows
VERBS = (">=", "<=", "plateaus", "stops")
TOKEN = re.compile(r"\s*(\(|\)|[<>=]+|[^\s()<>=]+)")


def parse_condition(text: str) -> StopCondition:
    """Parse a stop condition of GRAMMAR, as run files have it; ConfigError, with the syntax, if `text` is not one.

    ROWS counts log rows.
    """
    parser = _Parser(text)
    condition = parser.disjunction()
    if parser.token:
        raise parser.error("`and`, `or` or the end", ("and", "or"))
    return condition


def _own(path: str) -> StopCondition:
    """Return the condition at an import path: an object, or a class without required arguments."""
    found = imports.load(path, "stop")
    try:
        condition = found() if isinstance(found, type) else found
    except TypeError as error:
        raise ConfigError(f"stop = {path!r}: {error}; give its arguments defaults, or name an object") from error
    if not isinstance(condition, StopCondition):
        raise ConfigError(f"stop = {path!r}: a {type(condition).__name__} is no StopCondition, with metrics and update")
    return condition


class _Parser:
    """Recursive-descent parser: each method takes its tokens and returns the condition that they describe."""

    def __init__(self, text: str):
        self.text = text
        if len(text) > LONGEST:
            raise ConfigError(f"stop has {len(text):,} characters; must have at most {LONGEST:,}")
        self.tokens = [*TOKEN.findall(text), ""]
        self.depth = 0

    @property
    def token(self) -> str:
        """Next token; "" at the end."""
        return self.tokens[0]

    def take(self) -> str:
        """Return the next token and advance."""
        return self.tokens.pop(0)

    def takes(self, word: str) -> bool:
        """Return whether the next token is `word`; if it is, advance."""
        return self.token == word and bool(self.take())

    def error(self, expected: str, choices: tuple[str, ...] = ()) -> ConfigError:
        """Syntax error: the next token, what was expected, the nearest of `choices`, the syntax."""
        nearest = difflib.get_close_matches(self.token, choices, n=1, cutoff=0.0)
        hint = f"; nearest: {nearest[0]}" if nearest and self.token else ""
        received = repr(self.token) if self.token else "the end"
        return ConfigError(f"stop = {self.text!r}: expected {expected}, received {received}{hint}. Syntax: {GRAMMAR}")

    def disjunction(self) -> StopCondition:
        """Conditions joined by `or`."""
        parts = [self.conjunction()]
        while self.takes("or"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else Or(*parts)

    def conjunction(self) -> StopCondition:
        """Conditions joined by `and`."""
        parts = [self.term()]
        while self.takes("and"):
            parts.append(self.term())
        return parts[0] if len(parts) == 1 else And(*parts)

    def term(self) -> StopCondition:
        """Condition on one metric, or a condition in parentheses."""
        if self.takes("("):
            self.depth += 1
            if self.depth > DEEPEST:
                raise ConfigError(f"stop = {self.text[:20]!r}...: must have at most {DEEPEST} nested parentheses")
            inside = self.disjunction()
            self.depth -= 1
            if not self.takes(")"):
                raise self.error("`)`", ("and", "or", ")"))
            return inside
        if imports.is_path(self.token):
            return _own(self.take())
        if not re.fullmatch(r"[A-Za-z_][\w/.]*", self.token) or self.token in ("and", "or"):
            raise self.error("the name of a metric")
        return self.comparison(self.take())

    def comparison(self, metric: str) -> StopCondition:
        """Condition on `metric`: a bound, a plateau, or the end of a rise or fall."""
        if self.takes(">="):
            return HitsUpperBound(metric, self.number("a number"))
        if self.takes("<="):
            return HitsLowerBound(metric, self.number("a number"))
        if self.takes("plateaus"):
            patience = self.rows()
            return Plateaus(
                metric, patience, self.number("a relative tolerance, as 1e-3") if self.takes("within") else 1e-3
            )
        if self.takes("stops"):
            if self.token not in ("rising", "falling"):
                raise self.error("`rising` or `falling`", ("rising", "falling"))
            return (StopsRising if self.take() == "rising" else StopsFalling)(metric, self.rows())
        raise self.error(", ".join(f"`{verb}`" for verb in VERBS), VERBS)

    def rows(self) -> int:
        """Number of rows after `for`; 5 without `for`."""
        if not self.takes("for"):
            return 5
        if not self.token.isdecimal():
            raise self.error("a whole number of rows")
        if len(self.token) > DIGITS:
            raise ConfigError(f"stop: for {self.token[:DIGITS]}... rows: must have at most {DIGITS} digits")
        return int(self.take())

    def number(self, expected: str) -> float:
        """Return the next token as a number; ConfigError where it is none."""
        try:
            value = float(self.token)
        except ValueError:
            raise self.error(expected) from None
        self.take()
        return value
