"""Metrics as files: JSON Lines and CSV, one row a chunk of iterations; always on in a run directory.

A run that is resumed goes on from its checkpoint: rows beyond it, which a killed process had already written, are
dropped first, so the files end up as if the run had never stopped.
"""

from __future__ import annotations

import collections
import contextlib
import csv
import io
import json
import math
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ppax.storage import safe_files
from ppax.storage.backoff import Backoff

Row = dict[str, Any]
WAITING = 2**16  # rows that wait for a disk at most; of more the oldest are lost
BEYOND = {"iteration": math.inf}  # stands for a line that is no row


def finite_or_none(value: Any) -> Any:
    """NaN and infinities are not JSON; they become null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Lines:
    """A text file that grows by whole lines; while its disk fails they wait in memory, and are written afterwards."""

    def __init__(self, path: Path):
        """Append to `path`, a regular file."""
        self._path, self._handle = path, safe_files.open_to_append(path)
        self.empty = os.fstat(self._handle).st_size == 0
        self._waiting: collections.deque[str] = collections.deque(maxlen=WAITING)
        self._disk = Backoff(math.inf)

    def add(self, text: str) -> None:
        """Hand lines to the system, those that have waited first."""
        self.empty = False
        self._waiting.append(text)
        if self._disk.due:
            self._write()

    def close(self) -> None:
        """Write what waits, if the disk lets us, and close the file."""
        if self._handle < 0:
            return
        if self._waiting:
            self._write()
        os.close(self._handle)
        self._handle = -1
        if self._waiting:
            warnings.warn(f"{len(self._waiting)} rows of {self._path} could not be written", stacklevel=3)

    def _write(self) -> None:
        known = self._disk.failing
        try:
            while self._waiting:
                self._write_whole(self._waiting[0].encode())
                self._waiting.popleft()
            self._disk.worked()
        except OSError as error:
            self._disk.failed()
            if not known:
                warnings.warn(f"{self._path} cannot be written ({error}); rows wait in memory", stacklevel=4)

    def _write_whole(self, data: bytes) -> None:
        """Write all of `data`, or leave the file as it is and raise OSError."""
        size = os.fstat(self._handle).st_size
        try:
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, size)
            raise


class JsonLines:
    """`metrics.jsonl`: one JSON object a row."""

    def __init__(self, path: Path, keep_until: int = 0):
        """Append to `path`, after dropping rows beyond iteration `keep_until`."""
        rewind(path, lambda line, _: (row_of(line) or BEYOND).get("iteration", math.inf) <= keep_until)
        self._lines = Lines(path)

    def log(self, row: Row) -> None:
        """Write one row and hand it to the system."""
        self._lines.add(json.dumps({name: finite_or_none(value) for name, value in row.items()}) + "\n")

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


class Csv:
    """`metrics.csv`: the same rows as a table; the first row decides the columns."""

    def __init__(self, path: Path, keep_until: int = 0):
        """Append to `path`, after dropping rows beyond iteration `keep_until`."""
        rewind(path, lambda line, number: number == 0 or int(line.split(",")[0]) <= keep_until, header=True)
        self._lines = Lines(path)
        self._columns: list[str] | None = None

    def log(self, row: Row) -> None:
        """Write one row and hand it to the system."""
        columns, text = self._columns or list(row), io.StringIO()
        writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
        if self._lines.empty:
            writer.writeheader()
        writer.writerow(row)
        self._lines.add(text.getvalue())
        self._columns = columns

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def rewind(path: Path, keep: Callable[[str, int], bool], header: bool = False) -> None:
    """Keep only whole lines for which `keep(line, number)` holds; with `header` the first must name the iteration."""
    if not os.path.lexists(path):
        return
    kept = []
    for number, line in enumerate(safe_files.read(path).decode(errors="replace").splitlines(keepends=True)):
        if header and number == 0 and not line.startswith("iteration,"):
            break  # no table of ours: nothing in it is a row
        try:
            if line.endswith("\n") and keep(line, number):
                kept.append(line)
        except (ValueError, IndexError):  # the line that a kill cut short
            continue
    safe_files.write_text(path, "".join(kept))


def row_of(line: str) -> Row | None:
    """Numbers by name of one line of `metrics.jsonl`, None for null; None where the line is no row."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # cut short by a kill, or no JSON that we have written
        return None
    if not isinstance(row, dict) or type(row.get("iteration")) is not int:
        return None
    return {name: value for name, value in row.items() if value is None or _is_number(value)}


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)  # so it is a float as well


def rows_until(path: Path, iteration: int) -> list[Row]:
    """The whole rows of a JSON Lines file, up to `iteration`."""
    if not os.path.lexists(path):
        return []
    rows = map(row_of, safe_files.read(path).decode(errors="replace").splitlines())
    return [row for row in rows if row is not None and row.get("iteration", math.inf) <= iteration]


def last_row(path: Path) -> Row:
    """The last row of a JSON Lines file; {} where there is none."""
    rows = rows_until(path, 2**63)
    return rows[-1] if rows else {}
