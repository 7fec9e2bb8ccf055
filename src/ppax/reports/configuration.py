"""Section of a report on the configuration: differences between runs, changes from the defaults, the run files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ppax.reports.cards import marked, section
from ppax.reports.groups import SEED, Group, changed, differences, options_of, short_names
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
        names = short_names(list(rows))
        head = ["setting", *(element("code", shortened(names[path]), title=path) for path in rows)]
        own_values = [
            [marked(str(x.place + 1), x), *(value_text(row[x.place]) for row in rows.values())] for x in groups
        ]
        parts += [element("h3", "Differences between the settings"), table(head, own_values)]
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
    parts += [_file(group) for group in groups[:FILES]]
    intro = "All other options have their defaults; the run files below have every one."
    return section("Configuration", intro, *parts)


def _file(group: Group) -> Markup:
    title = element("summary", marked(f"run.toml of {shortened(group.records[0].name)}", group))
    return element("details", title, element("pre", group.records[0].run_file))


def _code(path: str) -> Markup:
    return element("code", shortened(path))
