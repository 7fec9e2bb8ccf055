"""HTML and SVG elements: text is escaped wherever it becomes markup, so that no text of a run can be code."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from ppax.core.types import printable

VOID = ("img", "meta")  # elements without content


class Markup(str):
    """Text that is markup already, and is not escaped again."""

    __slots__ = ()


def escaped(content: object) -> Markup:
    """Return content as markup: text is escaped, and markup stays as it is."""
    return content if isinstance(content, Markup) else Markup(html.escape(printable(str(content), "\n")))


def element(name: str, /, *content: object, **attributes: object) -> Markup:
    """Return an HTML or SVG element with content and attributes; `class_` is the attribute class.

    An underscore inside a name is a hyphen: `stroke_width` is stroke-width. Attributes that are None are left out.
    """
    given = {key.rstrip("_").replace("_", "-"): value for key, value in attributes.items() if value is not None}
    pairs = "".join(f' {key}="{escaped(value)}"' for key, value in given.items())
    return Markup(f"<{name}{pairs}>" if name in VOID else f"<{name}{pairs}>{joined(content)}</{name}>")


def joined(content: Iterable[object]) -> Markup:
    """Return several contents as markup, one after the other, text escaped."""
    return Markup("".join(map(escaped, content)))


def html_table(head: Sequence[object], rows: Iterable[Sequence[object]], class_: str | None = None) -> Markup:
    """Return a table that scrolls sideways where it is wider than the page; the first column is left-aligned text."""
    top = element("tr", *(element("th", cell, scope="col") for cell in head))
    body = (
        element("tr", element("th", first, scope="row"), *(element("td", cell) for cell in rest))
        for first, *rest in rows
    )
    inner = element("table", element("thead", top), element("tbody", *body), class_=class_)
    return element("div", inner, class_="scroll", tabindex="0", role="region", aria_label="table")
