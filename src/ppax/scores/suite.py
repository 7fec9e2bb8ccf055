"""Rows of the learning suite (suite.toml): presets with budget, threshold, reference and negative controls."""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppax import config
from ppax.options import Config, check_value, nearest, option_of
from ppax.parts import static
from ppax.tools.tuned import preset_config
from ppax.types import ConfigError

SUITE = Path(__file__).with_name("suite.toml")
SUITES = ("quick", "full")
OF_CONTROLS = {"name", "steps", "at_most", "options"}  # keys of a control
CONTROL = "control"  # key of the controls of a row
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # names that are file names on every system


@dataclasses.dataclass(frozen=True)
class Row:
    """Row of a suite. A control has `at_most` in the place of `threshold`."""

    name: str = static("name of the row and of its files", default="")
    preset: str = static("preset that is trained", default="")
    steps: int | None = static("total_steps; none: as in the preset", default=None, low=1)
    threshold: float | None = static("score that the IQM over seeds must reach; none: only measured", default=None)
    firm: bool = static("the threshold is at or below a published or calibrated score for equal steps", default=False)
    reference: float | None = static("published score", default=None)
    source: str = static("source of the reference", default="")
    sampled: bool = static("sample the actions of the evaluation instead of taking the mode", default=False)
    at_most: float | None = static("upper bound of a negative control, which must fail", default=None)
    suites: tuple[str, ...] = static("suites that contain the row", default=(), choices=SUITES)
    options: Config = dataclasses.field(default_factory=dict)  # what differs from the preset
    controls: tuple[Row, ...] = ()

    def run_config(self) -> Config:
        """Return the configuration that is trained; ConfigError for an unknown preset or option."""
        steps = {} if self.steps is None else {"total_steps": self.steps}
        return config.overridden(preset_config(self.preset), {**steps, **self.options})


def read_suite(path: Path = SUITE) -> tuple[Row, ...]:
    """Read the rows of a suite file; ConfigError for unknown keys, invalid values and names that occur twice."""
    content = config.read(path)
    unknown = sorted(content.keys() - {"row"})
    if unknown or not isinstance(content.get("row"), list):
        raise ConfigError(f"{path}: must be a list of tables [[row]], and nothing else; received {', '.join(content)}")
    rows = tuple(_row(table, f"row {place}") for place, table in enumerate(content["row"], 1))
    names = [row.name for row in every(rows, True)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{path}: rows must have different names; there are several called {', '.join(twice)}")
    return rows


def every(rows: Sequence[Row], controls: bool) -> list[Row]:
    """Return the rows, each followed by its controls if `controls`."""
    return [one for row in rows for one in (row, *(row.controls if controls else ()))]


def choose(targets: Sequence[str], suite: str | None = None) -> list[Row]:
    """Return the rows that `targets` (presets or names of rows) and `suite` (a name or a suite file) select.

    A preset stands for its first row; without one it is measured with its own budget and no threshold.
    """
    rows = read_suite()
    chosen = list(rows_of(suite, rows)) if suite is not None else []
    for target in targets:
        row = next((row for row in rows if target in (row.name, row.preset)), None) or _unlisted(target, rows)
        chosen += [] if row in chosen else [row]
    return chosen


def rows_of(suite: str, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows of a suite by name, or all rows of a suite file."""
    if suite in SUITES:
        return tuple(row for row in rows if suite in row.suites)
    if Path(suite).suffix == ".toml":
        return read_suite(Path(suite))
    likely = difflib.get_close_matches(suite, SUITES, n=1, cutoff=0.0)[0]
    raise ConfigError(f"suite {suite!r}: must be {', '.join(SUITES)} or a suite file (.toml); did you mean {likely!r}?")


def _unlisted(target: str, rows: tuple[Row, ...]) -> Row:
    """Return a row without threshold for a preset that no row has."""
    presets = config.presets()
    if target not in presets:
        known = [*(row.name for row in rows), *presets]
        likely = difflib.get_close_matches(target, known, n=1, cutoff=0.0)[0]
        raise ConfigError(f"no preset or row {target!r}; did you mean {likely!r}? `ppax presets` lists the presets")
    sampled = not config.settings(preset_config(target)).eval.deterministic
    return Row(name=target.replace("/", "-"), preset=target, sampled=sampled)


def _row(table: Any, where: str) -> Row:
    """Build and check a row of a suite file with its controls."""
    fields = _checked(table, where, (CONTROL,))
    if not fields.get("preset"):
        raise ConfigError(f"{where}: preset is missing")
    if fields.get("at_most") is not None:
        raise ConfigError(f"{where}: at_most belongs to a control, [[row.{CONTROL}]]")
    row = Row(**fields)
    config.resolve(row.run_config())  # raises for an unknown preset and for invalid options
    controls = table.get(CONTROL, [])
    if not isinstance(controls, list):
        raise ConfigError(f"{where}: {CONTROL} must be a list of tables, [[row.{CONTROL}]]")
    return dataclasses.replace(row, controls=tuple(_control(row, one) for one in controls))


def _control(row: Row, table: Any) -> Row:
    """Build a control: the row with other options, an upper bound, and neither threshold nor reference."""
    where = f"{CONTROL} of {row.name}"
    fields = _checked(table, where, ())
    foreign = sorted(fields.keys() - OF_CONTROLS)
    if foreign:
        raise ConfigError(f"{where}: {foreign[0]} is that of its row; a control has {', '.join(sorted(OF_CONTROLS))}")
    if fields.get("at_most") is None:
        raise ConfigError(f"{where}: at_most is missing, the score that it must not exceed")
    options = config.overridden(row.options, fields.get("options", {}))
    own: dict[str, Any] = {"name": f"{row.name}-{fields['name']}", "options": options, "at_most": fields["at_most"]}
    none: dict[str, Any] = {"threshold": None, "reference": None, "source": "", "firm": False}
    control = dataclasses.replace(row, **none, **own, steps=fields.get("steps") or row.steps)
    config.resolve(control.run_config())
    return control


def _checked(table: Any, where: str, more: tuple[str, ...]) -> dict[str, Any]:
    """Values of a table of a suite file, checked against the fields of Row; keys in `more` are left out."""
    if not isinstance(table, dict):
        raise ConfigError(f"{where} = {table!r}: must be a table")
    hints = typing.get_type_hints(Row)
    known = {f.name: option_of(f, hints[f.name], f"{where}: {f.name}") for f in dataclasses.fields(Row) if f.metadata}
    fields: dict[str, Any] = {}
    for name, value in table.items():
        if name in more:
            continue
        if name == "options":
            if not isinstance(value, dict):
                raise ConfigError(f"{where}: options = {value!r}: must be a table")
            fields[name] = value
        elif name not in known:
            raise ConfigError(f"{where}: unknown key {name!r}; did you mean {nearest(name, [*known, 'options'])!r}?")
        else:
            checked = check_value(known[name], value)
            fields[name] = tuple(checked) if isinstance(checked, list) else checked
    if not PLAIN.fullmatch(fields.get("name", "")):
        raise ConfigError(f"{where}: name = {fields.get('name')!r}: must be letters, digits, '.', '_' and '-'")
    return fields
