"""What a self-test says: one line for each check, and for a failure what it means and what to do."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

PLACES = tuple(str(Path(module).parent) for module in (jax.__file__, Path(__file__).parent))
SHOWN = 2  # frames of a traceback
WIDTH = 12  # of the column of names


class Finding(NamedTuple):
    """What one check found."""

    passed: bool | None  # None: it does not apply
    text: str  # what was measured, or why it does not apply
    number: float | None = None  # what was measured
    advice: str = ""  # what a failure means and what to do


class Check(NamedTuple):
    """A finding with its name."""

    name: str
    passed: bool | None
    text: str
    number: float | None
    advice: str

    def __str__(self) -> str:
        mark = {True: "ok", False: "FAIL", None: "-"}[self.passed]
        line = f"{mark:<5}{self.name:<{WIDTH}} {self.text}"
        return line if self.passed is not False else f"{line}\n{'':<{6 + WIDTH}}{self.advice}"


class Report(NamedTuple):
    """All checks of a self-test."""

    checks: tuple[Check, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether none failed."""
        return all(check.passed is not False for check in self.checks)

    def __getitem__(self, name: Any) -> Any:
        """The check called `name`."""
        if isinstance(name, str):
            return {check.name: check for check in self.checks}[name]
        return tuple.__getitem__(self, name)

    def __str__(self) -> str:
        counts = {verdict: sum(check.passed is verdict for check in self.checks) for verdict in (True, False, None)}
        total = f"{counts[True]} passed, {counts[False]} failed, {counts[None]} do not apply"
        return "\n".join([*map(str, self.checks), f"{total}, in {self.seconds:.0f} s"])

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "passed": self.passed,
            "seconds": self.seconds,
            "checks": [check._asdict() | {"number": _finite(check.number)} for check in self.checks],
        }


def _finite(number: float | None) -> float | None:
    """Infinities are not JSON."""
    return number if number is not None and math.isfinite(number) else None


def within(number: float, allowed: float, text: str, advice: str) -> Finding:
    """Passed if `number` is at most `allowed`; NaN is not."""
    return Finding(number <= allowed, f"{text} {number:.2g} (allowed {allowed:.2g})", number, advice)


def none_of(problems: list[str], text: str, advice: str) -> Finding:
    """Passed if there is no problem; else the first ones are told."""
    if not problems:
        return Finding(True, text, 0.0)
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return Finding(False, "; ".join(problems[:3]) + more, float(len(problems)), advice)


def skip(why: str) -> Finding:
    """It does not apply."""
    return Finding(None, f"does not apply: {why}")


def not_tried(name: str, why: str = "an earlier check failed") -> Check:
    """A check that could not be made."""
    return Check(name, None, f"not tried: {why}", None, "")


def attempt(name: str, check: Callable[..., Finding], *arguments: Any) -> Check:
    """Run one check; an exception, which may come from the user's code, is its failure."""
    try:
        found = check(*arguments)
    except (Exception, SystemExit) as error:
        found = Finding(False, f"raised {type(error).__name__}", None, last_lines(error))
    passed = None if found.passed is None else bool(found.passed)
    return Check(name, passed, found.text, found.number, found.advice if passed is False else "")


def last_lines(error: BaseException) -> str:
    """The message, and the last frames that are neither JAX's nor ppax's, on one line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(PLACES)] or list(frames)
    places = [f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in own[-SHOWN:]]
    message = " ".join(str(error).split("\n\n")[0].split())
    return " -> ".join([*places, f"{type(error).__name__}: {message}"])
