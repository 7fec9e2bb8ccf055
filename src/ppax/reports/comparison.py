"""Comparison of runs: as tables for the terminal, best first, as plain data, and as one long table of all log rows."""

from __future__ import annotations

import csv
import io
import math
import os
import shutil
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from ppax.core.types import printable
from ppax.reports.formatting import count_text, duration_text, number_text, short_count, shortened, value_text
from ppax.reports.page import return_text
from ppax.reports.settings import SEED, Setting, setting_differences, settings_of, short_names
from ppax.reports.statistics import Standing
from ppax.run.records import EVALUATED, RETURN, REWARD, Record

CELL, SETTING = 32, 72  # maximum number of characters of a cell, and of one that tells settings apart
OPTIONS = 8  # maximum number of options in the table


class Ranked(NamedTuple):
    """Setting (runs that differ by their seed alone), with its rank among the settings on its environment."""

    env: str
    label: str  # options that set it apart
    runs: list[str]
    standing: Standing
    text: str  # IQM of the final returns with its 95 % interval


class Comparison(NamedTuple):
    """Options in which runs differ, and results, one entry per run.

    Runs are in order of environments, on each the best first.
    """

    runs: list[str]
    options: dict[str, list[Any]]  # by dotted path
    results: dict[str, list[float]]  # NaN where a run has no such number
    ends: list[str]  # reasons for the end
    settings: list[Ranked]  # environment by environment, in each the best first

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data, one table per run and per setting; None for unknown numbers."""
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
        """Return the comparison as text, with lines of any length; see `table`."""
        return self.table()

    def table(self, width: int | None = None) -> str:
        """Return the comparison as text: a table with a row per run, the best first.

        A table of settings comes before it if there are several and one has more than one run; a setting is runs that
        differ by their seed alone. Where lines would be longer than `width` characters (None: any length), a table
        continues in further blocks of columns.
        """
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
    """Return the comparison of the runs of `records`."""
    settings = settings_of(records)
    ranked = [record for setting in settings for record in sorted(setting.records, key=_worse)]
    ended = any(record.has(RETURN) for record in ranked)
    numbers = {
        "evaluation_return": [record.result("mean_return") for record in ranked],
        EVALUATED: [record.last(EVALUATED) for record in ranked],
        RETURN: [record.last(RETURN) for record in ranked],
        REWARD: [math.nan if ended else record.last(REWARD) for record in ranked],
        "evaluation_std": [record.result("std_return") for record in ranked],
        "evaluation_episodes": [record.result("episodes") for record in ranked],
        "env_steps": [record.last("env_steps") for record in ranked],
        "seconds": [record.last("seconds") for record in ranked],
        "steps_per_second": [record.steps_per_second for record in ranked],
    }
    return Comparison(
        list(map(_name, ranked)),
        setting_differences(ranked),
        numbers,
        [x.end for x in ranked],
        list(map(_ranked, settings)),
    )


class Column(NamedTuple):
    """Column of the table of runs: its head, and a function that writes its numbers."""

    head: str
    text: Callable[[float], str]


COLUMNS = {
    "evaluation_return": Column("evaluation", number_text),
    EVALUATED: Column("eval return", number_text),
    RETURN: Column("episode return", number_text),
    REWARD: Column("reward a step", number_text),  # where no episode has ended
    "evaluation_std": Column("std", number_text),
    "evaluation_episodes": Column("episodes", count_text),
    "env_steps": Column("steps", count_text),
    "seconds": Column("time", duration_text),
    "steps_per_second": Column("steps/s", short_count),
}


def _name(record: Record) -> str:
    return str(record.path or record.name)


def _worse(record: Record) -> float:
    """Return a key that sorts runs by their final return, the best first and those without a return last."""
    return -record.final_return if math.isfinite(record.final_return) else math.inf


def _ranked(setting: Setting) -> Ranked:
    return Ranked(setting.env, setting.label, list(map(_name, setting.records)), setting.standing, return_text(setting))


def _table(columns: Sequence[Sequence[str]], key: str, width: int | None) -> str:
    """Return columns as aligned text: numbers to the right, the texts of runs, settings and ends to the left.

    The first cell of a column is its head. Where lines would be longer than `width` characters (None: any length), the
    columns continue in further blocks, each of which begins with the column whose head is `key`.
    """
    cells = [[_cell(text, column[0]) for text in column] for column in columns]
    return text_table(cells, ("run", "end", "setting"), key, width)


def _cell(text: str, head: str) -> str:
    """Return the text of one cell, cut if it is too long; under `head` "run", a path, the end of the text is kept."""
    text, most = printable(text), SETTING if head == "setting" else CELL
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if head == "run" else f"{text[: most - 1]}…"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


KEYS = ("run", "env", "setting", SEED)  # first columns


def long_table(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the columns, by name, of a table with a row for each log row of each run, for pandas and other tools.

    The columns are `run` (directory or name), `env`, `setting` (the options that set it apart, in words) and `seed`;
    each option in which runs differ, by dotted path; then the metrics of the log rows, with `iteration` and
    `env_steps`. A run that lacks a metric has NaN there.
    """
    options = {path: values for path, values in setting_differences(records).items() if path not in ("env", SEED)}
    labels = {id(record): setting.label for setting in settings_of(records) for record in setting.records}
    metrics = list(dict.fromkeys(name for record in records for name in record.columns))
    columns: dict[str, list[Any]] = {name: [] for name in (*KEYS, *options, *metrics)}
    for place, record in enumerate(records):
        rows = len(next(iter(record.columns.values()), ()))
        first = (str(record.path or record.name), record.env, labels[id(record)], record.config.get(SEED))
        constant = dict(zip(KEYS, first, strict=True)) | {path: values[place] for path, values in options.items()}
        for name, value in constant.items():
            columns[name] += [value] * rows
        for name in metrics:
            columns[name] += record.columns[name].tolist() if name in record.columns else [math.nan] * rows
    return columns


