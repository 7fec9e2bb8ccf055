"""Formatting of numbers, durations and sentences for the reader of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

LONGEST = 60  # characters of one value
NUMBERS = ("No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
UNKNOWN = "\N{EN DASH}"


def number_text(value: float) -> str:
    """Return a number as text with four significant digits; a dash for NaN and infinities."""
    if not math.isfinite(value):
        return UNKNOWN
    if value and not 1e-4 <= abs(value) < 1e9:
        return f"{value:.3g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count_text(value: float) -> str:
    """Return a whole number as text with separators of thousands; a dash for NaN and infinities."""
    return f"{value:,.0f}" if math.isfinite(value) else UNKNOWN


def short_count(value: float, digits: int = 3) -> str:
    """Return a number as text with a suffix for powers of 1000, as "12k" or "1.5M"; a dash for NaN and infinities.

    It has at most `digits` significant digits, at least three.
    """
    if not math.isfinite(value):
        return UNKNOWN
    value = float(f"{value:.{digits}g}")  # rounded first: 999,936 is 1M
    for size, suffix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size <= abs(value) < 1e15:
            return f"{value / size:.{digits}g}{suffix}"
    return f"{value:.{digits}g}"


def duration_text(seconds: float) -> str:
    """Return a duration as text in its two largest units, days from 24 hours on; a dash for NaN and infinities."""
    if not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 60:
        return f"{seconds:.1f} s"
    for unit, size, smaller, part in (("min", 60, "s", 1), ("h", 3600, "min", 60), ("d", 86400, "h", 3600)):
        whole, rest = divmod(round(seconds / part), size // part)
        if whole < {"min": 60, "h": 24}.get(unit, math.inf):
            return f"{whole:,} {unit} {rest} {smaller}"
    return UNKNOWN


def value_text(value: Any) -> str:
    """Return the value of an option as text, much as in a run file, cut with an ellipsis if it is long."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return shortened(str(value) if not isinstance(value, list) else ", ".join(map(value_text, value[:20])) or "[]")


def shortened(text: str) -> str:
    """Return `text` with at most LONGEST characters, its end replaced by an ellipsis if it is longer."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def with_count(count: int, noun: str) -> str:
    """Return a count and its noun as text, for example "Three runs" for 3 and "run", or "12 runs" for 12 and "run".

    `noun` is singular. A number up to ten is a capitalised word, and 0 is "No".
    """
    return f"{NUMBERS[count] if count < len(NUMBERS) else count} {noun}{'' if count == 1 else 's'}"


def listed(parts: Sequence[str]) -> str:
    """Return the parts of a sentence joined by commas and "and"; "" for none."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
