"""Stop conditions (`ppax.stop`), the best policy so far, and the other callbacks of `fit`, updated at every log row.

A condition of your own is a frozen value with `metrics` and `update` (`ppax.protocols.StopCondition`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ppax.core import imports
from ppax.core.protocols import Callback, ConditionState, Logger, Row, StopCondition
from ppax.core.types import ConfigError, LearnerState, TrainState

__all__ = ["And", "HitsLowerBound", "HitsUpperBound", "KeepBest", "Or", "Plateaus", "StopsFalling", "StopsRising"]


class _OnMetric(ABC):
    """Base class of stop conditions on one metric of the log rows; rows in which the metric is NaN change nothing."""

    key: str

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that the condition reads: one."""
        return (self.key,)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """Return the condition's state after a log row, from its state `before` that row.

        `before` is returned unchanged if the metric is NaN in the row.
        """
        value = row[self.key]
        return before if math.isnan(value) else self._after(before, value)

    @abstractmethod
    def _after(self, before: ConditionState, value: float) -> ConditionState:
        """Return the condition's state after a row in which the metric is `value`, not NaN, from its state `before`."""

    def _state(self, value: float, met: bool, reference: float = math.nan, rows: int = 0) -> ConditionState:
        return ConditionState(met, f"{self} (at {value:.6g})" if met else "", reference, rows)


@dataclasses.dataclass(frozen=True)
class HitsUpperBound(_OnMetric):
    """Stop condition: the metric `key` is at least `bound`."""

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
    """Stop condition: the metric `key` is at most `bound`."""

    key: str
    bound: float

    def __post_init__(self) -> None:
        _require_number(self, "bound", self.bound)

    def __str__(self) -> str:
        return f"{self.key} <= {self.bound:.12g}"

    def _after(self, before: ConditionState, value: float) -> ConditionState:
        return self._state(value, value <= self.bound)


class _Patient(_OnMetric):
    """Base class of stop conditions that are met after `patience` consecutive log rows that count.

    The method `_continues` says by a row's value of the metric and a reference value whether the row counts. A row that
    does not count sets the number of rows back to 0, and its value becomes the reference.
    """

    patience: int

    def _after(self, before: ConditionState, value: float) -> ConditionState:
        if not self._continues(value, before.reference):  # also at the first row, whose reference is NaN
            return self._state(value, False, value)
        rows = before.rows + 1
        return self._state(value, rows >= self.patience, before.reference, rows)

    @abstractmethod
    def _continues(self, value: float, reference: float) -> bool:
        """Return True if a row with the metric's `value` counts; if not, `value` becomes the new `reference`."""


@dataclasses.dataclass(frozen=True)
class Plateaus(_Patient):
    """Stop condition: for `patience` consecutive log rows the metric `key` stayed within relative tolerance `rtol`.

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
    """Stop condition: for `patience` consecutive log rows the metric `key` did not exceed its maximum so far."""

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
    """Stop condition: for `patience` consecutive log rows the metric `key` did not fall below its minimum so far."""

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
    """Base class of stop conditions made of several other ones, `conditions`, each of which sees every log row."""

    conditions: tuple[StopCondition, ...]
    word: ClassVar[str]  # between their texts

    def __init__(self, *conditions: StopCondition | Callback):
        name = type(self).__name__
        if not conditions:
            raise ConfigError(f"{name} needs conditions: {name}(HitsUpperBound(...), ...)")
        object.__setattr__(self, "conditions", tuple(map(as_condition, conditions)))

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that the conditions read, in their order; a name may appear twice."""
        return tuple(name for one in self.conditions for name in one.metrics)

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """Return the combination's state after a log row; its field `parts` has the states of all `conditions`."""
        states = before.parts or (ConditionState(),) * len(self.conditions)
        parts = tuple(one.update(own, state, dict(row)) for one, own in zip(self.conditions, states, strict=True))
        met = self._is_met(part.met for part in parts)
        reason = self.word.join(part.reason for part in parts if part.met) if met else ""
        return ConditionState(met, reason, parts=parts)

    @abstractmethod
    def _is_met(self, parts: Iterable[bool]) -> bool:
        """Return True if the combination is met; `parts` has, for each of `conditions`, whether it is met."""


class And(_Combined):
    """Stop condition: all of `conditions` are met at the same log row."""

    word = " and "

    def _is_met(self, parts: Iterable[bool]) -> bool:
        return all(parts)

    def __str__(self) -> str:
        return self.word.join(f"({one})" if isinstance(one, Or) else str(one) for one in self.conditions)


class Or(_Combined):
    """Stop condition: at least one of `conditions` is met."""

    word = " or "

    def _is_met(self, parts: Iterable[bool]) -> bool:
        return any(parts)

    def __str__(self) -> str:
        return self.word.join(map(str, self.conditions))


MODES = ("max", "min")


