"""File loggers, JSON Lines and CSV, which write every log row of a run to its run directory.

When a run is resumed from a checkpoint, rows that were written after that checkpoint are removed first, so that the
files equal those of an uninterrupted run.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ppax.core import untrusted
from ppax.core.protocols import Row
from ppax.storage import safe_files
from ppax.storage.safe_files import Backoff

WAITING = 2**16  # maximum number of rows buffered while the disk fails; the oldest are dropped
ROWS_LIMIT = 2**30  # bytes of metrics.jsonl and metrics.csv; a million rows of a usual run have as many
NUMBERS, METRICS = 2**22, 500  # most numbers, and metrics, of the rows that are in memory together
BEYOND = {"iteration": math.inf}  # row in place of a line that cannot be parsed


def finite_or_none(value: Any) -> Any:
    """Return None for NaN and infinities, which JSON does not have, and other values unchanged."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def without_non_finite(tree: Any) -> Any:
    """Return nested dicts and lists with None in place of NaN and infinities, which JSON does not have."""
    if isinstance(tree, dict):
        return {name: without_non_finite(value) for name, value in tree.items()}
    return [without_non_finite(value) for value in tree] if isinstance(tree, list | tuple) else finite_or_none(tree)


def finite(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values by name with None for NaN and infinities, which JSON does not have."""
    return {name: finite_or_none(value) for name, value in result.items()}


class Lines:
    """Append-only text file of whole lines.

    While writes fail, as on a full disk, lines are buffered in memory and written later. If WAITING texts are in the
    buffer, each new one displaces the oldest.
    """

    def __init__(self, path: Path):
        """Open `path`, a regular file, for appending."""
        self._path, self._handle = path, safe_files.open_to_append(path)
        self.empty = os.fstat(self._handle).st_size == 0
        self._waiting: collections.deque[str] = collections.deque(maxlen=WAITING)
        self._disk = Backoff(math.inf)

    def add(self, text: str) -> None:
        """Write `text`, one or more whole lines, after those that are buffered; if writing fails, buffer it too."""
        self.empty = False
        self._waiting.append(text)
        if self._disk.due:
            self._write()

    def close(self) -> None:
        """Write the buffered lines if possible, and close the file; warn about lines that are lost."""
        if self._handle < 0:
            return
        if self._waiting:
            self._write()
        os.close(self._handle)
        self._handle = -1
        if self._waiting:
            warnings.warn(f"{len(self._waiting)} rows of {self._path} could not be written", stacklevel=3)

    def _write(self) -> None:
        warned = self._disk.failing
        try:
            while self._waiting:
                self._write_whole(self._waiting[0].encode())
                self._waiting.popleft()
            self._disk.succeeded()
        except OSError as error:
            self._disk.failed()
            if not warned:
                warnings.warn(f"{self._path} cannot be written ({error}); rows wait in memory", stacklevel=4)

    def _write_whole(self, data: bytes) -> None:
        """Write all of `data` to the file, or restore its former size and raise OSError."""
        size = os.fstat(self._handle).st_size
        try:
            while data:
                data = data[os.write(self._handle, data) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, size)
            raise


class JsonLines:
    """Logger of `metrics.jsonl`: one JSON object per row."""

    def __init__(self, path: Path, keep_until: int = 0):
        """Open `path` for appending; its rows of iterations later than `keep_until` are removed before."""
        rewind(path, lambda line, _: (row_of(line) or BEYOND).get("iteration", math.inf) <= keep_until)
        self._lines = Lines(path)

    def log(self, row: Row) -> None:
        """Write one row as a line of JSON; NaN and infinities become null."""
        self._lines.add(json.dumps(finite(row)) + "\n")

    def close(self) -> None:
        """Close metrics.jsonl, after an attempt to write the rows that wait in memory."""
        self._lines.close()


class Csv:
    """Logger of `metrics.csv`: rows as a table. The first row determines the columns, also after a resume."""

    def __init__(self, path: Path, keep_until: int = 0):
        """Open `path` for appending; its rows of iterations later than `keep_until` are removed before."""
        rewind(path, lambda line, number: number == 0 or int(line.split(",")[0]) <= keep_until, header=True)
        self._lines = Lines(path)
        self._columns: list[str] | None = None if self._lines.empty else header_of(path)

    def log(self, row: Row) -> None:
        """Write one row of the table; entries that are no columns are left out, and missing ones are empty."""
        columns, text = self._columns or list(row), io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self._lines.empty:
            writer.writerow(columns)
        writer.writerow([row.get(name, "") for name in columns])
        self._lines.add(text.getvalue())
        self._columns = columns

    def close(self) -> None:
        """Close metrics.csv, after an attempt to write the rows that wait in memory."""
        self._lines.close()


def rewind(path: Path, keep: Callable[[str, int], bool], header: bool = False) -> None:
    """Rewrite a file with only those complete lines for which `keep(line, number)` is true; numbers begin at 0.

    With `header`, no line is kept unless the first is the header of a table that ppax has written. A missing file is
    not created.
    """
    if not os.path.lexists(path):
        return
    with safe_files.replacing(path) as partial, open(partial, "wb") as file:
        for number, line in enumerate(untrusted.read_lines(path, ROWS_LIMIT)):
            if header and number == 0 and columns_of(line) is None:
                break  # not a table of ppax: it has no rows
            try:
                if line.endswith("\n") and keep(line, number):
                    file.write(line.encode())
            except (ValueError, IndexError):  # a line truncated by a kill
                continue


def columns_of(line: str) -> list[str] | None:
    """Return the column names in `line`, the first of a `metrics.csv`; None if ppax cannot have written it."""
    try:
        columns = next(csv.reader([line]), [])
    except csv.Error:
        return None
    return columns if columns[:1] == ["iteration"] and len(columns) > 1 else None


def header_of(path: Path) -> list[str] | None:
    """Return the column names of a CSV file that ppax has written; None where its first line is no such header."""
    return columns_of(next(untrusted.read_lines(path, ROWS_LIMIT), ""))


def row_of(line: str) -> Row | None:
    """Return a line of `metrics.jsonl` as a dict of numbers by name, in which null becomes None.

    The result is None if the line is not a valid row.
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # truncated by a kill, or not written by ppax
        return None
    if not isinstance(row, dict) or type(row.get("iteration")) is not int:
        return None
    return {name: value for name, value in row.items() if value is None or _is_number(value)}


def _is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and abs(value) < 2**1000)  # so that it converts to float


