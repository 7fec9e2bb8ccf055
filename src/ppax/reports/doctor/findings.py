"""Findings of the doctor, the rules that make them, and the diagnosis of a run."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ppax.reports.doctor.record import Record

FAULT, WARNING, NOTICE = "fault", "warning", "notice"  # in the order in which they are shown
SEVERITIES = (FAULT, WARNING, NOTICE)
WIDTH = 100  # characters of a line
MIN_ROWS = 5  # fewer log rows are too few for a judgement


class Remedy(NamedTuple):
    """Change to try: an option with a concrete value and the reason."""

    reason: str
    option: str = ""  # full name, as `agent.learning_rate`; "" where no option of the run mends it
    value: Any = None

    def __str__(self) -> str:
        return f"Try {self.option} = {json.dumps(self.value)}: {self.reason}." if self.option else f"{self.reason}."


class Finding(NamedTuple):
    """Symptom in the metrics of a run, and the change to try."""

    diagnosis: str  # one sentence with the figures
    remedy: Remedy
    severity: str = WARNING
    row: int | None = None  # index of the log row at which it is seen first; None: in all
    rule: str = ""  # filled in, like the fields below, by the examination
    group: str = ""  # of agents; "" without groups
    iteration: int = 0
    env_steps: int = 0

    def __str__(self) -> str:
        name = f"{self.rule} of group {self.group!r}" if self.group else self.rule
        where = f"first at iteration {self.iteration:,}, {self.env_steps:,} steps" if self.iteration else ""
        text = f"{self.severity}: {name}. {self.diagnosis}" + (f" ({where})" if where else "")
        return "\n".join([*textwrap.wrap(text, WIDTH), *wrapped(str(self.remedy), "  ")])

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as data for JSON."""
        return self._asdict() | {"remedy": self.remedy._asdict()}


class Rule(NamedTuple):
    """Rule over the rows and options of a run; it returns None where it sees nothing."""

    name: str
    sees: str  # for the documentation: the symptom, with its threshold
    remedy: str  # for the documentation: the options to try
    metrics: tuple[str, ...]  # columns that it reads; without one of them it is not examined
    examine: Callable[[Record], Finding | None]
    min_rows: int = MIN_ROWS


class Diagnosis(NamedTuple):
    """Findings of all rules on one run; `str` shows them as text."""

    findings: tuple[Finding, ...]
    examined: tuple[str, ...]  # names of the rules that were examined
    not_examined: Mapping[str, str]  # reason by name of a rule
    rows: int
    env_steps: int
    progress: str  # one sentence on the returns

    @property
    def healthy(self) -> bool:
        """True if no rule has a finding."""
        return not self.findings

    def __str__(self) -> str:
        lines = [f"{self.rows:,} rows, {self.env_steps:,} steps. {self.progress}", *map(str, self.findings)]
        if self.healthy:
            lines += textwrap.wrap(f"Nothing suspicious. Examined: {', '.join(self.examined) or 'nothing'}.", WIDTH)
        lines += [f"Not examined: {name}, {why}." for name, why in self.not_examined.items()]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as data for JSON."""
        findings = [finding.to_dict() for finding in self.findings]
        return {"healthy": self.healthy} | self._asdict() | {"findings": findings}


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of a paragraph, each with the indent."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)


def shown(x: float) -> str:
    """Three significant digits; large numbers with separators of thousands."""
    return f"{x:,.0f}" if 1e3 <= abs(x) < 1e15 else f"{x:.3g}"


def rounded(x: float) -> float:
    """Two significant digits, for a value to try."""
    return float(f"{x:.2g}")