class KeepBest:
    """Callback that keeps a copy of the learner at the row with the best value of metric `key`; it never ends a run.

    `key` is the metric's name, or a function of a log row that returns a number (NaN for a row to skip), or the import
    path of such a function. `mode` says which value is best, "max" or "min". The metrics of a row cover the iterations
    since the row before, so most of them come from slightly older policies than the one kept. If the callback is used
    in a second run, whose iterations begin anew, it drops the policy of the first one.
    """

    def __init__(self, key: str | Callable[[Row], float], mode: str = "max"):
        if mode not in MODES:
            raise ConfigError(f"KeepBest: mode = {mode!r}: must be 'max' or 'min'")
        score: Any = imports.load(str(key), "best.metric") if imports.is_path(key) else key
        if not (isinstance(score, str) or callable(score)) or isinstance(score, type):
            raise ConfigError(f"best.metric = {key!r}: must be the name of a metric, or a function Row -> float")
        self.key, self.mode = _name_of(score), mode
        self.metrics = (score,) if isinstance(score, str) else names_read(score)  # metrics that are compared
        self._score = operator.itemgetter(score) if isinstance(score, str) else score
        self._iteration = -math.inf
        self.value = math.nan  # NaN until a row has a value
        self.policy: TrainState | None = None  # NumPy arrays and random keys; without `actor` and `key`
        self.row: Row | None = None

    def __str__(self) -> str:
        return f"KeepBest({self.key!r})"

    def score(self, row: Row) -> float:
        """Return the number by which the callback compares log rows; ConfigError where a user's function gives none."""
        try:
            return float(self._score(dict(row)))  # a copy, which a user's function may change
        except Exception as error:  # any exception of the user's function
            raise ConfigError(
                f"best.metric = {self.key}: gave no number for a log row ({type(error).__name__}: {error}); it must "
                "return a number for every row, and NaN for a row that does not count, such as one whose values are NaN"
            ) from error

    @property
    def learner(self) -> LearnerState | None:
        """Best learner so far; None until a row has a value."""
        return None if self.policy is None else self.policy.learner

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """Keep a copy of the learner in `state` if the metric of `row` is the best so far; return `before` unchanged.

        `before` is an argument of all stop conditions, which this callback does not need: it never ends a run.
        """
        iteration, value = row.get("iteration", math.inf), self.score(row)
        if iteration <= self._iteration and iteration < math.inf:  # iterations of one run only increase
            self.value, self.policy, self.row = math.nan, None, None
        self._iteration = iteration
        better = value > self.value if self.mode == "max" else value < self.value
        if better or (self.policy is None and not math.isnan(value)):
            # copy: the next chunk of training reuses the memory of this state (buffer donation)
            self.keep(jax.tree.map(_copied, policy_of(state)), row, value)
        return before

    def keep(self, policy: TrainState, row: Row, value: float) -> None:
        """Keep `policy` as the best so far, with its log row and `value`, the number by which rows are compared.

        `policy` has NumPy arrays, and no environments. Random keys in it are those of extensions.
        """
        self.policy, self.row, self.value = policy, dict(row), value


def _name_of(score: Any) -> str:
    """Return the name of `score`, a metric's name or a function of a log row, as files have it.

    For a function it is the import path, or the function's own name if it cannot be imported.
    """
    return score if isinstance(score, str) else imports.import_path(score) or str(getattr(score, "__qualname__", score))


class _UnknownRow(dict[str, float]):
    """Log row with which `names_read` finds out which metrics a function reads: every name has the value NaN.

    The names that were read become the keys of the row.
    """

    def __missing__(self, name: str) -> float:
        self[name] = math.nan
        return math.nan


def names_read(function: Callable[[Row], float]) -> tuple[str, ...]:
    """Return the names of the metrics that a function of a log row reads, found by a call with NaN for every metric."""
    row = _UnknownRow()
    with contextlib.suppress(Exception):  # of the user's function, which `KeepBest.score` shows
        function(row)
    return tuple(row)


def _copied(x: Any) -> Any:
    """Return a copy of the array `x`: a NumPy array, or, for random keys, which have no NumPy form, new keys."""
    if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        return np.array(x, copy=True)
    return jax.random.wrap_key_data(jnp.array(jax.random.key_data(x), copy=True), impl=jax.random.key_impl(x))


def policy_of(state: TrainState) -> TrainState:
    """Return a training state without environments and the run's random key: learner and step counters, not copied."""
    without: dict[str, Any] = {"actor": (), "key": ()}
    return dataclasses.replace(state, **without)


FORMS = (
    "must be a function f(state, row), called at every log row, which ends the run by returning True; a logger, an "
    "object with log(row) and close(); or a condition of ppax.stop"
)


