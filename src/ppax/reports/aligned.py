"""Tables for the terminal: aligned columns, in several blocks where the terminal is narrow."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Sequence

GAP = "  "


def blocks(columns: Sequence[Sequence[str]], left: Collection[str], key: str, width: int | None) -> list[list[str]]:
    """Return the lines of a table, column by column with their heads, those with a head in `left` to the left.

    Where a line would be longer than `width`, the columns go on in further blocks, each of which begins with the column
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


def table(columns: Sequence[Sequence[str]], left: Collection[str], key: str, width: int | None = None) -> str:
    """Return the table as text, with an empty line between two blocks."""
    return "\n\n".join("\n".join(lines) for lines in blocks(columns, left, key, width))


def terminal_width() -> int | None:
    """Return the columns of the terminal, or $COLUMNS; None where the output is a file, whose lines stay whole."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() or os.environ.get("COLUMNS") else None


def _padded(column: Sequence[str], to_left: bool) -> list[str]:
    width = max(map(len, column))
    return [text.ljust(width) if to_left else text.rjust(width) for text in column]


def _lines(columns: Sequence[Sequence[str]]) -> list[str]:
    return [GAP.join(row).rstrip() for row in zip(*columns, strict=True)]
