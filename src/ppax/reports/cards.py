"""Building blocks of sections: headings, curves of groups in their colours, small charts."""

from __future__ import annotations

from collections.abc import Sequence

from ppax.reports.charts import COLOURS, NO_BAND, Band, Line, chart, final_text
from ppax.reports.curves import common
from ppax.reports.groups import Group
from ppax.reports.markup import Markup, element, joined
from ppax.reports.words import shortened

SMALL = (340, 190)  # width and height of small charts, in pixels
POINTS, SMALL_POINTS = 400, 150  # maximum number of points of a curve


def section(title: str, intro: str, *content: object) -> Markup:
    """Section with a heading and a sentence."""
    return element("section", element("h2", title), element("p", intro, class_="intro"), *content)


def dotted(text: str, colour: int) -> Markup:
    """Text behind a dot in the colour of a group."""
    dot = element("span", class_="dot", style=f"background:{COLOURS[colour % len(COLOURS)]}")
    return joined((dot, text))


def lines_of(groups: Sequence[Group], metric: str, points: int) -> list[Line]:
    """Line of each group that has `metric`, in the colour of the group."""
    curves = [common(group.records, metric, points) for group in groups]
    return [
        Line(curve, f"{group.label}: {metric}", COLOURS[i % len(COLOURS)])
        for i, (group, curve) in enumerate(zip(groups, curves, strict=True))
        if len(curve.steps)
    ]


def card(
    groups: Sequence[Group],
    metric: str,
    title: str,
    unit: str,
    sentence: str,
    band: Band = NO_BAND,
    badge: tuple[str, bool] | None = None,
) -> Markup:
    """Small chart of one metric with title, unit and a sentence; empty where no run has the metric."""
    lines = lines_of(groups, metric, SMALL_POINTS)
    if not lines:
        return Markup("")
    mark = element("span", badge[0], class_="badge well" if badge[1] else "badge ill") if badge else ""
    below = element("span", unit or (f"last {final_text(lines[0])}" if len(lines) == 1 else ""), class_="unit")
    caption = element("figcaption", element("b", shortened(title)), mark, below)
    drawn = chart(lines, *SMALL, f"{shortened(title)} over environment steps", band)
    return element("figure", caption, drawn, element("p", sentence) if sentence else "", class_="card")


def grid(cards: Sequence[Markup]) -> Markup:
    """Cards side by side, as many as fit."""
    return element("div", *cards, class_="grid")