@dataclasses.dataclass(frozen=True)
class CallbackCondition:
    """Stop condition made of a callback, a function f(state, row): met at the log rows for which it returns True."""

    call: Callback

    def __str__(self) -> str:
        return f"callback {getattr(self.call, '__name__', '')}".strip()

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that the callback reads: (), as they are not known."""
        return ()

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """Call the callback with a log row, and return a state that is met if it returned True."""
        return ConditionState(True, str(self)) if self.call(state, row) else ConditionState()


class Callbacks(NamedTuple):
    """Callbacks of a run: loggers, and stop conditions in the order in which they are updated."""

    loggers: list[Logger]
    conditions: list[StopCondition]


def sort_callbacks(callbacks: Iterable[object]) -> Callbacks:
    """Return the callbacks passed to `fit` as loggers and stop conditions; ConfigError for other objects."""
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
    """Return `given` as a stop condition: unchanged, or, if it is a function f(state, row), met where it returns True.

    Raises ConfigError for other objects.
    """
    if isinstance(given, type):
        raise ConfigError(f"callback {given.__name__} is a class: pass an object, {given.__name__}(...). It {FORMS}")
    if isinstance(given, StopCondition):
        return given
    if not callable(given):
        raise ConfigError(f"callback {given!r}: {FORMS}")
    return CallbackCondition(given)


@dataclasses.dataclass(frozen=True)
class _Unread:
    """Stop condition in place of a user's own where log rows are replayed: its state stays the first one, not met."""

    metrics: ClassVar[tuple[str, ...]] = ()

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """Return `before` unchanged."""
        return before


def replayable(condition: StopCondition) -> StopCondition:
    """Return `condition` as log rows of an earlier process may be replayed through it, without the training states.

    Conditions of ppax read the rows alone. A user's own may read the state: at its place, also in a combination, is a
    condition that is never met, so that it starts anew after a resume.
    """
    if isinstance(condition, And | Or):
        return type(condition)(*map(replayable, condition.conditions))
    return condition if isinstance(condition, _OnMetric) else _Unread()


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
    """Return the stop condition that `text` describes, in the syntax of run files, such as "episode_return >= 475".

    Raises ConfigError, with the syntax, if `text` is not one.
    """
    parser = _Parser(text)
    condition = parser.disjunction()
    if parser.token:
        raise parser.error("`and`, `or` or the end", ("and", "or"))
    return condition


def _own(path: str) -> StopCondition:
    """Return the stop condition at an import path: an object, or one made from a class without required arguments.

    Raises ConfigError for anything else.
    """
    found = imports.load(path, "stop")
    try:
        condition = found() if isinstance(found, type) else found
    except TypeError as error:
        raise ConfigError(f"stop = {path!r}: {error}; give its arguments defaults, or name an object") from error
    if not isinstance(condition, StopCondition):
        raise ConfigError(f"stop = {path!r}: a {type(condition).__name__} is no StopCondition, with metrics and update")
    return condition


class _Parser:
    """Recursive-descent parser of stop conditions: each method takes tokens and returns what these describe."""

    def __init__(self, text: str):
        self.text = text
        if len(text) > LONGEST:
            raise ConfigError(f"stop has {len(text):,} characters; must have at most {LONGEST:,}")
        self.tokens = [*TOKEN.findall(text), ""]
        self.depth = 0

    @property
    def token(self) -> str:
        """Next token of the text; "" at the end."""
        return self.tokens[0]

    def take(self) -> str:
        """Return the parser's next token and advance."""
        return self.tokens.pop(0)

    def takes(self, word: str) -> bool:
        """Return True, and advance, if the parser's next token is `word`; else return False."""
        return self.token == word and bool(self.take())

    def error(self, expected: str, choices: tuple[str, ...] = ()) -> ConfigError:
        """Return a syntax error that names the next token, what was `expected`, and the nearest of `choices`."""
        nearest = difflib.get_close_matches(self.token, choices, n=1, cutoff=0.0)
        hint = f"; nearest: {nearest[0]}" if nearest and self.token else ""
        received = repr(self.token) if self.token else "the end"
        return ConfigError(f"stop = {self.text!r}: expected {expected}, received {received}{hint}. Syntax: {GRAMMAR}")

    def disjunction(self) -> StopCondition:
        """Return the condition described by the next tokens: one, or several joined by `or`."""
        parts = [self.conjunction()]
        while self.takes("or"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else Or(*parts)

    def conjunction(self) -> StopCondition:
        """Return the condition described by the next tokens: one, or several joined by `and`."""
        parts = [self.term()]
        while self.takes("and"):
            parts.append(self.term())
        return parts[0] if len(parts) == 1 else And(*parts)

    def term(self) -> StopCondition:
        """Return the condition described by the next tokens: on one metric, at an import path, or in parentheses."""
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
        if not re.fullmatch(r"[A-Za-z_][\w.-]*(/.*)?", self.token) or self.token in ("and", "or"):
            raise self.error("the name of a metric")
        return self.comparison(self.take())

    def comparison(self, metric: str) -> StopCondition:
        """Return the condition on `metric` in the next tokens: a bound, a plateau, or the end of a rise or fall."""
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
        """Return the number of log rows N that the parser's next tokens, `for N`, name; 5 if there is no `for N`."""
        if not self.takes("for"):
            return 5
        if not self.token.isdecimal():
            raise self.error("a whole number of rows")
        if len(self.token) > DIGITS:
            raise ConfigError(f"stop: for {self.token[:DIGITS]}... rows: must have at most {DIGITS} digits")
        return int(self.take())

    def number(self, expected: str) -> float:
        """Return the parser's next token as a number and advance; if it is none, raise an error with `expected`."""
        try:
            value = float(self.token)
        except ValueError:
            raise self.error(expected) from None
        self.take()
        return value
