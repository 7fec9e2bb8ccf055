"""Settings of a report: groups of runs that differ by their seed alone, named by the options that set them apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ppax import config as configs
from ppax.core.options import NONE, Option
from ppax.core.types import ConfigError
from ppax.reports.formatting import shortened, value_text
from ppax.reports.statistics import Standing, standing_of
from ppax.run.records import Record

SEED = "seed"
# Options that do not change how a run learns
OTHER = ("log.", "eval.", "best.", "timeout", "vectorization", "info_metrics")
NAMED = 3  # maximum number of options in the name of a setting
MISSING = "not set"


class Setting(NamedTuple):
    """Setting of a report: runs that differ by their seed alone, with a name for them."""

    label: str  # options that set it apart, as "learning_rate = 0.001"; the environment if there is one setting
    records: list[Record]
    place: int = 0  # among the settings of a page, best first: chooses colour and style of its lines

    @property
    def env(self) -> str:
        """Name of the environment of the setting's runs."""
        return self.records[0].env

    @property
    def standing(self) -> Standing:
        """Standing of the setting, by the final returns of its runs: settings on one environment are ranked by it."""
        return standing_of([record.final_return for record in self.records])

    @property
    def seeds(self) -> str:
        """Seeds of the setting's runs, in words."""
        seeds = [value_text(record.config.get(SEED, "?")) for record in self.records]
        return (
            f"{len(seeds)} seeds: {', '.join(seeds[:10])}{', ...' if seeds[10:] else ''}"
            if seeds[1:]
            else (f"seed {seeds[0]}")
        )


def settings_of(records: Sequence[Record]) -> list[Setting]:
    """Return the runs of `records` grouped into settings: runs that differ by their seed alone.

    Settings are ordered by environment, as these appear first, and on each environment the best comes first.
    """
    members: dict[tuple[str, int], list[Record]] = {}
    for place, record in enumerate(records):
        # members of a population have copied others: each is a setting, whatever its last values
        alone = any("." in name and name in record.config for name in record.columns)
        members.setdefault((_key(record.config), place if alone else -1), []).append(record)
    labels = _labels([runs[0] for runs in members.values()])
    settings = [Setting(label, runs) for label, runs in zip(labels, members.values(), strict=True)]
    ranked = [
        setting for own in by_env(settings).values() for setting in sorted(own, key=lambda x: x.standing, reverse=True)
    ]
    return [setting._replace(place=place) for place, setting in enumerate(ranked)]


def by_env(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """Return settings by the name of their environment: returns of different environments cannot be compared."""
    found: dict[str, list[Setting]] = {}
    for setting in settings:
        found.setdefault(setting.env, []).append(setting)
    return found


def setting_differences(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the options of which two records have different values: by dotted path, the value in each record."""
    found = [record.config for record in records]
    paths = dict.fromkeys(path for config in found for path in config)
    values = {path: [config.get(path, MISSING) for config in found] for path in paths}
    return {path: row for path, row in values.items() if any(value != row[0] for value in row)}


def changed(record: Record) -> dict[str, tuple[Any, Any]]:
    """Return the options that differ from their defaults: (value, default) by dotted path.

    The default of an option that has none is None.
    """
    known = {option.path: _as_written(option.default) for option in options_of_run(record)}
    own = {path: (_as_written(value), known.get(path)) for path, value in record.config.items()}
    return {path: pair for path, pair in own.items() if pair[0] != pair[1]}


def options_of_run(record: Record) -> list[Option]:
    """Return the options that a run has with the parts (swappable objects of the agent) that its run file names.

    In place of parts of the user's own, default parts are taken.
    """
    try:
        return list(configs.options(configs.plain(record.tables)))
    except ConfigError:
        return list(configs.options({}))


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return a short name for each dotted path: its last words, as many as it takes to tell the paths apart.

    For a part (an option that ends in `.part`) it is the name of the table. Outside of an agent names have at least two
    words: several tables have `every` or `part`.
    """
    words = {path: path.removesuffix(".part").split(".") for path in paths}
    names = {}
    for path, own in words.items():
        count = 1 if "agent" in own else 2
        while count < len(own) and any(x[-count:] == own[-count:] for other, x in words.items() if other != path):
            count += 1
        names[path] = ".".join(own[-count:])
    return names


def _labels(firsts: Sequence[Record]) -> list[str]:
    """Return a name for each setting, from the options in which the settings' first runs, `firsts`, differ."""
    rows = {path: values for path, values in setting_differences(firsts).items() if _matters(path)}
    rows = {path: values for path, values in rows.items() if not _explained(path, rows)}
    if not rows:
        return _distinct([shortened(record.env) for record in firsts], firsts)
    names, labels = short_names(list(rows)), []
    for i in range(len(firsts)):
        parts = [
            value_text(values[i]) if path == "env" else f"{names[path]} = {value_text(values[i])}"
            for path, values in rows.items()
            if not (values[i] == MISSING and _of_parts(path, rows))
        ]
        more = [f"{len(parts) - NAMED} more"] if len(parts) > NAMED else []
        labels.append(", ".join([shortened(part) for part in parts[:NAMED]] + more))
    return _distinct(labels, firsts)


def _distinct(labels: list[str], firsts: Sequence[Record]) -> list[str]:
    """Return the labels of settings; where several are the same, each has the name of its first run behind it."""
    return [
        f"{label} ({one.name})" if labels.count(label) > 1 else label for label, one in zip(labels, firsts, strict=True)
    ]


def _of_parts(path: str, rows: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return those paths in `rows` that name a part (swappable object) to which the option `path` belongs.

    For "agent.loss.clip_eps" that is "agent.loss.part". `rows` has the options that differ, by dotted path.
    """
    words = path.split(".")
    around = (".".join([*words[:count], "part"]) for count in range(1, len(words)))
    return [part for part in around if part in rows and part != path]


def _explained(path: str, rows: Mapping[str, Sequence[Any]]) -> bool:
    """Return True if the option `path` differs between settings only because they have different parts.

    That is so if some settings lack the option, as their part is another, and settings with the same part have the same
    value. `rows` has the values of the options that differ, one for each setting.
    """
    values = rows[path]
    return MISSING in values and any(
        all(
            values[i] == values[j]
            for i, one in enumerate(rows[part])
            for j, other in enumerate(rows[part])
            if one == other
        )
        for part in _of_parts(path, rows)
    )


def _key(config: Mapping[str, Any]) -> str:
    return json.dumps({path: value for path, value in config.items() if _matters(path)}, sort_keys=True, default=str)


def _matters(path: str) -> bool:
    return path != SEED and not path.startswith(OTHER)


def _as_written(value: Any) -> Any:
    """Return a value in the form in which a run file has it."""
    return NONE if value is None else list(value) if isinstance(value, tuple) else value
