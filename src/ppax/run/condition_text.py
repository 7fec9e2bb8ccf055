"""Stop conditions as one line of text, for run files and the command line; what it may say is in `GRAMMAR`."""

from __future__ import annotations

import difflib
import re

from ppax.run.conditions import And, Condition, HitsLowerBound, HitsUpperBound, Or, Plateaus, StopsFalling, StopsRising
from ppax.types import ConfigError

GRAMMAR = (
    "METRIC >= NUMBER, METRIC <= NUMBER, METRIC plateaus [for ROWS] [within SHARE], METRIC stops rising [for ROWS], "
    "METRIC stops falling [for ROWS]; joined by `and`, `or` and parentheses, `and` first"
)
DEEPEST = 50  # parentheses in parentheses
VERBS = (">=", "<=", "plateaus", "stops")
TOKEN = re.compile(r"\s*(\(|\)|[<>=]+|[^\s()<>=]+)")


def parse(text: str) -> Condition:
    """The condition that `text` says; ConfigError where it says none. Rows are rows of the log."""
    reader = _Reader(text)
    condition = reader.either()
    if reader.token:
        raise reader.error("`and`, `or` or the end", ("and", "or"))
    return condition


class _Reader:
    """One token after the other, from the left."""

    def __init__(self, text: str):
        self.text = text
        self.tokens = [*TOKEN.findall(text), ""]
        self.depth = 0

    @property
    def token(self) -> str:
        """The next one, "" at the end."""
        return self.tokens[0]

    def take(self) -> str:
        """The next token, which is used up."""
        return self.tokens.pop(0)

    def takes(self, word: str) -> bool:
        """Whether the next token is `word`, which then is used up."""
        return self.token == word and bool(self.take())

    def error(self, expected: str, choices: tuple[str, ...] = ()) -> ConfigError:
        """What stands where something else should."""
        nearest = difflib.get_close_matches(self.token, choices, n=1, cutoff=0.0)
        hint = f"; nearest: {nearest[0]}" if nearest and self.token else ""
        found = repr(self.token) if self.token else "the end"
        return ConfigError(f"stop = {self.text!r}: {found} stands where {expected} must{hint}. It may say: {GRAMMAR}")

    def either(self) -> Condition:
        """Conditions joined by `or`."""
        parts = [self.both()]
        while self.takes("or"):
            parts.append(self.both())
        return parts[0] if len(parts) == 1 else Or(*parts)

    def both(self) -> Condition:
        """Conditions joined by `and`."""
        parts = [self.single()]
        while self.takes("and"):
            parts.append(self.single())
        return parts[0] if len(parts) == 1 else And(*parts)

    def single(self) -> Condition:
        """One condition, or several in parentheses."""
        if self.takes("("):
            self.depth += 1
            if self.depth > DEEPEST:
                raise ConfigError(f"stop = {self.text[:20]!r}...: more than {DEEPEST} parentheses in one another")
            inside = self.either()
            self.depth -= 1
            if not self.takes(")"):
                raise self.error("`)`", ("and", "or", ")"))
            return inside
        if not re.fullmatch(r"[A-Za-z_][\w/]*", self.token) or self.token in ("and", "or"):
            raise self.error("the name of a metric")
        return self.about(self.take())

    def about(self, metric: str) -> Condition:
        """What is said about `metric`."""
        if self.takes(">="):
            return HitsUpperBound(metric, self.number("a number"))
        if self.takes("<="):
            return HitsLowerBound(metric, self.number("a number"))
        if self.takes("plateaus"):
            patience = self.rows()
            return Plateaus(metric, patience, self.number("a share, as 1e-3") if self.takes("within") else 1e-3)
        if self.takes("stops"):
            if self.token not in ("rising", "falling"):
                raise self.error("`rising` or `falling`", ("rising", "falling"))
            return (StopsRising if self.take() == "rising" else StopsFalling)(metric, self.rows())
        raise self.error(", ".join(f"`{verb}`" for verb in VERBS), VERBS)

    def rows(self) -> int:
        """How many rows, 5 where nothing is said."""
        if not self.takes("for"):
            return 5
        if not self.token.isdecimal():
            raise self.error("a whole number of rows")
        return int(self.take())

    def number(self, expected: str) -> float:
        """A number."""
        try:
            value = float(self.token)
        except ValueError:
            raise self.error(expected) from None
        self.take()
        return value
