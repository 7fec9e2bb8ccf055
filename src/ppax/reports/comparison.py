"""Comparison of runs as a table for the terminal and as data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ppax.reports.groups import differences, short_names
from ppax.reports.records import Record
from ppax.reports.summary import EVALUATED, RETURN
from ppax.reports.words import count_text, duration_text, number_text, short_count, shortened, value_text
from ppax.types import printable

CELL = 28  # maximum number of characters of a cell
GAP = "  "


class Comparison(NamedTuple):
    """Options in which runs differ, and their results; one entry per run."""

    runs: list[str]
    options: dict[str, list[Any]]  # by dotted path
    results: dict[str, list[float]]  # NaN where a run has no such number
    ends: list[str]  # reasons for the end

    def to_dict(self) -> dict[str, Any]:
        """Comparison as plain data, one table per run; None for unknown numbers."""
        return {
            "runs": [
                {"run": run, "config": {path: values[i] for path, values in self.options.items()}}
                | {name: _finite(values[i]) for name, values in self.results.items()}
                | {"stopped": self.ends[i]}
                for i, run in enumerate(self.runs)
            ]
        }

    def __str__(self) -> str:
        """Table with a column per run, below a list of the runs."""
        names = short_names(list(self.options))
        rows = [["", *(f"[{i + 1}]" for i in range(len(self.runs)))]]
        rows += [[names[path], *map(value_text, values)] for path, values in self.options.items()]
        known = {name: values for name, values in self.results.items() if not all(map(math.isnan, values))}
        rows += [[name.replace("_", " "), *map(FORMATS[name], values)] for name, values in known.items()]
        rows += [["end", *map(shortened, self.ends)]]
        cells = [[_cell(text) for text in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            GAP.join([row[0].ljust(widths[0]), *(x.rjust(n) for x, n in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        ]
        listed = [f"[{i + 1}] {printable(run)}" for i, run in enumerate(self.runs)]
        return "\n".join([*listed, "", *lines])


def of_records(records: Sequence[Record]) -> Comparison:
    """Comparison of the runs of `records`."""
    numbers = {
        "evaluation_return": [record.result("mean_return") for record in records],
        "evaluation_std": [record.result("std_return") for record in records],
        "evaluation_episodes": [record.result("episodes") for record in records],
        EVALUATED: [record.last(EVALUATED) for record in records],
        RETURN: [record.last(RETURN) for record in records],
        "env_steps": [record.last("env_steps") for record in records],
        "seconds": [record.last("seconds") for record in records],
        "steps_per_second": [record.steps_per_second for record in records],
    }
    names = [str(record.path or record.name) for record in records]
    return Comparison(names, differences(records), numbers, [record.end for record in records])


FORMATS = {
    "evaluation_return": number_text,
    "evaluation_std": number_text,
    "evaluation_episodes": count_text,
    EVALUATED: number_text,
    RETURN: number_text,
    "env_steps": count_text,
    "seconds": duration_text,
    "steps_per_second": short_count,
}


def _cell(text: str) -> str:
    text = printable(text)
    return text if len(text) <= CELL else f"{text[: CELL - 1]}…"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
