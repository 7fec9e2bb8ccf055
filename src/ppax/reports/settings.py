"""Settings of a report: groups of runs that differ by their seed alone, named by the options that set them apart."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ppax import config as configs
from ppax.config.defaults import recorded_defaults
from ppax.core.options import NONE, Option
from ppax.core.types import ConfigError
from ppax.reports.formatting import listed, number_text, shortened, value_text
from ppax.reports.statistics import Standing, standing_of
from ppax.run.records import DURING, FINAL, TRAINING, WHOLE_EVALUATED, WHOLE_TRAINED, Record

SEED = "seed"
# Options that do not change how a run learns
OTHER = ("log.", "eval.", "best.", "film.", "timeout", "vectorization", "info_metrics")
# Options of evaluations that change what a score measures, or are part of the environment's task
MEASURED = ("eval.max_steps", "eval.deterministic", "eval.env_params.")
LIMITS = ("max_steps", "max_episode_steps", "time_limit")  # last words of parameters that limit episodes
MEASURES = (FINAL, DURING, TRAINING, WHOLE_EVALUATED, WHOLE_TRAINED)  # in the order of kinds of scores
NAMED = 3  # number of options in the name of a setting
MOST_NAMED = 5  # maximum number of them, where fewer do not tell the settings apart
MISSING = "not set"


class Setting(NamedTuple):
    """Setting of a report: a group of runs that differ by their seed only, with a label.

    `kind` says how the runs' scores were measured, such as "final evaluation"; it is "" if this is the same for all
    settings on the environment. Settings of different kinds are ranked apart.
    """

    label: str  # options that set it apart, as "learning_rate = 0.001"; the environment if there is one setting
    records: list[Record]
    place: int = 0  # among the settings of a page, best first: chooses colour and style of its lines
    repeats: tuple[Record, ...] = ()  # further runs with options and seed of one in `records`: they do not count
    kind: str = ""  # what the scores measure, where settings on one environment differ in that; they are ranked apart

    @property
    def env(self) -> str:
        """Name of the environment of the setting's runs."""
        return self.records[0].env

    @property
    def scores(self) -> list[float]:
        """Score of each run of the setting, its final return; NaN for a run without one."""
        return [record.final_return for record in self.records]

    @property
    def standing(self) -> Standing:
        """Tuple by which settings on one environment are ranked, from the final returns of the runs."""
        return standing_of(self.scores)

    @property
    def seeds(self) -> str:
        """Seeds of the setting's runs as text, such as "seed 0" or "2 seeds: 0, 1"."""
        seeds = [value_text(record.config.get(SEED, "?")) for record in self.records]
        return (
            f"{len(seeds)} seeds: {', '.join(seeds[:10])}{', ...' if seeds[10:] else ''}"
            if seeds[1:]
            else (f"seed {seeds[0]}")
        )


def settings_of(records: Sequence[Record]) -> list[Setting]:
    """Return the runs of `records` grouped into settings: runs that differ by their seed only.

    If several runs have equal options and an equal seed, the one with the most steps is in the setting's `records`, and
    the others are its `repeats`. Settings are sorted by environment, in the order in which environments first appear;
    then by `kind`, a text on how their scores were measured, because scores measured in different ways cannot be
    compared: final evaluations come first, and then the measure that most runs have; then by score, the best first.
    """
    members: dict[tuple[str, int], list[Record]] = {}
    for place, record in enumerate(records):
        # members of a population have copied others: each is a setting, whatever its last values
        alone = any("." in name and name in record.config for name in record.columns)
        members.setdefault((grouped_key(record.config), place if alone else -1), []).append(record)
    counted = [_each_seed_once(runs) for runs in members.values()]
    labels = labels_of([runs[0] for runs in members.values()])
    settings = [Setting(label, own, 0, repeats) for label, (own, repeats) in zip(labels, counted, strict=True)]
    ranked = []
    for own in by_env(settings).values():
        kinds = by_kind(_with_kinds(own))
        for same in sorted(kinds.values(), key=_order_of_kind):
            ranked += sorted(same, key=lambda setting: setting.standing, reverse=True)
    return [setting._replace(place=place) for place, setting in enumerate(ranked)]


