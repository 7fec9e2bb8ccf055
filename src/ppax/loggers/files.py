"""Metrics as files: JSON Lines and CSV, one row a chunk of iterations; always on in a run directory.

A run that is resumed goes on from its checkpoint: rows beyond it, which a killed process had already written, are
dropped first, so the files end up as if the run had never stopped.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def finite_or_none(value: Any) -> Any:
    """NaN and infinities are not JSON; they become null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class JsonLines:
    """`metrics.jsonl`: one JSON object a row."""

    def __init__(self, path: Path, keep_until: int = 0):
        """Append to `path`, after dropping rows beyond iteration `keep_until`."""
        rewind(path, lambda line: json.loads(line)["iteration"] <= keep_until)
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  closed in close()

    def log(self, row: Row) -> None:
        """Write one row and hand it to the system."""
        self._file.write(json.dumps({name: finite_or_none(value) for name, value in row.items()}) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Csv:
    """`metrics.csv`: the same rows as a table; the first row decides the columns."""

    def __init__(self, path: Path, keep_until: int = 0):
        """Append to `path`, after dropping rows beyond iteration `keep_until`."""
        rewind(path, lambda line: line.startswith("iteration") or int(line.split(",")[0]) <= keep_until)
        self._file = open(path, "a", newline="", encoding="utf-8")  # noqa: SIM115  closed in close()
        self._writer: csv.DictWriter[str] | None = None

    def log(self, row: Row) -> None:
        """Write one row and hand it to the system."""
        if self._writer is None:
            self._writer = csv.DictWriter(self._file, list(row), extrasaction="ignore", lineterminator="\n")
            if self._file.tell() == 0:
                self._writer.writeheader()
        self._writer.writerow(row)
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def rewind(path: Path, keep: Callable[[str], bool]) -> None:
    """Keep only whole lines for which `keep` holds; replaced atomically."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        try:
            if line.endswith("\n") and keep(line):
                kept.append(line)
        except (ValueError, KeyError, IndexError, TypeError):  # the line that a kill cut short
            continue
    partial = path.with_name(path.name + ".tmp")
    partial.write_text("".join(kept), encoding="utf-8")
    os.replace(partial, path)


def rows_until(path: Path, iteration: int) -> list[Row]:
    """The whole rows of a JSON Lines file, up to `iteration`."""
    rows: list[Row] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
            if row["iteration"] <= iteration:
                rows.append(row)
        except (ValueError, KeyError, IndexError, TypeError):  # the line that a kill cut short
            continue
    return rows


def last_row(path: Path) -> Row:
    """The last row of a JSON Lines file; {} where there is none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    row: Row = json.loads(lines[-1]) if lines else {}
    return row
