"""HTML page of a report: one file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

from ppax.reports import sections, summary
from ppax.reports.configuration import configuration
from ppax.reports.curves import CONFIDENCE
from ppax.reports.groups import groups_of
from ppax.reports.markup import Markup, element, joined
from ppax.reports.sections import Film
from ppax.run.records import Record

# Even if text of a run were taken for markup, no browser would run it or load anything
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def page(records: Sequence[Record], film: Film | None, made: str, band: str = CONFIDENCE) -> str:
    """Whole page of at least one run; `made` is the time at which it was made, `band` as in `curves.averaged`."""
    groups = groups_of(records)
    title = summary.title_of(groups)
    main = [
        sections.learning(groups, band),
        sections.episode(film) if film is not None else "",
        sections.evaluation(groups),
        sections.signs(groups),
        sections.losses(groups),
        sections.speed(groups),
        configuration(groups),
        sections.others(groups),
    ]
    names = ", ".join(record.name for record in records[:8]) + (", ..." if records[8:] else "")
    footer = element("footer", f"Made by ppax report on {made} from {names}. This page loads nothing from the network.")
    header = element(
        "header",
        element("p", "ppax report", class_="eyebrow"),
        element("h1", title),
        element("p", summary.paragraph(groups), class_="lead"),
        element("dl", *(_tile(*tile) for tile in summary.tiles(groups)), class_="tiles"),
    )
    body = element("body", element("main", header, *main, footer))
    return f"<!DOCTYPE html>\n{element('html', _head(title), body, lang='en')}\n"


def _head(title: str) -> Markup:
    style = Markup((resources.files("ppax.reports") / "page.css").read_text(encoding="utf-8"))
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", f"{title} · ppax report"),
        element("style", style),
    )


def _tile(name: str, figure: str, remark: str) -> Markup:
    return element("div", element("dt", name), joined((element("dd", figure), element("dd", remark, class_="remark"))))