def _order_of_kind(same: Sequence[Setting]) -> tuple[int, int]:
    """Return a key that sorts groups of settings by how their scores were measured: final evaluations first.

    `same` are the settings of one group, whose scores were measured in the same way. Of groups with the same source of
    scores the one with more runs comes first.
    """
    found = {record.measure for setting in same for record in setting.records}
    measure = min((place for place, kind in enumerate(MEASURES) if kind in found), default=len(MEASURES))
    return measure, -sum(len(setting.records) for setting in same)


def _each_seed_once(runs: Sequence[Record]) -> tuple[list[Record], tuple[Record, ...]]:
    """Return the runs of one setting in two groups: one run per seed, and the others, which repeat a seed.

    Of several runs with one seed the longest is chosen. A run with an unknown seed is in the first group.
    """
    chosen: dict[str, Record] = {}
    for place, record in enumerate(runs):
        seed = value_text(record.config[SEED]) if SEED in record.config else f"unknown {place}"
        if seed not in chosen or _progress(record) > _progress(chosen[seed]):
            chosen[seed] = record
    kept = {id(record) for record in chosen.values()}
    return [one for one in runs if id(one) in kept], tuple(one for one in runs if id(one) not in kept)


def _progress(record: Record) -> tuple[float, bool]:
    """Return a key that is larger for a longer run: its environment steps, and whether it has a final evaluation."""
    steps = record.last("env_steps")
    return (steps if math.isfinite(steps) else -1.0, bool(record.evaluation))


def _with_kinds(settings: Sequence[Setting]) -> list[Setting]:
    """Return the settings of one environment with `kind` set, a text on how their scores were measured.

    The text, such as "final evaluation, eval.max_steps = 500", has the source of the score, the number of steps
    trained, and options of evaluations and limits of episodes, each only if the settings differ in it. So it is "" in
    all settings if their scores can be compared.
    """
    measured = [measure_of(setting) for setting in settings]
    known = [text for text in measured if text]
    usual = max(known, key=known.count, default="")  # a setting without any score is ranked last among these
    measured = [text or usual for text in measured]
    firsts = [setting.records[0] for setting in settings]
    rows = {path: values for path, values in setting_differences(firsts).items() if _compared(path)}
    kinds = [
        ", ".join(
            ([measured[i]] if len(set(measured)) > 1 else [])
            + [f"{path} = {value_text(values[i])}" for path, values in rows.items()]
        )
        for i in range(len(settings))
    ]
    return [setting._replace(kind=kind) for setting, kind in zip(settings, kinds, strict=True)]


def measure_of(setting: Setting) -> str:
    """Return how the scores of a setting were measured, in words, such as "final evaluation"; "" if it has no score."""
    found = {record.measure for record in setting.records}
    return " or ".join(kind for kind in MEASURES if kind in found)


def _compared(path: str) -> bool:
    """Return True if the scores of runs that differ in the option `path` cannot be compared.

    The options are the number of steps trained, limits of episodes, and options of evaluations that change what a score
    measures.
    """
    words = path.split(".")
    limit = words[0] == "env_params" and words[-1] in LIMITS
    return path == "total_steps" or path.startswith(MEASURED) or limit


