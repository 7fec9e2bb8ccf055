"""Comparison of runs as tables for the terminal, best first, and as data."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ppax.core.types import printable
from ppax.reports import aligned
from ppax.reports.groups import Group, differences, groups_of, short_names
from ppax.reports.statistics import Standing
from ppax.reports.summary import return_text
from ppax.reports.words import count_text, duration_text, number_text, short_count, shortened, value_text
from ppax.run.records import EVALUATED, RETURN, Record

CELL, SETTING = 32, 72  # maximum number of characters of a cell, and of one that tells settings apart
OPTIONS = 8  # maximum number of options in the table


class Ranked(NamedTuple):
    """Setting, with runs that differ by their seed alone, and its standing on its environment."""

    env: str
    label: str  # options that set it apart
    runs: list[str]
    standing: Standing
    text: str  # IQM of the final returns with its 95 % interval


class Comparison(NamedTuple):
    """Options in which runs differ, and their results; one entry per run, best first on each environment."""

    runs: list[str]
    options: dict[str, list[Any]]  # by dotted path
    results: dict[str, list[float]]  # NaN where a run has no such number
    ends: list[str]  # reasons for the end
    settings: list[Ranked]  # environment by environment, in each the best first

    def to_dict(self) -> dict[str, Any]:
        """Comparison as plain data, one table per run and per setting; None for unknown numbers."""
        return {
            "settings": [
                {"env": one.env, "setting": one.label, "iqm": _finite(one.standing.iqm), "runs": one.runs}
                for one in self.settings
            ],
            "runs": [
                {"run": run, "config": {path: values[i] for path, values in self.options.items()}}
                | {name: _finite(values[i]) for name, values in self.results.items()}
                | {"stopped": self.ends[i]}
                for i, run in enumerate(self.runs)
            ],
        }

    def __str__(self) -> str:
        """Table with a row per run and, where settings have several seeds, one of the settings before it."""
        return self.table()

    def table(self, width: int | None = None) -> str:
        """The same, in blocks of columns where lines would be longer than `width`."""
        names = short_names(list(self.options))
        known = {name: values for name, values in self.results.items() if not all(map(math.isnan, values))}
        columns = [[COLUMNS[name].head, *map(COLUMNS[name].text, values)] for name, values in known.items()]
        columns += [[names[path], *map(value_text, values)] for path, values in list(self.options.items())[:OPTIONS]]
        columns += [["run", *self.runs], ["end", *map(shortened, self.ends)]]
        tables = [_table(columns, "run", width)]
        if len(self.options) > OPTIONS:
            tables += [f"{len(self.options) - OPTIONS} more options differ: --json, or Comparison.options, has them"]
        if any(one.runs[1:] for one in self.settings) and self.settings[1:]:
            settings = [["IQM of the final return [95 %]", *(one.text for one in self.settings)]]
            settings += [["setting", *(one.label for one in self.settings)]]
            settings += [["runs", *(str(len(one.runs)) for one in self.settings)]]
            tables = [_table(settings, settings[0][0], width), *tables]
        return "\n\n".join(tables)


def of_records(records: Sequence[Record]) -> Comparison:
    """Comparison of the runs of `records`."""
    groups = groups_of(records)
    ranked = [record for group in groups for record in sorted(group.records, key=_worse)]
    numbers = {
        "evaluation_return": [record.result("mean_return") for record in ranked],
        EVALUATED: [record.last(EVALUATED) for record in ranked],
        RETURN: [record.last(RETURN) for record in ranked],
        "evaluation_std": [record.result("std_return") for record in ranked],
        "evaluation_episodes": [record.result("episodes") for record in ranked],
        "env_steps": [record.last("env_steps") for record in ranked],
        "seconds": [record.last("seconds") for record in ranked],
        "steps_per_second": [record.steps_per_second for record in ranked],
    }
    settings = [_ranked(group) for group in groups]
    return Comparison(list(map(_name, ranked)), differences(ranked), numbers, [x.end for x in ranked], settings)


class Column(NamedTuple):
    """Head of a column of the table and the text of its numbers."""

    head: str
    text: Callable[[float], str]


COLUMNS = {
    "evaluation_return": Column("evaluation", number_text),
    EVALUATED: Column("eval return", number_text),
    RETURN: Column("episode return", number_text),
    "evaluation_std": Column("std", number_text),
    "evaluation_episodes": Column("episodes", count_text),
    "env_steps": Column("steps", count_text),
    "seconds": Column("time", duration_text),
    "steps_per_second": Column("steps/s", short_count),
}


def _name(record: Record) -> str:
    return str(record.path or record.name)


def _worse(record: Record) -> float:
    """Key that sorts the runs of a setting, those without a return last."""
    return -record.final_return if math.isfinite(record.final_return) else math.inf


def _ranked(group: Group) -> Ranked:
    return Ranked(group.env, group.label, list(map(_name, group.records)), group.standing, return_text(group))


def _table(columns: Sequence[Sequence[str]], key: str, width: int | None) -> str:
    """Aligned columns: numbers to the right, the texts of runs, settings and ends to the left."""
    cells = [[_cell(text, column[0]) for text in column] for column in columns]
    return aligned.table(cells, ("run", "end", "setting"), key, width)


def _cell(text: str, head: str) -> str:
    """Text of one cell; of a path, the end is kept."""
    text, most = printable(text), SETTING if head == "setting" else CELL
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if head == "run" else f"{text[: most - 1]}…"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
