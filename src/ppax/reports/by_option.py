"""Effect of one option on the score: the score over the option's values, and differences between two of them."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ppax.core.types import ConfigError, printable
from ppax.reports.differences import BEST, Against
from ppax.reports.formatting import value_text
from ppax.reports.settings import (
    MISSING,
    SEED,
    Setting,
    by_env,
    grouped_key,
    labels_of,
    matters,
    measure_of,
    setting_differences,
    short_names,
)
from ppax.reports.statistics import difference_of, statistics_of
from ppax.run.records import Record


class Point(NamedTuple):
    """Scores at one value of an option, one for each seed, with their IQM and its 95 % bootstrap interval."""

    value: Any
    scores: list[float]  # one for each seed; NaN for a seed without a score
    iqm: float  # -inf where too many seeds have no score
    low: float  # NaN for one seed, and where a seed has no score
    high: float


class Series(NamedTuple):
    """Scores as a function of one option, at equal environment and other options: a point for each value, in order."""

    env: str
    label: str  # other options that set it apart, and what its scores measure where that differs; "" if it is alone
    measure: str  # what its scores measure
    points: list[Point]


def option_named(name: str, records: Sequence[Record]) -> str:
    """Return the dotted path of the option called `name`: its path, or the end of it, as "loss.clip_eps" or "clip_eps".

    The end is one or more of the names between dots; `-` stands for `_`. An option that chooses a part, such as
    "agent.loss.part", may also be named without ".part". If several options have this name, the one that differs
    between the runs is returned. Raises ConfigError, which tells the nearest option, for an unknown or ambiguous name.
    """
    differ = [path for path in setting_differences(records) if matters(path)]
    known = list(dict.fromkeys([*differ, *(path for record in records for path in record.config if matters(path))]))
    wanted = name.strip().lstrip("-").replace("-", "_")
    for found in (differ, known):
        same = [path for path in found if wanted in (path, path.removesuffix(".part"))]
        same = same or [path for path in found if f".{path.removesuffix('.part')}".endswith(f".{wanted}")]
        if len(same) == 1 or (same and found is differ and wanted in same):
            return same[0]
        if same:
            raise ConfigError(f"option {name!r}: several options have this name: {printable(', '.join(same))}")
    shorts = {short: path for path, short in short_names(known).items()} | {path: path for path in known}
    near = shorts[difflib.get_close_matches(wanted, shorts, n=1, cutoff=0.0)[0]] if shorts else "none"
    listed = printable(", ".join(differ)) or "none"
    raise ConfigError(
        f"option {name!r}: the runs have no such option; nearest: {printable(near)}; those that differ: {listed}"
    )


def ordered(values: Sequence[Any]) -> list[Any]:
    """Return the values without repetitions: sorted if all are numbers, else in the order of their first occurrence."""
    different = list({repr(value): value for value in values}.values())
    return sorted(different) if all(type(value) in (int, float) for value in different) else different


def series_of(settings: Sequence[Setting], path: str) -> list[Series]:
    """Return the scores as a function of the option `path`: one series per combination of all other options.

    A setting is a group of runs that differ by their seed only. Settings without the option are left out, and scores of
    different measurements are in different series. The result is sorted by environment, then by the series' label.
    """
    found = []
    for env, own in by_env([one for one in settings if path in one.records[0].config]).items():
        groups: dict[tuple[str, str], list[Setting]] = {}
        for setting in own:
            groups.setdefault((_rest(setting, [path]), measure_of(setting)), []).append(setting)
        firsts = {rest: _stripped(same[0].records[0], [path]) for (rest, _), same in groups.items()}
        labels = dict(zip(firsts, labels_of(list(firsts.values()), whole=True), strict=True))
        measures = {measure for _, measure in groups}
        for (rest, measure), same in groups.items():
            parts = [part for part in (labels[rest], measure if len(measures) > 1 else "") if part]
            values = ordered([one.records[0].config[path] for one in same])
            points = [_point(one, path) for value in values for one in same if one.records[0].config[path] == value]
            found.append(Series(env, ", ".join(parts), measure, points))
    return sorted(found, key=lambda one: (list(by_env(settings)).index(one.env), natural_order(one.label)))


def natural_order(label: str) -> list[tuple[bool, float, str]]:
    """Return a key for sorting labels in which numbers are compared as numbers: "x = 2" comes before "x = 10"."""
    words = label.replace(",", " ").split()
    return [(True, float(word), "") if _is_number(word) else (False, 0.0, word) for word in words]


def _is_number(word: str) -> bool:
    try:
        return math.isfinite(float(word))
    except ValueError:
        return False


def _point(setting: Setting, path: str) -> Point:
    s = statistics_of(setting.scores)
    return Point(setting.records[0].config[path], setting.scores, setting.standing.iqm, s.low, s.high)


def _rest(setting: Setting, paths: Sequence[str]) -> str:
    """Return a text that is equal for settings which are equal in all options but `paths`."""
    return grouped_key({path: value for path, value in setting.records[0].config.items() if path not in paths})


def _stripped(record: Record, paths: Sequence[str]) -> Record:
    """Return the record of a run without the options `paths`."""
    tables: Any = record.tables
    for path in paths:
        tables = _without(tables, path.split("."))
    return record._replace(tables=tables)


def _without(table: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    kept = {}
    for name, value in table.items():
        if name != words[0]:
            kept[name] = value
        elif words[1:] and isinstance(value, Mapping):
            kept[name] = _without(value, words[1:])
    return kept


def differences_by(settings: Sequence[Setting], path: str, baseline: str | None = None) -> list[Against]:
    """Return the differences in score between the values of the option `path`; each value is called a method here.

    On each environment, two methods are compared at each combination of the other options for which runs of both exist
    with comparable scores; the best setting of one is also compared with the best setting of the other. One of the two
    methods is always the value `baseline` (as text); if it is None, the method with the best setting on the
    environment. If a method is a part with options that the other one lacks, these options need not be equal. Raises
    ConfigError if the option has only one value, and for an unknown `baseline`.
    """
    methods = ordered([one.records[0].config.get(path, MISSING) for one in settings])
    texts = _texts(methods)
    if len(methods) < 2:
        raise ConfigError(f"by = {path!r}: must be an option with several values; all runs have {', '.join(texts)}")
    if baseline is not None and baseline not in texts:
        near = difflib.get_close_matches(baseline, texts, n=1, cutoff=0.0)[0]
        listed = printable(", ".join(texts))
        raise ConfigError(f"baseline = {baseline!r}: must be a value of {path}: {listed}; nearest: {near}")
    found = []
    for env, own in by_env(settings).items():
        present = list(dict.fromkeys(repr(one.records[0].config.get(path, MISSING)) for one in own))
        best = next(text for text in texts if repr(texts[text]) == present[0])
        if baseline is not None and repr(texts[baseline]) not in present:
            continue
        for text, value in texts.items():
            if repr(value) in present and text != (best if baseline is None else baseline):
                pair = (best, text) if baseline is None else (text, baseline)
                found += _between(env, own, path, texts[pair[0]], texts[pair[1]])
    return found


def _texts(values: Sequence[Any]) -> dict[str, Any]:
    """Return the values by their texts in reports; those whose short texts are equal by their full texts."""
    short = [value_text(value) for value in values]
    return {text if short.count(text) == 1 else str(value): value for text, value in zip(short, values, strict=True)}


def _between(env: str, settings: Sequence[Setting], path: str, first: Any, other: Any) -> list[Against]:
    """Return the differences in score of the runs in which option `path` is `first` from those in which it is `other`.

    There is one for each pair of settings that are equal in all other options, and one between the best setting of each
    value.
    """
    sides = [[one for one in settings if one.records[0].config.get(path, MISSING) == value] for value in (first, other)]
    rows = setting_differences([one.records[0] for side in sides for one in side])
    table = f"{path.removesuffix('part')}" if path.endswith(".part") else "\0"
    own = [path, *(name for name, values in rows.items() if name.startswith(table) and MISSING in values)]
    pairs = [
        (one, two)
        for one in sides[0]
        for two in sides[1]
        if one.kind == two.kind and _rest(one, own) == _rest(two, own)
    ]
    several = len({_rest(one, own) for one, _ in pairs}) < len(pairs)  # a method has options of its own that differ
    firsts = [_stripped(one.records[0], own) for one, _ in pairs]
    labels = [_whole_label(one, two) for one, two in pairs] if several else labels_of(firsts, whole=True)
    label, than = (f"{short_names([path])[path]} = {value_text(value)}" for value in (first, other))
    found = [
        _difference(env, one, two, label, than, "all" if len(pairs) == 1 else at)
        for (one, two), at in zip(pairs, labels, strict=True)
    ]
    best = [
        (one, two)
        for one in sides[0][:1]
        for two in [two for two in sides[1] if two.kind == one.kind][:1]
        if len(sides[0]) > 1 or len(sides[1]) > 1
    ]
    for one, two in best:
        stripped = [_stripped(side.records[0], own) for side in (one, two)]
        ats = list(dict.fromkeys(filter(None, labels_of(stripped, whole=True)))) or [_common_label(one, pairs, labels)]
        found.append(_difference(env, one, two, label, than, f"{BEST}: {' / '.join(ats)}"))
    return found


def _common_label(one: Setting, pairs: Sequence[tuple[Setting, Setting]], labels: Sequence[str]) -> str:
    """Return the text in `labels` for the pair in `pairs` that begins with setting `one`; if none does, `one.label`.

    `labels` has a text for each pair: its options in which it differs from the other pairs. The text returned says at
    which options the best settings of two methods were found.
    """
    return next((label for (first, _), label in zip(pairs, labels, strict=True) if first is one), one.label)


def _whole_label(one: Setting, two: Setting) -> str:
    return f"{one.label} / {two.label}"


def _difference(env: str, one: Setting, two: Setting, label: str, than: str, at: str) -> Against:
    """Return the difference in score of setting `one` from setting `two`.

    If both have the same seeds, the bootstrap resamples seeds in pairs. `label` and `than` name the two, and `at` says
    in which other options they are equal.
    """
    by_seed = [{value_text(record.config.get(SEED)): record for record in setting.records} for setting in (one, two)]
    paired = by_seed[0].keys() == by_seed[1].keys() and len(by_seed[0]) == len(one.records) == len(two.records)
    scores, others = one.scores, two.scores
    if paired:
        scores, others = ([own[seed].final_return for seed in by_seed[0]] for own in by_seed)
    seeds = (len(scores), len(others))
    return Against(env, label, than, seeds, difference_of(scores, others, paired), at, paired)
