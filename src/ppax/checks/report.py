"""Report of the checks: one line for each, and for a failure also its meaning and remedy."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

LIBRARIES = tuple(str(Path(module).parent) for module in (jax.__file__, Path(__file__).parent))
SHOWN = 2  # number of traceback frames in a failure
WIDTH = 12  # width of the column of check names, in characters
NOT_TRIED, EARLIER = "not tried: ", "an earlier check failed"


class CheckResult(NamedTuple):
    """Result of one check: whether it passed (None: it does not apply), what it measured, and advice for a failure."""

    passed: bool | None  # None: does not apply
    text: str  # the measurement, or why the check does not apply
    number: float | None = None  # the measurement
    advice: str = ""  # meaning and remedy of a failure


class Check(NamedTuple):
    """Result of one check together with the check's name: a line of a report."""

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
    """Results of all checks of an agent or environment, and their duration; `report[name]` is one of the results."""

    checks: tuple[Check, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether no check of the report failed; checks that do not apply count as passed."""
        return all(check.passed is not False for check in self.checks)

    def __getitem__(self, name: Any) -> Any:
        """Return the result of the check called `name`; an index or slice works as for any tuple."""
        if isinstance(name, str):
            return {check.name: check for check in self.checks}[name]
        return tuple.__getitem__(self, name)

    def __str__(self) -> str:
        tried = [check for check in self.checks if not check.text.startswith(NOT_TRIED)]
        counts = {verdict: sum(check.passed is verdict for check in tried) for verdict in (True, False, None)}
        total = f"{counts[True]} passed, {counts[False]} failed, {counts[None]} do not apply"
        waiting: dict[str, list[str]] = {}  # names of checks by the reason why they were not tried
        for check in self.checks:
            if check.text.startswith(NOT_TRIED):
                waiting.setdefault(check.text.removeprefix(NOT_TRIED), []).append(check.name)
        lines = [f"{'-':<5}{'not tried':<{WIDTH}} {', '.join(names)}: {why}" for why, names in waiting.items()]
        total += f", {len(self.checks) - len(tried)} not tried" if waiting else ""
        return "\n".join([*map(str, tried), *lines, f"{total}, in {self.seconds:.0f} s"])

    def to_dict(self) -> dict[str, Any]:
        """Return the report as data for JSON."""
        return {
            "passed": self.passed,
            "seconds": self.seconds,
            "checks": [check._asdict() | {"number": _finite(check.number)} for check in self.checks],
        }


def _finite(number: float | None) -> float | None:
    """Return None for NaN and infinities, which JSON does not have, and for None; other numbers unchanged."""
    return number if number is not None and math.isfinite(number) else None


def within_limit(number: float, allowed: float, text: str, advice: str) -> CheckResult:
    """Return a check's result, which passes if `number` is at most `allowed` (NaN fails).

    `text` says what the number measures, `advice` is the meaning and remedy of a failure.
    """
    return CheckResult(number <= allowed, f"{text} {number:.2g} (allowed {allowed:.2g})", number, advice)


def none_of(problems: list[str], text: str, advice: str) -> CheckResult:
    """Return a check's result from the messages in `problems`: passed, with the text `text`, if there are none.

    The text of a failure has the first three messages. `advice` is the meaning and remedy of a failure.
    """
    if not problems:
        return CheckResult(True, text, 0.0)
    more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
    return CheckResult(False, "; ".join(problems[:3]) + more, float(len(problems)), advice)


def skip(why: str) -> CheckResult:
    """Return the result of a check that does not apply, for the reason `why`."""
    return CheckResult(None, f"does not apply: {why}")


def not_tried(name: str, why: str = EARLIER) -> Check:
    """Return the result of the check called `name` that could not run, for the reason `why`."""
    return Check(name, None, f"{NOT_TRIED}{why}", None, "")


def attempt(name: str, check: Callable[..., CheckResult], *arguments: Any) -> Check:
    """Return the result of `check(*arguments)` with the name `name`; if it raises an exception, a failed check."""
    try:
        finding = check(*arguments)
    except (Exception, SystemExit) as error:
        finding = CheckResult(False, f"raised {type(error).__name__}", None, last_lines(error))
    passed = None if finding.passed is None else bool(finding.passed)
    return Check(name, passed, finding.text, finding.number, finding.advice if passed is False else "")


def last_lines(error: BaseException) -> str:
    """Return an exception as text on one line: the last frames outside JAX and ppax, and the message."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(LIBRARIES)] or list(frames)
    places = [f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in own[-SHOWN:]]
    message = " ".join(str(error).split("\n\n")[0].split())
    return " -> ".join([*places, f"{type(error).__name__}: {message}"])
