"""Building blocks of sections: headings, curves of groups in their colours, small charts."""

from __future__ import annotations

from collections.abc import Sequence

from ppax.reports.charts import NO_BAND, Band, Line, chart, final_text, look_of, swatch
from ppax.reports.curves import RANGE, common
from ppax.reports.groups import Group, by_env
from ppax.reports.markup import Markup, element, joined
from ppax.reports.words import shortened

SMALL = (340, 190)  # width and height of small charts, in pixels
POINTS, SMALL_POINTS = 400, 150  # maximum number of points of a curve


def section(title: str, intro: str, *content: object) -> Markup:
    """Section with a heading and a sentence."""
    return element("section", element("h2", title), element("p", intro, class_="intro"), *content)


def marked(text: str, group: Group) -> Markup:
    """Text behind a piece of the line of a setting."""
    return joined((swatch(group.place), text))


def lines_of(groups: Sequence[Group], metric: str, points: int, band: str = RANGE) -> list[Line]:
    """Line of each group that has `metric`, in the colour and style of the group; `band` as in `curves.averaged`."""
    curves = [common(group.records, metric, points, band) for group in groups]
    return [
        Line(curve, f"{group.label}: {metric}", *look_of(group.place))
        for group, curve in zip(groups, curves, strict=True)
        if len(curve.steps)
    ]


def cards(
    groups: Sequence[Group],
    metric: str,
    title: str,
    unit: str,
    sentence: str,
    band: Band = NO_BAND,
    badge: tuple[str, bool] | None = None,
) -> list[Markup]:
    """Small chart of one metric for each environment that has it, with title, unit and a sentence."""
    envs, drawn = by_env(groups), []
    for env, own in envs.items():
        lines = lines_of(own, metric, SMALL_POINTS)
        if lines:
            name = shortened(f"{title}, {env}" if len(envs) > 1 else title)
            mark = element("span", badge[0], class_="badge well" if badge[1] else "badge ill") if badge else ""
            below = element("span", unit or (f"last {final_text(lines[0])}" if len(lines) == 1 else ""), class_="unit")
            picture = chart(lines, *SMALL, f"{name} over environment steps", band)
            text = element("p", sentence) if sentence else ""
            drawn += [
                element("figure", element("figcaption", element("b", name), mark, below), picture, text, class_="card")
            ]
    return drawn


def grid(cards: Sequence[Markup]) -> Markup:
    """Cards side by side, as many as fit."""
    return element("div", *cards, class_="grid")
