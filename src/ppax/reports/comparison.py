"""Comparison of runs, best first: tables for the terminal, plain data, and one long table of all log rows."""

from __future__ import annotations

import csv
import io
import math
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from ppax.core.types import ConfigError, printable
from ppax.reports.by_option import differences_by, option_named
from ppax.reports.differences import (
    DIFFERENCE,
    Against,
    contradictions,
    difference_columns,
    differences_of,
    few_seeds,
    method_columns,
    method_notes,
)
from ppax.reports.formatting import UNKNOWN, count_text, duration_text, number_text, short_count, shortened, value_text
from ppax.reports.page import mean_of, return_text
from ppax.reports.settings import (
    SEED,
    Setting,
    notes_on,
    setting_differences,
    settings_of,
    short_names,
)
from ppax.reports.statistics import Standing, statistics_of
from ppax.run.records import EVALUATED, RETURN, REWARD, WHOLE, Record

CELL, SETTING = 32, 72  # maximum number of characters of a cell, and of one that tells settings apart
OPTIONS = 8  # maximum number of options in the table
FINAL_RETURN = "final return"
TEXT, MARKDOWN, LATEX_TABLE, CSV = "text", "markdown", "latex", "csv"
FORMS = (TEXT, MARKDOWN, LATEX_TABLE, CSV)  # of the table of settings


class Ranked(NamedTuple):
    """Setting (runs that differ by their seed alone), with its rank among the settings on its environment."""

    env: str
    label: str  # options that set it apart
    runs: list[str]
    standing: Standing
    text: str  # IQM of the final returns with its 95 % interval
    kind: str = ""  # what the scores measure, where those of other settings measure something else
    mean: float = math.nan  # of the scores over the seeds
    minimum: float = math.nan  # of the scores; NaN where a seed has none
    training: float = math.nan  # mean over the seeds of the mean return over training
    interval: tuple[float, float] = (math.nan, math.nan)  # of the IQM, 95 %