def by_env(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """Return the settings grouped by the name of their environment, as returns on different ones cannot be compared."""
    found: dict[str, list[Setting]] = {}
    for setting in settings:
        found.setdefault(setting.env, []).append(setting)
    return found


def by_kind(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """Return settings of one environment grouped by `kind`, a text on how their scores were measured.

    Only scores of one group can be compared.
    """
    found: dict[str, list[Setting]] = {}
    for setting in settings:
        found.setdefault(setting.kind, []).append(setting)
    return found


def notes_on(settings: Sequence[Setting]) -> list[str]:
    """Return sentences on runs that repeat a seed, and on scores that cannot be compared; [] if there are none."""
    notes = [_repeated(setting, record) for setting in settings for record in setting.repeats]
    more = [f"{len(notes) - NOTES} more runs repeat a seed and are not counted."] if len(notes) > NOTES else []
    kinds = [by_kind(own) for own in by_env(settings).values()]
    if any(len(found) > 1 for found in kinds):
        apart = "; ".join(dict.fromkeys(kind for found in kinds if len(found) > 1 for kind in found))
        more += [f"Scores of different kinds cannot be compared and are ranked apart: {apart}."]
    mixed = [setting for setting in settings if len({x.measure for x in setting.records if x.measure}) > 1]
    if mixed:
        sources = [kind for kind in MEASURES if any(kind == x.measure for one in mixed for x in one.records)]
        names = listed([setting.label for setting in mixed[:NOTES]])
        more += [
            f"The score of {names} mixes seeds whose scores were measured in different ways: {', '.join(sources)}."
        ]
    return notes[:NOTES] + more + identical(settings)


# Columns of time and memory, which differ between repetitions of one run
UNEQUAL = ("seconds", "steps_per_second", "compile_seconds", "iteration_ms", "collect_ms", "update_ms", "memory_mb")


def identical(settings: Sequence[Setting]) -> list[str]:
    """Return a sentence on settings that trained identically, to the last digit of all rows; [] if there are none.

    They have the same seeds, scores and rows: the options in which they differ had no effect.
    """
    groups: dict[tuple[Any, ...], list[Setting]] = {}
    for setting in settings:
        rows = [_trace(record) for record in setting.records]
        if all(rows):
            groups.setdefault((setting.env, tuple(sorted(rows))), []).append(setting)
    same = [group for group in groups.values() if len(group) > 1]
    found = []
    for group in same[:NOTES]:
        differing = setting_differences([one.records[0] for one in group])
        paths = [path for path in differing if matters(path)]
        named = [one.label for one in group[:NOTES]] + ([f"{len(group) - NOTES} more"] if group[NOTES:] else [])
        found.append(
            f"Settings {listed(named)} trained identically, to the last digit: {listed(paths[:NOTES])} had no effect."
        )
    return found


def _trace(record: Record) -> tuple[str, ...]:
    """Return a fingerprint of a run: its seed, its final return and a hash of its log rows.

    Runs that trained identically have the same one; columns of time and memory are left out. It is () for a run of less
    than two rows, which says too little.
    """
    swept = {path for path in record.config if path in record.columns}  # values that a search changes
    rows = {name: x.tobytes() for name, x in record.columns.items() if name not in UNEQUAL and name not in swept}
    if len(record.columns.get("env_steps", ())) < 2 or len(rows) < 3:
        return ()
    digest = hashlib.sha256(
        b"".join(name.encode(errors="backslashreplace") + rows[name] for name in sorted(rows))
    ).hexdigest()
    return value_text(record.config.get(SEED)), repr(record.final_return), digest


NOTES = 8  # maximum number of sentences of one sort


def _repeated(setting: Setting, record: Record) -> str:
    """Return a sentence that says which run of `setting` the run `record` repeats: one with equal options and seed.

    If the final returns of the two runs differ, the sentence has both.
    """
    seed = record.config.get(SEED)
    original = next(one for one in setting.records if one.config.get(SEED) == seed)
    text = f"{_run_name(record)} has options and seed of {_run_name(original)}: the seed counts once, with the latter"
    if record.final_return == original.final_return or not math.isfinite(record.final_return):
        return f"{text}."
    return f"{text} ({number_text(original.final_return)}; not counted: {number_text(record.final_return)})."


def _run_name(record: Record) -> str:
    return str(record.path or record.name)


def setting_differences(records: Sequence[Record]) -> dict[str, list[Any]]:
    """Return the options that are not equal in all records: by dotted path, the value in each record, or "not set"."""
    found = [record.config for record in records]
    paths = dict.fromkeys(path for config in found for path in config)
    values = {path: [config.get(path, MISSING) for config in found] for path in paths}
    return {path: row for path, row in values.items() if any(value != row[0] for value in row)}


class ChangedOptions(NamedTuple):
    """Options of a run that differ from the defaults, and where these defaults come from, in words."""

    options: dict[str, tuple[Any, Any]]  # (value, default) by dotted path; the default of an option without one is None
    of: str  # "preset X", or the kind of environment


def changed(record: Record) -> ChangedOptions:
    """Return the options in which a run differs from what `ppax train ENV` would have used without further options.

    Those defaults are the settings of the run's preset, or of the kind of its environment; for all other options the
    defaults of their fields. The words by which run files write None count as None: "none" and, for some options, "all"
    or "same".
    """
    known = {option.path: option for option in options_of_run(record)}
    begun = recorded_defaults(record.config, {path: _as_written(option.default) for path, option in known.items()})
    defaults = begun.config
    words = {path: (None, NONE, option.none) for path, option in known.items()}
    own = {
        path: tuple(NONE if x in words.get(path, (None,)) else _as_written(x) for x in (value, defaults.get(path)))
        for path, value in record.config.items()
    }
    pairs = {path: (value, default if path in defaults else None) for path, (value, default) in own.items()}
    return ChangedOptions({path: pair for path, pair in pairs.items() if pair[0] != pair[1]}, begun.name)


def options_of_run(record: Record) -> list[Option]:
    """Return all options that a run has, which depend on the parts (swappable objects of the agent) in its run file.

    Parts of the user's own are not imported: the default parts are taken in their place.
    """
    try:
        return list(configs.options(configs.plain(record.tables)))
    except ConfigError:
        return list(configs.options({}))


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return a short name for each dotted path: as many of its last words as it takes to tell the paths apart.

    An option that chooses a part, such as "agent.loss.part", is called without ".part". Names of options that are not
    in a table `agent` have at least two words, because several tables have an option `every`.
    """
    words = {path: path.removesuffix(".part").split(".") for path in paths}
    names = {}
    for path, own in words.items():
        count = 1 if "agent" in own else 2
        while count < len(own) and any(x[-count:] == own[-count:] for other, x in words.items() if other != path):
            count += 1
        names[path] = ".".join(own[-count:])
    return names


def labels_of(firsts: Sequence[Record], whole: bool = False) -> list[str]:
    """Return a label for each setting, made from the options in which the settings differ.

    `firsts` are the first runs of the settings. A label has the values of the few options that tell most settings
    apart, and the number of further ones; if `whole`, it has the values of all.
    """
    rows = {path: values for path, values in setting_differences(firsts).items() if matters(path)}
    rows = {path: values for path, values in rows.items() if not _explained(path, rows)}
    if not rows and whole:
        return [""] * len(firsts)
    if not rows:
        return _distinct([shortened(record.env) for record in firsts], firsts)
    names, kept, labels = short_names(list(rows)), list(rows) if whole else _telling(rows), []
    for i in range(len(firsts)):
        parts = {
            path: value_text(values[i]) if path == "env" else f"{names[path]} = {value_text(values[i])}"
            for path, values in rows.items()
            if not (values[i] == MISSING and _of_parts(path, rows))
        }
        named = [shortened(part) for path, part in parts.items() if path in kept]
        more = [f"{len(parts) - len(named)} more"] if len(parts) > len(named) else []
        labels.append(", ".join(named + more))
    return _distinct(labels, firsts)


def _telling(rows: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return the paths of the options to write in the labels of settings: those that tell the most settings apart.

    There are NAMED of them, and up to MOST_NAMED if labels would be equal otherwise. `rows` has the options that
    differ, by path, with their value in each setting.
    """
    texts = {path: [repr(value) for value in values] for path, values in rows.items()}
    kept: list[str] = []
    most = len(set(zip(*texts.values(), strict=True)))

    def apart(path: str) -> int:
        return len(set(zip(*(texts[one] for one in [*kept, path]), strict=True)))

    while len(kept) < min(len(rows), MOST_NAMED):
        if len(kept) >= NAMED and len(set(zip(*(texts[one] for one in kept), strict=True))) == most:
            break
        kept.append(max((path for path in texts if path not in kept), key=apart))
    return kept


def _distinct(labels: list[str], firsts: Sequence[Record]) -> list[str]:
    """Return the labels of settings, no two alike: equal ones get the name of their first run, then a number."""
    named = [
        f"{label} ({one.name})" if labels.count(label) > 1 else label for label, one in zip(labels, firsts, strict=True)
    ]
    return [
        f"{label} #{named[:place].count(label) + 1}" if named.count(label) > 1 else label
        for place, label in enumerate(named)
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


def grouped_key(config: Mapping[str, Any]) -> str:
    """Return a text that is equal for two configurations exactly if their runs belong to the same setting."""
    return json.dumps({path: value for path, value in config.items() if matters(path)}, sort_keys=True, default=str)


def matters(path: str) -> bool:
    """Return whether runs that differ in the option `path` are different settings.

    That is not so for the seed, for logging, and for how often a run is evaluated.
    """
    return path != SEED and (path.startswith(MEASURED) or not path.startswith(OTHER))


def _as_written(value: Any) -> Any:
    """Return a value in the form in which it is read from a run file: a tuple as a list, None as the text NONE.

    So values of Python, such as defaults, can be compared with those of run files.
    """
    return NONE if value is None else list(value) if isinstance(value, tuple) else value
