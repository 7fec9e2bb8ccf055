"""Last published scores of environments and presets, from recorded.toml, which `python docs/generate.py` writes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from ppax import config
from ppax.scores.results import Score, fingerprint, load
from ppax.scores.scoring import SEEDS
from ppax.scores.suite import every, read_suite
from ppax.scores.tables import duration, number_cell

RECORDED = Path(__file__).with_name("recorded.toml")
HEADER = "# Written by `python docs/generate.py` from the results in benchmarks/results/scores.\n"


class PresetScore(NamedTuple):
    """Published score of an environment or a preset, with the settings of `ppax train`."""

    iqm: float
    low: float  # 95 % confidence interval of the IQM
    high: float
    seeds: int
    steps: int  # of one seed
    seconds: float  # training of one seed, compilation included
    date: str

    def __str__(self) -> str:
        seeds = f"IQM of {self.seeds} seeds, 95 % interval {number_cell(self.low)} to {number_cell(self.high)}"
        return f"{number_cell(self.iqm)} ({seeds}) after {self.steps:,} steps, {duration(self.seconds)} a seed"


def presets() -> dict[str, PresetScore | None]:
    """Return the published score of each preset by its name, None where it was not measured."""
    recorded = scores_by_target()
    return {name: recorded.get(name) for name in config.presets()}


def scores_by_target() -> dict[str, PresetScore]:
    """Return the published scores by what `ppax train` takes: names of environments and presets."""
    recorded = tomllib.loads(RECORDED.read_text(encoding="utf-8"))
    return {name: PresetScore(**entry) for name, entry in recorded.items()}


def published(folder: Path) -> list[Score]:
    """Return the scores in `folder` of the suite's rows and of their negative controls, if they are complete.

    Complete are those with all seeds of the protocol, measured with the present settings of the row.
    """
    found = (load(row, folder) for row in every(read_suite(), True))
    return [score for score in found if score is not None and _is_complete(score)]


def _is_complete(score: Score) -> bool:
    """Return whether a score has all seeds of the protocol and its row's present settings, in any version of ppax."""
    version = str(score.about.get("ppax"))
    return len(score.seeds) >= SEEDS[score.backend] and score.fingerprint == fingerprint(
        score.row, score.episodes, version
    )


def scores_to_toml(scores: Iterable[Score]) -> str:
    """Return the text of recorded.toml: an entry for each target whose settings were measured unchanged.

    A score with the target's own budget is preferred to others.
    """
    tables: dict[str, dict[str, Any]] = {}
    for score in scores:
        target = score.row.target
        if score.row.at_most is not None or score.row.options:
            continue
        if score.row.steps in (None, _budget(target)) or target not in tables:
            tables[target] = _entry(score)._asdict()
    return HEADER + tomli_w.dumps(dict(sorted(tables.items())))


def _budget(target: str) -> int:
    """Return the number of steps for which `ppax train` trains a target."""
    return config.settings(config.begun(config.find(target))).total_steps


def _entry(score: Score) -> PresetScore:
    """Return the published form of a score, rounded."""
    s, seconds = score.statistics, round(score.seconds / len(score.seeds), 1)
    iqm, low, high = (float(f"{x:.6g}") for x in (s.iqm, s.low, s.high))
    return PresetScore(iqm, low, high, len(score.seeds), score.env_steps, seconds, str(score.about.get("time"))[:10])
