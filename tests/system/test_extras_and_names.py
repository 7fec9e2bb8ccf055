"""Tables of docs/start.md and docs/glossary.md have every extra, and the names of `ppax.core.unknown_names`."""

import re
import tomllib
from pathlib import Path

from ppax.core import unknown_names

ROOT = Path(__file__).parents[2]
START, GLOSSARY = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("start", "glossary"))


def rows(page, heading):
    """Cells of the table below a heading, without its head."""
    table = re.findall(r"^\|(.*)\|$", page.partition(heading)[2].partition("\n## ")[0], re.MULTILINE)
    return [[cell.strip() for cell in row.split("|")] for row in table[2:]]


def test_every_extra_has_a_row():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = {name for row in rows(START, "## Extras") for name in re.findall(r"`(\w+)`", row[0])}
    assert listed == set(extras)


def test_the_table_of_names_is_that_of_the_errors():
    """Every name of the table stands in a row with the option and the Python call that errors suggest for it."""
    table = {}
    for cells in rows(GLOSSARY, "## Names from other libraries"):
        for name in re.findall(r"`([^`]+)`", " ".join(cells[:4])):
            table.setdefault(name, cells[4:])
    assert len(table) > 80
    for name, (option, python) in table.items():
        row = unknown_names.meaning(name)
        assert row.python in python.replace("`", "")
        assert row.option in option
    assert {name for row in unknown_names.TABLE for name in row.elsewhere} == set(table)
