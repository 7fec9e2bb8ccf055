"""Rows of the learning suite (suite.toml), the public suite (public.toml) and predecessors.toml.

A row is an environment or preset to train, with a budget of steps, a threshold, a reference (a published score) and
negative controls. predecessors.toml has the tasks of earlier PPO implementations, such as rl8, whose settings ppax has
as presets.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ppax import config
from ppax.core.options import Config, check_value, nearest, option_of
from ppax.core.parts import static
from ppax.core.types import ConfigError
from ppax.envs import BUILTIN

SUITE = Path(__file__).with_name("suite.toml")
PREDECESSORS = SUITE.with_name("predecessors.toml")  # tasks of four earlier systems, by their presets `styles/*`
PUBLIC = SUITE.with_name("public.toml")  # environments of many libraries, by the defaults
FILES = {path.stem: path for path in (PUBLIC, PREDECESSORS)}  # suites with files of their own
RETURN = "return"  # the metric of a row that scores returns
SUITES = ("quick", "full")
OF_CONTROLS = {"name", "steps", "at_most", "options"}  # keys of a control
CONTROL = "control"  # key of the controls of a row
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")  # names that are file names on every system


@dataclasses.dataclass(frozen=True)
class SuiteRow:
    """Row of a suite: what is trained, and the score that it must reach.

    A negative control, whose score must stay low, has `at_most` in the place of `threshold`.
    """

    name: str = static("name of the row and of its files", default="")
    target: str = static("environment or preset that is trained, as `ppax train` takes it", default="")
    steps: int | None = static("length of training, total_steps; none: that of the target", default=None, low=1)
    threshold: float | None = static("score that the IQM over seeds must reach; none: only measured", default=None)
    firm: bool = static("the threshold is at or below a published or calibrated score for equal steps", default=False)
    reference: float | None = static("published score", default=None)
    reference_steps: int | None = static("steps after which the reference was measured", default=None, low=1)
    source: str = static("source of the reference", default="")
    metric: str = static(
        "what is averaged over the episodes: return, or a metric of the environment such as caught", default=RETURN
    )
    seeds: int | None = static("number of seeds; none: 5, and 3 in Python environments", default=None, low=1)
    sampled: bool = static("sample the actions of the evaluation instead of taking the mode", default=False)
    at_most: float | None = static("upper bound of the score of a negative control, which must stay low", default=None)
    suites: tuple[str, ...] = static("suites that contain the row", default=(), choices=SUITES)
    options: Config = dataclasses.field(default_factory=dict)  # what differs from the target's settings
    controls: tuple[SuiteRow, ...] = ()

    def given(self) -> Config:
        """Return the row's configuration without defaults, which depend on its environment and are not known yet.

        It has the options of the target, with its preset if there is one, and those of the row, which have priority.
        Raises ConfigError for an unknown preset.
        """
        steps = {} if self.steps is None else {"total_steps": self.steps}
        chosen = {name: self.options[name] for name in (config.PRESET,) if name in self.options}
        started = config.begun(config.find(self.target) | chosen)
        return config.overridden(started, {**steps, **self.options})

    def run_config(self) -> Config:
        """Return the row's whole configuration for training; ConfigError for an unknown environment or option."""
        return config.completed(self.given()).config


def read_suite(path: Path = SUITE) -> tuple[SuiteRow, ...]:
    """Return the rows of a suite file; ConfigError for unknown keys, invalid values and names that occur twice."""
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


def every(rows: Sequence[SuiteRow], controls: bool) -> list[SuiteRow]:
    """Return `rows`; if `controls`, each is followed by its negative controls, whose scores must stay low."""
    return [one for row in rows for one in (row, *(row.controls if controls else ()))]


def choose(targets: Sequence[str], suite: str | None = None) -> list[SuiteRow]:
    """Return all rows of `suite`, and then those that `targets` select in addition; each row once.

    `suite` is the name of a suite or a suite file; None: no suite. Each of `targets` is an environment, a preset or the
    name of a row. An environment or preset stands for the first row of the learning suite that trains it; if there is
    none, for a row with its own budget and no threshold.
    """
    rows, others = read_suite(), [row for path in FILES.values() for row in read_suite(path)]
    names = {row.target: row for row in rows[::-1]} | {row.name: row for row in (*rows, *others)}
    chosen = list(rows_of(suite, rows)) if suite is not None else []
    for target in targets:
        row = names.get(target) or _unlisted(target, (*rows, *others))
        same = next((one for one in chosen if one.name == row.name and one != row), None)
        if same is not None:
            raise ConfigError(
                f"{same.target} and {row.target}: results of both would be called {row.name}; rename a file, or score "
                "them one after the other, with another --out"
            )
        chosen += [] if row in chosen else [row]
    return chosen


