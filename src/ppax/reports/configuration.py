"""Section of a report on the configuration: differences between runs, changes from the defaults, the run files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ppax.reports.cards import dotted, section
from ppax.reports.groups import SEED, Group, changed, differences, options_of
from ppax.reports.markup import Markup, element, table
from ppax.reports.words import shortened, value_text

FILES = 20  # maximum number of run files in a report
UNSAID = (SEED, "log.")  # options left out: they concern a single run, or its display


def configuration(groups: Sequence[Group]) -> Markup:
    """Differences between the groups, options that differ from their defaults, and the whole run files, folded."""
    firsts = [group.records[0] for group in groups]
    rows = {path: values for path, values in differences(firsts).items() if path != SEED}
    parts: list[Any] = []
    if rows:
        head = ["option", *(dotted(f"setting {i + 1}", i) for i in range(len(groups)))]
        parts += [element("h3", "Differences between the settings")]
        parts += [table(head, ([_code(path), *map(value_text, values)] for path, values in rows.items()))]
    own = {path: pair for path, pair in changed(firsts[0]).items() if path not in rows and not path.startswith(UNSAID)}
    meanings = {option.path: option.doc for option in options_of(firsts[0]) if not option.path.endswith(".part")}
    parts += [element("h3", "Changed from the defaults" + (", in all settings" if rows else ""))]
    if own:
        cells = (
            [_code(path), value_text(value), value_text(default), element("small", meanings.get(path, ""))]
            for path, (value, default) in own.items()
        )
        parts += [table(("option", "value", "default", "meaning"), cells)]
    else:
        parts += [element("p", "Nothing: every option has its default.")]
    parts += [_file(group, i) for i, group in enumerate(groups[:FILES])]
    intro = "All other options have their defaults; the run files below have every one."
    return section("Configuration", intro, *parts)


def _file(group: Group, colour: int) -> Markup:
    title = element("summary", dotted(f"run.toml of {shortened(group.records[0].name)}", colour))
    return element("details", title, element("pre", group.records[0].run_file))


def _code(path: str) -> Markup:
    return element("code", shortened(path))