class Comparison(NamedTuple):
    """Comparison of runs: the options in which they differ, and their results.

    `runs` (names) and `ends` (how each run ended) are lists; `options` and `results` are dicts of lists. Each list has
    one entry per run: sorted by environment, and on each environment from the best run to the worst.
    """

    runs: list[str]
    options: dict[str, list[Any]]  # by dotted path
    results: dict[str, list[float]]  # NaN where a run has no such number
    ends: list[str]  # reasons for the end
    settings: list[Ranked]  # environment by environment, in each the best first
    differences: list[Against]  # of the best setting from each other one that can be compared with it
    notes: list[str]  # sentences: runs that are not counted, scores that cannot be compared, too few seeds
    by: str = ""  # option whose values are the methods between which `differences` are
    score: str = FINAL_RETURN  # what ranks: the final return, or the mean return over training

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as data for JSON, with a dict per run and one per setting; unknown numbers are None."""
        return {
            "settings": [
                {"env": one.env, "setting": one.label, "iqm": _finite(one.standing.iqm)}
                | {"low": _finite(one.interval[0]), "high": _finite(one.interval[1])}
                | {"mean": _finite(one.mean), "min": _finite(one.minimum), "training": _finite(one.training)}
                | {"runs": one.runs}
                | ({"kind": one.kind} if one.kind else {})
                for one in self.settings
            ],
            "differences": [
                {"env": one.env, "setting": one.label, "than": one.other, "seeds": list(one.seeds)}
                | {name: _finite(value) for name, value in one.difference._asdict().items()}
                | ({"at": one.at, "paired": one.paired} if self.by else {})
                for one in self.differences
            ],
            "notes": self.notes,
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
        """Return the comparison as text: tables of settings, of differences and of runs, then the notes.

        A setting is a group of runs that differ by their seed only. The table of settings is left out unless there are
        several and one has several runs, or their scores cannot be compared, as returns of final evaluations with
        returns of training; then each group of comparable scores has one. Differences are those from the best setting.
        Runs are sorted by environment, the best first. Where lines would be longer than `width` characters (None: any
        length), a table continues in further blocks of columns.
        """
        names = short_names(list(self.options))
        known = {name: values for name, values in self.results.items() if not all(map(math.isnan, values))}
        columns = [[COLUMNS[name].head, *map(COLUMNS[name].text, values)] for name, values in known.items()]
        columns += [[names[path], *map(value_text, values)] for path, values in list(self.options.items())[:OPTIONS]]
        columns += [["run", *self.runs], ["end", *map(shortened, self.ends)]]
        tables = [_table(columns, "run", width)]
        if len(self.options) > OPTIONS:
            tables += [f"{len(self.options) - OPTIONS} more options differ: --json, or Comparison.options, has them"]
        several = self.settings[1:] and any(one.runs[1:] for one in self.settings)
        before = self._settings_tables(width) if several or self._kinds_apart() else []
        before += self._difference_tables(width)
        return "\n\n".join([*before, *tables, *(_wrapped(note, width) for note in self.notes)])

    def settings_table(self, form: str = TEXT, width: int | None = None) -> str:
        """Return only the table with a row per setting, in the form "text", "markdown", "latex" (booktabs) or "csv".

        A setting is a group of runs that differ by their seed only. With "text", tables of differences and the notes
        follow; with "csv", numbers are not rounded.
        """
        if form == TEXT:
            parts = [*self._settings_tables(width), *self._difference_tables(width)]
            return "\n\n".join([*parts, *(_wrapped(note, width) for note in self.notes)])
        if form == CSV:
            return _csv_of_settings(self.settings)
        columns = setting_columns(self.settings, self.score)
        columns += [["environment", *(one.env for one in self.settings)]] if self._envs()[1:] else []
        columns += [["score", *(one.kind for one in self.settings)]] if self._kinds_apart() else []
        place = next(place for place, column in enumerate(columns) if column[0] == "setting")
        columns.insert(0, columns.pop(place))
        rows = list(zip(*columns, strict=True))
        return _markdown(rows) if form == MARKDOWN else _latex(rows)

    def _envs(self) -> list[str]:
        return list(dict.fromkeys(one.env for one in self.settings))

    def _kinds(self) -> list[tuple[str, str]]:
        return list(dict.fromkeys((one.env, one.kind) for one in self.settings))

    def _kinds_apart(self) -> bool:
        """Return True if settings on one environment have scores that cannot be compared."""
        return len(self._kinds()) > len(self._envs())

    def _settings_tables(self, width: int | None) -> list[str]:
        """Return tables of the settings as texts: one for each group of settings whose scores can be compared."""
        tables = []
        apart = self._kinds_apart()
        for own in self._kinds() if apart else [None]:
            shown = [one for one in self.settings if own in (None, (one.env, one.kind))]
            columns = setting_columns(shown, self.score)
            text = _table(columns, columns[0][0], width)
            tables.append(f"{_wrapped(own[1] or own[0], width)}:\n{text}" if own else text)
        return tables

    def _difference_tables(self, width: int | None) -> list[str]:
        if not self.differences:
            return []
        if not self.by:
            return [_table(difference_columns(self.differences), DIFFERENCE, width)]
        tables = []
        for env, label, than in dict.fromkeys((one.env, one.label, one.other) for one in self.differences):
            own = [one for one in self.differences if (one.env, one.label, one.other) == (env, label, than)]
            place = f"{env}: " if self._envs()[1:] else ""
            title = _wrapped(
                f"{place}{label} less {than}, at equal other options, and the best setting of each:", width
            )
            tables.append(f"{title}\n{_table(method_columns(own), DIFFERENCE, width)}")
        return tables


def setting_columns(settings: Sequence[Ranked], score: str = FINAL_RETURN) -> list[list[str]]:
    """Return the table of settings as columns of texts; the first text of a column is its heading.

    If a setting has several runs, there are columns for mean and minimum of the score over its seeds, and, if the score
    is the final return, for the mean return over the whole training.
    """
    columns = [
        [
            "IQM of the final return [95 %]" if score == FINAL_RETURN else "IQM over training [95 %]",
            *(one.text for one in settings),
        ]
    ]
    if any(one.runs[1:] for one in settings):
        columns += [["mean", *(number_text(one.mean) for one in settings)]]
        columns += [["min", *(number_text(one.minimum) for one in settings)]]
        known = score == FINAL_RETURN and any(math.isfinite(one.training) for one in settings)
        columns += [["over training", *(number_text(one.training) for one in settings)]] if known else []
    return [
        *columns,
        ["setting", *(one.label for one in settings)],
        ["runs", *(str(len(one.runs)) for one in settings)],
    ]


def _csv_of_settings(settings: Sequence[Ranked]) -> str:
    columns: dict[str, list[Any]] = {
        "env": [one.env for one in settings],
        "setting": [one.label for one in settings],
        "score": [one.kind for one in settings],
        "runs": [len(one.runs) for one in settings],
        "iqm": [_or_nan(one.standing.iqm) for one in settings],
        "low": [one.interval[0] for one in settings],
        "high": [one.interval[1] for one in settings],
        "mean": [one.mean for one in settings],
        "min": [one.minimum for one in settings],
        "training": [one.training for one in settings],
    }
    return to_csv(columns)


def _or_nan(value: float) -> float:
    return value if math.isfinite(value) else math.nan


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    cells = [[printable(cell).replace("|", "\\|") for cell in row] for row in rows]
    rule = ["---", *("---:" for _ in cells[0][1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in [cells[0], rule, *cells[1:]])


LATEX = {sign: f"\\{sign}" for sign in "#$%&_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    UNKNOWN: "--",
}


def _latex(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table of LaTeX with the rules of the package booktabs; the first row is the head."""
    lines = [" & ".join("".join(LATEX.get(x, x) for x in printable(cell)) for cell in row) + r" \\" for row in rows]
    table = [rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}", r"\toprule", lines[0], r"\midrule", *lines[1:]]
    return "\n".join([*table, r"\bottomrule", r"\end{tabular}"])