def rows_until(path: Path, iteration: int) -> Iterator[Row]:
    """Yield the complete rows of a JSON Lines file up to `iteration`, in constant memory; none if it does not exist."""
    for line in untrusted.read_lines(path, ROWS_LIMIT) if os.path.lexists(path) else ():
        row = row_of(line)
        if row is not None and row.get("iteration", math.inf) <= iteration:
            yield row


def thinned(rows: Iterable[Row]) -> list[Row]:
    """Return the rows as a list small enough for memory: at most NUMBERS numbers, of the first METRICS metrics.

    If there are more numbers, only every second, fourth, eighth, ... row is in the list, and always the last one.
    """
    names: dict[str, str] = {}
    kept: list[Row] = []
    last: Row | None = None
    stride = 1
    for place, row in enumerate(rows):
        for name in row:
            if len(names) >= METRICS:
                break
            names.setdefault(name, name)
        last = {names[name]: value for name, value in row.items() if name in names}  # one text for each name
        if place % stride == 0:
            kept.append(last)
        if len(kept) * len(names) > NUMBERS:
            kept, stride = kept[::2], 2 * stride
    return kept if last is None or kept[-1] is last else [*kept, last]


def last_row(path: Path) -> Row:
    """Return the last row of a JSON Lines file; {} where there is none."""
    last: Row = {}
    for row in rows_until(path, 2**63):
        last = row
    return last