def rows_of(suite: str, rows: tuple[SuiteRow, ...]) -> tuple[SuiteRow, ...]:
    """Return the rows of `suite`: those of `rows` that are in the suite of this name, or all rows of a file (.toml).

    Raises ConfigError for a name that is neither.
    """
    if suite in SUITES:
        return tuple(row for row in rows if suite in row.suites)
    if suite in FILES:
        return read_suite(FILES[suite])
    if Path(suite).suffix == ".toml":
        return read_suite(Path(suite))
    known = (*SUITES, *FILES)
    likely = difflib.get_close_matches(suite, known, n=1, cutoff=0.0)[0]
    raise ConfigError(f"suite {suite!r}: must be {', '.join(known)} or a suite file (.toml); did you mean {likely!r}?")


def _unlisted(target: str, rows: tuple[SuiteRow, ...]) -> SuiteRow:
    """Return a row without threshold for `target`, an environment or a preset that none of `rows` trains."""
    _require_known(target, [row.name for row in rows])
    started = config.completed(config.find(target)).config
    sampled = not config.settings(started).eval.deterministic
    return SuiteRow(name=_name_of(target), target=target, sampled=sampled)


def _name_of(target: str) -> str:
    """Return the name of the row for `target`, also a file name: that of a run file or run directory, else `target`."""
    file, path = config.file_of(target), Path(target).resolve()
    called = target if file is None else path.stem if path == file.resolve() else path.name
    name = re.sub(r"[^A-Za-z0-9._-]", "-", called)
    return name if PLAIN.fullmatch(name) else f"run-{name}"


def _require_known(target: str, rows: Sequence[str] = ()) -> None:
    """Raise ConfigError, with the nearest valid name, if `target` is no preset, environment or file, and not in `rows`.

    `rows` are names of rows of a suite.
    """
    if not {"/", ":"} & set(target) and target not in BUILTIN and config.file_of(target) is None:
        likely = difflib.get_close_matches(target, [*rows, *config.presets(), *BUILTIN], n=1, cutoff=0.0)[0]
        raise ConfigError(f"no row, preset or environment {target!r}; did you mean {likely!r}?")


def _row(table: Any, where: str) -> SuiteRow:
    """Return the row, with its negative controls, that a table of a suite file describes; ConfigError if it is invalid.

    `where` names the table in the message.
    """
    fields = _checked(table, where, (CONTROL,))
    if not fields.get("target"):
        raise ConfigError(f"{where}: target is missing, an environment or a preset")
    if fields.get("at_most") is not None:
        raise ConfigError(f"{where}: at_most belongs to a control, [[row.{CONTROL}]]")
    row = SuiteRow(**fields)
    _require_known(row.target)
    config.resolve(row.given())  # raises for an unknown preset and for invalid options
    controls = table.get(CONTROL, [])
    if not isinstance(controls, list):
        raise ConfigError(f"{where}: {CONTROL} must be a list of tables, [[row.{CONTROL}]]")
    return dataclasses.replace(row, controls=tuple(_control(row, one) for one in controls))


def _control(row: SuiteRow, table: Any) -> SuiteRow:
    """Return the negative control of `row` that `table` describes: other options, an upper bound, and no threshold.

    All that the table does not set is as in `row`. Raises ConfigError if the table is invalid.
    """
    where = f"{CONTROL} of {row.name}"
    fields = _checked(table, where, ())
    foreign = sorted(fields.keys() - OF_CONTROLS)
    if foreign:
        raise ConfigError(f"{where}: {foreign[0]} is that of its row; a control has {', '.join(sorted(OF_CONTROLS))}")
    if fields.get("at_most") is None:
        raise ConfigError(f"{where}: at_most is missing, the score that it must not exceed")
    options = config.overridden(row.options, fields.get("options", {}))
    own: dict[str, Any] = {"name": f"{row.name}-{fields['name']}", "options": options, "at_most": fields["at_most"]}
    none: dict[str, Any] = {"threshold": None, "reference": None, "reference_steps": None, "source": "", "firm": False}
    control = dataclasses.replace(row, **none, **own, steps=fields.get("steps") or row.steps)
    config.resolve(control.given())
    return control


def _checked(table: Any, where: str, more: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of a table of a suite file, checked as fields of SuiteRow, without the keys in `more`.

    Keys in `more` are valid in the table, but no fields of SuiteRow. Raises ConfigError, naming `where`, for other
    unknown keys and for invalid values.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{where} = {table!r}: must be a table")
    hints = typing.get_type_hints(SuiteRow)
    known = {
        f.name: option_of(f, hints[f.name], f"{where}: {f.name}") for f in dataclasses.fields(SuiteRow) if f.metadata
    }
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