def of_records(
    records: Sequence[Record], notes: Sequence[str] = (), by: str | None = None, baseline: str | None = None
) -> Comparison:
    """Return the comparison of the runs in `records`; its notes begin with the sentences `notes`.

    `by` is the name of an option whose values are compared as methods, `baseline` the value (as text) with which all
    other values are compared, as in `by_option.differences_by`. If `by` is None, the best setting is compared with the
    others.
    """
    settings = settings_of(records)
    if by is None and baseline is not None:
        raise ConfigError(f"baseline = {baseline!r}: is a value of the option `by`, which is missing")
    path = "" if by is None else option_named(by, records)
    ranked = [record for setting in settings for record in [*sorted(setting.records, key=_worse), *setting.repeats]]
    differences = differences_by(settings, path, baseline) if path else differences_of(settings)
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
        differences,
        [
            *notes,
            *notes_on(settings),
            *(method_notes(differences) if path else []),
            *contradictions(differences),
            *few_seeds(differences),
        ],
        path,
        WHOLE if any(record.over_training for record in records) else FINAL_RETURN,
    )


class Column(NamedTuple):
    """Column of the table of runs: its heading, and a function that formats its numbers as text."""

    head: str
    text: Callable[[float], str]


COLUMNS = {
    "evaluation_return": Column("evaluation", number_text),
    EVALUATED: Column("eval return", number_text),
    RETURN: Column("episode return", number_text),
    REWARD: Column("reward a step", number_text),  # where no episode has ended
    "evaluation_std": Column("std of episodes", number_text),
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
    return Ranked(
        setting.env,
        setting.label,
        list(map(_name, setting.records)),
        setting.standing,
        return_text(setting),
        setting.kind,
        *_mean_and_minimum(setting),
        mean_of(setting.records, lambda record: record.training_return),
        _interval(setting),
    )


def _mean_and_minimum(setting: Setting) -> tuple[float, float]:
    """Return mean and minimum of the scores of a setting's seeds; both are NaN if any seed has no score."""
    scores = np.asarray(setting.scores)
    return float(scores.mean()), float(scores.min())


def _interval(setting: Setting) -> tuple[float, float]:
    s = statistics_of(setting.scores)
    return s.low, s.high


def _table(columns: Sequence[Sequence[str]], key: str, width: int | None) -> str:
    """Return columns as text, aligned: numbers to the right, the columns of runs, ends and settings to the left.

    The first text of a column is its heading. Where lines would be longer than `width` characters (None: any length),
    the columns continue in further blocks, each of which begins with the column whose heading is `key`.
    """
    cells = [[_cell(text, column[0]) for text in column] for column in columns]
    return text_table(cells, ("run", "end", "setting", "than", "at"), key, width)


def _cell(text: str, head: str) -> str:
    """Return the text of a table cell under the heading `head`, cut with an ellipsis if it is too long.

    The text loses its end; under the heading "run", where it is a path, its beginning.
    """
    text, most = printable(text), SETTING if head in ("setting", "than", "at") else CELL
    if len(text) <= most:
        return text
    return f"…{text[1 - most :]}" if head == "run" else f"{text[: most - 1]}…"


def _wrapped(text: str, width: int | None) -> str:
    """Return a sentence in lines of less than `width` characters (None: in one line)."""
    return printable(text) if width is None else textwrap.fill(printable(text), max(width - 1, 20))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


KEYS = ("run", "env", "setting", SEED)  # first columns


def long_table(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the columns, by name, of a table with a row for each log row of each run, for pandas and other tools.

    The columns are `run` (directory or name), `env`, `setting` (in words, the options in which it differs from other
    settings) and `seed`; each option in which runs differ, by dotted path; then the metrics of the log rows, with
    `iteration` and `env_steps`. A run that lacks a metric has NaN there. An option that the rows have, too, because
    population-based training changes it, is that of the rows; a metric with the name of one of the first columns is
    called "metric NAME".
    """
    labels = {
        id(record): setting.label for setting in settings_of(records) for record in (*setting.records, *setting.repeats)
    }
    metrics = list(dict.fromkeys(name for record in records for name in record.columns))
    options = {
        path: values
        for path, values in setting_differences(records).items()
        if path not in ("env", SEED) and path not in metrics
    }
    heads = {name: f"metric {name}" if name in KEYS else name for name in metrics}
    columns: dict[str, list[Any]] = {name: [] for name in (*KEYS, *options, *heads.values())}
    for place, record in enumerate(records):
        rows = len(next(iter(record.columns.values()), ()))
        first = (str(record.path or record.name), record.env, labels[id(record)], record.config.get(SEED))
        constant = dict(zip(KEYS, first, strict=True)) | {path: values[place] for path, values in options.items()}
        for name, value in constant.items():
            columns[name] += [value] * rows
        for name in metrics:
            columns[heads[name]] += record.columns[name].tolist() if name in record.columns else [math.nan] * rows
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
    """Return the width of the terminal in characters; None, for any width, if standard output is no terminal.

    The environment variable COLUMNS overrides it.
    """
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def _padded(column: Sequence[str], to_left: bool) -> list[str]:
    width = max(map(len, column))
    return [text.ljust(width) if to_left else text.rjust(width) for text in column]


def _lines(columns: Sequence[Sequence[str]]) -> list[str]:
    return [GAP.join(row).rstrip() for row in zip(*columns, strict=True)]