def to_csv(columns: dict[str, list[Any]]) -> str:
    """Return columns, by name, as the text of a CSV file; a number that is not known (NaN) is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(["" if isinstance(x, float) and math.isnan(x) else x for x in row])
    return out.getvalue()


GAP = "  "


def blocks(columns: Sequence[Sequence[str]], left: Collection[str], key: str, width: int | None) -> list[list[str]]:
    """Return a table as blocks of lines of text, of at most `width` characters (None: any length, one block).

    The first cell of a column is its head. Columns whose head is in `left` are aligned to the left, all others to the
    right. Where a line would be too long, the columns continue in further blocks, each of which begins with the column
    whose head is `key`. Columns without any text are left out.
    """
    padded = [_padded(column, column[0] in left) for column in columns if any(column)]
    if width is None or len(GAP.join(column[0] for column in padded)) <= width:
        return [_lines(padded)]
    heads = [column[0] for column in columns if any(column)]
    first = padded.pop(heads.index(key))
    parts: list[list[list[str]]] = [[first]]
    for column in padded:
        if len(parts[-1]) > 1 and len(GAP.join(one[0] for one in [*parts[-1], column])) > width:
            parts.append([first])
        parts[-1].append(column)
    return [_lines(part) for part in parts]


def text_table(columns: Sequence[Sequence[str]], left: Collection[str], key: str, width: int | None = None) -> str:
    """Return a table as text, an empty line between two blocks of columns; arguments are those of `blocks`."""
    return "\n\n".join("\n".join(lines) for lines in blocks(columns, left, key, width))


def terminal_width() -> int | None:
    """Return the width of the terminal in characters, or $COLUMNS; None where the output is a file.

    None stands for lines of any length.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def _padded(column: Sequence[str], to_left: bool) -> list[str]:
    width = max(map(len, column))
    return [text.ljust(width) if to_left else text.rjust(width) for text in column]


def _lines(columns: Sequence[Sequence[str]]) -> list[str]:
    return [GAP.join(row).rstrip() for row in zip(*columns, strict=True)]
