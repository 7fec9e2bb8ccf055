"""Line charts as SVG, made without a plotting library; readable on light and on dark pages."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ppax.core.types import printable
from ppax.reports.curves import Curve
from ppax.reports.formatting import short_count

# HTML and SVG elements: text is escaped wherever it becomes markup, so that no text of a run can be code.

VOID = ("img", "meta")  # elements without content


class Markup(str):
    """String that is HTML or SVG markup already, so that `escaped` does not escape it again."""

    __slots__ = ()


def escaped(content: object) -> Markup:
    """Return `content` as markup: a Markup unchanged, anything else as text with its special characters escaped."""
    return content if isinstance(content, Markup) else Markup(html.escape(printable(str(content), "\n")))


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return an HTML or SVG element with content and attributes; `class_` is the attribute class.

    An underscore inside a name is a hyphen: `stroke_width` is stroke-width. Attributes that are None are left out.
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    pairs = "".join(f' {key}="{escaped(value)}"' for key, value in given.items())
    return Markup(f"<{name}{pairs}>" if name in VOID else f"<{name}{pairs}>{joined(content)}</{name}>")


def joined(content: Iterable[object]) -> Markup:
    """Return the contents as one piece of markup, one after the other; those that are plain text are escaped."""
    return Markup("".join(map(escaped, content)))


def html_table(head: Sequence[object], rows: Iterable[Sequence[object]], class_: str | None = None) -> Markup:
    """Return an HTML table of `rows` under the headings `head`; the first column is left-aligned text.

    The table scrolls sideways where it is wider than the page. `class_` is its attribute class.
    """
    top = element("tr", *(element("th", cell, scope="col") for cell in head))
    body = (
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest))
        for first, *rest in rows
    )
    inner = element("table", element("thead", top), element("tbody", *body), class_=class_)
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label="table")


# Readable on white and on black, and apart for readers who do not see all colours
COLOURS = ("#12948a", "#e0822b", "#4a7fd6", "#c5508f", "#8c9427", "#8a68cc", "#d14f45", "#7c8794")
DASHES = ("", "7 4", "2 4", "10 3 2 3")  # styles of lines, each with all colours
HEALTHY = "#3fa35b"
TOP, BOTTOM, RIGHT, GLYPH = 10, 24, 14, 6.6  # margins and width of a character, in pixels
PADDING = 0.06  # of the range of values, above and below
FONT = "11.5px system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"


class Line(NamedTuple):
    """Curve of a chart, with its name, colour and style of line."""

    curve: Curve
    name: str
    colour: str
    dash: str = ""  # of DASHES
    dots: bool = False  # a dot at every point: sparse measurements, as evaluations
    faint: bool = False  # thin and without band, behind more important lines


class Band(NamedTuple):
    """Marks of a chart: values that the vertical axis must include, a healthy range, and a limit."""

    shown: tuple[float, ...] = ()
    healthy: tuple[float, float] | None = None
    limit: float | None = None  # dashed horizontal line


NO_BAND = Band()


class Frame(NamedTuple):
    """Plot area of a chart in pixels, and the values at its edges."""

    left: float
    right: float
    top: float
    bottom: float
    steps: float  # at the right edge; the left one is 0
    low: float
    high: float

    def x(self, steps: np.ndarray | float) -> np.ndarray:
        """Return the horizontal positions, in pixels, of numbers of environment steps."""
        return np.asarray(self.left + (self.right - self.left) * np.asarray(steps) / self.steps)

    def y(self, values: np.ndarray | float) -> np.ndarray:
        """Return the vertical positions of values in pixels; larger values are further up."""
        share = (np.asarray(values) - self.low) / (self.high - self.low)
        return np.asarray(self.bottom - (self.bottom - self.top) * share)


def chart(lines: Sequence[Line], width: int, height: int, name: str, band: Band = NO_BAND) -> Markup:
    """Return a line chart as SVG; at least one line must have points.

    `name` describes the chart to screen readers, `width` and `height` are in pixels.
    """
    low, high = value_range(lines, band)
    ticks = nice_ticks(low, high, max(3, height // 38))
    labels = tick_labels(ticks)
    left = 10 + GLYPH * max(map(len, labels))
    steps = max(float(line.curve.steps.max()) for line in lines) or 1.0
    frame = Frame(left, width - RIGHT, TOP, height - BOTTOM, steps, low, high)
    parts = [*_healthy(frame, band), *_axes(frame, ticks, labels)]
    for line in lines:
        parts += _line(frame, line)
    box = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height, "role": "img", "aria_label": name}
    return element("svg", *parts, **box, style=f"max-width:100%;height:auto;font:{FONT}", fill="currentColor")


def look_of(place: int) -> tuple[str, str]:
    """Return colour and dash pattern of the line at index `place`; after all colours, they repeat with another dash."""
    return COLOURS[place % len(COLOURS)], DASHES[place // len(COLOURS) % len(DASHES)]


def swatch(place: int) -> Markup:
    """Return a short sample of the line at index `place`, as SVG, for legends and tables."""
    colour, dash = look_of(place)
    look = {"stroke": colour, "stroke_width": 3.5, "stroke_dasharray": dash or None}
    line = element("path", d="M1 5h26", fill="none", **look)
    return element("svg", line, viewBox="0 0 28 10", width=28, height=10, class_="swatch", aria_hidden="true")


def value_range(lines: Sequence[Line], band: Band) -> tuple[float, float]:
    """Return the lowest and highest value of the vertical axis: somewhat beyond those of the lines and of `band`."""
    values = [*(x for line in lines for x in (line.curve.low.min(), line.curve.high.max())), *band.shown]
    low, high = float(min(values)), float(max(values))
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # constant
        room = abs(low) / 2 or 1.0
        return low - room, high + room
    room = PADDING * (high - low)
    return low - room, high + room


def nice_ticks(low: float, high: float, count: int) -> list[float]:
    """Return the multiples of a round step from `low` to `high`, about `count` of them.

    A round step is 1, 2 or 5 times a power of ten.
    """
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * (1 - 1e-9))
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def tick_labels(ticks: Sequence[float]) -> list[str]:
    """Return the labels of an axis' ticks as texts, with as many digits as tell the ticks apart.

    All have the same number of digits after the decimal point. Large numbers are abbreviated, such as "50k", and
    numbers below 0.001 have an exponent, such as "2e-4"; both have digits that differ between ticks.
    """
    largest = max(map(abs, ticks), default=0.0)
    gap = min((b - a for a, b in itertools.pairwise(ticks)), default=largest or 1.0)
    further = [max(0, _power(tick) - _power(gap)) for tick in ticks]  # significant digits after the first
    if largest >= 1e4:
        return [short_count(tick, max(3, 1 + more)) for tick, more in zip(ticks, further, strict=True)]
    if largest < 1e-3:
        return [_scientific(tick, more) for tick, more in zip(ticks, further, strict=True)]
    return [f"{tick:.{max(0, -_power(gap))}f}".replace("-", "\N{MINUS SIGN}") for tick in ticks]


def _power(value: float) -> int:
    """Return the power of ten of the first digit of `value`; 0 for 0."""
    return math.floor(math.log10(abs(value)) + 1e-9) if value else 0


def _scientific(value: float, digits: int) -> str:
    """Return a number as text with an exponent and at most `digits` digits after the decimal point, as "2.5e-4"."""
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{mantissa}e{int(exponent)}" if value else "0"


def _axes(frame: Frame, ticks: Sequence[float], labels: Sequence[str]) -> Iterator[Markup]:
    for tick, label in zip(ticks, labels, strict=True):
        y = float(frame.y(tick))
        yield _rule(frame.left, y, frame.right, y, 0.13)
        yield element("text", label, x=f"{frame.left - 6:.1f}", y=f"{y + 4:.1f}", text_anchor="end", opacity=0.7)
    yield _rule(frame.left, frame.bottom, frame.right, frame.bottom, 0.4)
    yield from _step_axis(frame)


def _step_axis(frame: Frame) -> Iterator[Markup]:
    """Yield ticks and labels of a chart's horizontal axis, environment steps.

    The last label has the unit "steps"; labels that would overlap with it are left out.
    """
    places = nice_ticks(0.0, frame.steps, min(6, max(2, round((frame.right - frame.left) / 55))))
    free = frame.right + 2 * GLYPH  # left edge of the label to the right
    for place in reversed(places):
        x, text = float(frame.x(place)), f"{short_count(place)}{' steps' if place == places[-1] else ''}"
        yield _rule(x, frame.bottom, x, frame.bottom + 4, 0.4)
        half = GLYPH * len(text) / 2
        middle = min(max(x, frame.left + half), frame.right - half)
        if middle + half + GLYPH <= free:
            free = middle - half
            at = {"x": f"{middle:.1f}", "y": f"{frame.bottom + 17:.1f}", "text_anchor": "middle"}
            yield element("text", text, **at, opacity=0.7)


def _rule(x1: float, y1: float, x2: float, y2: float, opacity: float) -> Markup:
    return element("path", d=f"M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}", stroke="currentColor", stroke_opacity=opacity)


def _healthy(frame: Frame, band: Band) -> Iterator[Markup]:
    if band.healthy is not None:
        high, low = (float(np.clip(frame.y(value), frame.top, frame.bottom)) for value in band.healthy[::-1])
        box = {"x": f"{frame.left:.1f}", "y": f"{high:.1f}", "width": f"{frame.right - frame.left:.1f}"}
        yield element("rect", **box, height=f"{low - high:.1f}", fill=HEALTHY, fill_opacity=0.13)
    if band.limit is not None and frame.low < band.limit < frame.high:
        y = float(frame.y(band.limit))
        path = f"M{frame.left:.1f} {y:.1f}L{frame.right:.1f} {y:.1f}"
        yield element("path", d=path, stroke="currentColor", stroke_opacity=0.55, stroke_dasharray="4 4")


def _line(frame: Frame, line: Line) -> Iterator[Markup]:
    curve = line.curve
    x, low, value, high = frame.x(curve.steps), frame.y(curve.low), frame.y(curve.value), frame.y(curve.high)
    title = element("title", line.name)
    if (curve.low < curve.high).any() and not line.faint:
        outline = f"{_path(x, high)}L{_path(x[::-1], low[::-1])[1:]}Z"
        yield element("path", title, d=outline, fill=line.colour, fill_opacity=0.2)
    look = {"fill": "none", "stroke": line.colour, "stroke_linejoin": "round", "stroke_linecap": "round"}
    if line.dots or len(x) == 1:
        dots = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x, value, strict=True))
        yield element("path", title, d=dots, **look, stroke_width=5.5)
    if len(x) > 1:
        strength = {"stroke_width": 1.2, "stroke_opacity": 0.5} if line.faint else {"stroke_width": 1.8}
        yield element("path", title, d=_path(x, value), **look, **strength, stroke_dasharray=line.dash or None)


def _path(x: np.ndarray, y: np.ndarray) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))
