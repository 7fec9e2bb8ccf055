"""Log rows of several runs as one long table: a row per run and log row, for pandas and other tools."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from typing import Any

from ppax.reports.groups import SEED, differences, groups_of
from ppax.run.records import Record

KEYS = ("run", "env", "setting", SEED)  # first columns


def long_table(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Columns of the long table.

    `run` (directory or name), `env`, `setting` (the options that set it apart, in words) and `seed`; each option in
    which runs differ, by dotted path; then the metrics of the log rows, with `iteration` and `env_steps`. A run that
    lacks a metric has NaN there.
    """
    options = {path: values for path, values in differences(records).items() if path not in ("env", SEED)}
    settings = {id(record): group.label for group in groups_of(records) for record in group.records}
    metrics = list(dict.fromkeys(name for record in records for name in record.columns))
    columns: dict[str, list[Any]] = {name: [] for name in (*KEYS, *options, *metrics)}
    for place, record in enumerate(records):
        rows = len(next(iter(record.columns.values()), ()))
        first = (str(record.path or record.name), record.env, settings[id(record)], record.config.get(SEED))
        constant = dict(zip(KEYS, first, strict=True)) | {path: values[place] for path, values in options.items()}
        for name, value in constant.items():
            columns[name] += [value] * rows
        for name in metrics:
            columns[name] += record.columns[name].tolist() if name in record.columns else [math.nan] * rows
    return columns


def to_csv(columns: dict[str, list[Any]]) -> str:
    """Text of the table as CSV; a number that is not known is an empty cell."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(["" if isinstance(x, float) and math.isnan(x) else x for x in row])
    return out.getvalue()
