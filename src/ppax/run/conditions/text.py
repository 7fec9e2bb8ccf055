"""Parser of stop conditions as one line of text, for run files and the command line; `GRAMMAR` has the syntax."""

from __future__ import annotations

import difflib
import re

from ppax.core import imports
from ppax.core.protocols import StopCondition
from ppax.core.types import ConfigError
from ppax.run.conditions.combined import And, Or
from ppax.run.conditions.single import HitsLowerBound, HitsUpperBound, Plateaus, StopsFalling, StopsRising

GRAMMAR = (
    "METRIC >= NUMBER, METRIC <= NUMBER, METRIC plateaus [for ROWS] [within TOLERANCE], METRIC stops rising "
    "[for ROWS], METRIC stops falling [for ROWS], my_package.module:Condition; joined by `and`, `or` and parentheses, "
    "`and` first"
)
DEEPEST = 50  # maximum nesting of parentheses
LONGEST, DIGITS = 10_000, 9  # characters of a condition, and of a number of rows
VERBS = (">=", "<=", "plateaus", "stops")
TOKEN = re.compile(r"\s*(\(|\)|[<>=]+|[^\s()<>=]+)")


def parse(text: str) -> StopCondition:
    """Parse a stop condition; ConfigError, with the syntax, if `text` is not one. ROWS in it counts log rows."""
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
    """Recursive-descent parser."""

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
