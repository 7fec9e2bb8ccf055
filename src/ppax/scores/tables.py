"""Tables of scores, as text for the terminal and in Markdown, and the last published scores."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from ppax import config
from ppax.core.types import printable
from ppax.reports import comparison
from ppax.scores.results import FAILED, Score, fingerprint, load, row_settings, written_settings
from ppax.scores.scoring import SEEDS, RowOutcome
from ppax.scores.suite import FILES, every, read_suite

# Last published scores of environments and presets, from recorded.toml, which `python docs/generate.py` writes.

RECORDED = Path(__file__).with_name("recorded.toml")
HEADER = "# Written by `python docs/generate.py` from the results in benchmarks/results/scores.\n"


class PresetScore(NamedTuple):
    """Published score of an environment or a preset, with the settings of `ppax train`.

    `iqm` is over `seeds` seeds, and `low` and `high` are its 95 % confidence interval. `steps` and `seconds` are those
    of the training of one seed.
    """

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
    """Return the complete scores in `folder` of the suite's rows and of their negative controls.

    A score is complete if it has all seeds of the protocol, measured with the present settings of the row.
    """
    found = (
        load(row, folder)
        for row in every([*read_suite(), *(row for path in FILES.values() for row in read_suite(path))], True)
    )
    return [score for score in found if score is not None and _is_complete(score, folder)]


def _is_complete(score: Score, folder: Path) -> bool:
    """Return True if a score has all seeds of the protocol and its row's present settings, in any version of ppax."""
    row, version = score.row, str(score.about.get("ppax"))
    if len(score.seeds) < (row.seeds or SEEDS[score.backend]):
        return False
    try:
        return score.fingerprint == fingerprint(row, score.episodes, version)
    except ImportError:  # without the environment's library its settings are unknown: the row's own are compared
        return written_settings(row, folder) == row_settings(row)


def scores_to_toml(scores: Iterable[Score]) -> str:
    """Return the text of recorded.toml, the file of published scores, with one entry for each target.

    Left out are scores of negative controls, and of rows with other settings than the target's. Of several scores of a
    target, one that was trained for the target's usual number of steps is preferred.
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
    """Return a score in the form in which it is published, with rounded numbers."""
    s, seconds = score.statistics, round(score.seconds / len(score.seeds), 1)
    iqm, low, high = (float(f"{x:.6g}") for x in (s.iqm, s.low, s.high))
    return PresetScore(iqm, low, high, len(score.seeds), score.env_steps, seconds, str(score.about.get("time"))[:10])


RED, PLAIN = "\033[31m", "\033[0m"
HEAD = ("row", "target", "IQM [95 %]", "mean +- std", "min", "random", "threshold", "reference", "steps", "time", "")


def terminal_table(outcomes: Sequence[RowOutcome], color: bool, width: int | None = None) -> str:
    """Return a table of all outcomes as aligned text; columns beyond `width` characters follow in further tables below.

    Each further table repeats the first column; `width` None stands for any width. With `color`, rows that miss their
    threshold or could not be measured are red.
    """
    rows = [HEAD, *(tuple(map(printable, _cells(outcome))) for outcome in outcomes)]
    red = [False, *(color and outcome.failed for outcome in outcomes)]
    blocks = comparison.blocks(list(zip(*rows, strict=True)), HEAD, HEAD[0], width)
    return "\n\n".join(
        "\n".join(f"{RED}{line}{PLAIN}" if is_red else line for line, is_red in zip(lines, red, strict=True))
        for lines in blocks
    )


def _cells(outcome: RowOutcome) -> tuple[str, ...]:
    row, score = outcome.row, outcome.score
    if score is None:
        return (row.name, row.target, *[""] * (len(HEAD) - 3), f"not measured: {outcome.error}")
    s, bound = score.statistics, row.threshold if row.at_most is None else row.at_most
    sign = "" if bound is None else "<= " if row.at_most is not None else ">= "
    return (
        row.name,
        row.target,
        f"{number_cell(s.iqm)} [{number_cell(s.low)}, {number_cell(s.high)}]",
        f"{number_cell(s.mean)} +- {number_cell(s.std)}",
        number_cell(s.minimum),
        number_cell(score.random),
        f"{sign}{number_cell(bound)}",
        number_cell(row.reference),
        f"{score.env_steps:,}",
        duration(score.seconds),
        status(score),
    )


def status(score: Score) -> str:
    """Return the status of a score in words, with the reason of a failure; a good control "fails as it must".

    A negative control is a row of the suite whose score must stay low.
    """
    if score.status == FAILED:
        return f"FAILED: {score.reason}"
    return score.status if score.row.at_most is None else "fails as it must"


def markdown(scores: Sequence[Score], picture: Callable[[Score], str]) -> list[str]:
    """Return the lines of a Markdown table of scores; for those of negative controls, see `controls_markdown`.

    `picture` gives the path of a score's learning curve.
    """
    lines = ["| " + " | ".join(HEAD).replace("+-", "±") + " |", "|" + "---|" * len(HEAD)]
    for score in scores:
        cells = list(_cells(RowOutcome(score.row, score)))
        cells[0] = f"[{score.row.name}]({picture(score)})"
        cells[2] = f"**{number_cell(score.statistics.iqm)}** {cells[2].partition(' ')[2]}"
        cells[3] = cells[3].replace("+-", "±")
        cells[6] = f"{cells[6].removeprefix('>= ')}{'' if score.row.firm else ' (prov.)'}"
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def controls_markdown(scores: Sequence[Score]) -> list[str]:
    """Return the lines of a Markdown table of the scores of negative controls, which must stay low."""
    lines = ["| control | IQM | at most | steps | |", "|---|---|---|---|---|"]
    for score in scores:
        bound = number_cell(score.row.at_most)
        iqm, steps = number_cell(score.statistics.iqm), f"{score.env_steps:,}"
        lines.append(f"| {score.row.name} | {iqm} | {bound} | {steps} | {status(score)} |")
    return lines


def number_cell(value: float | None) -> str:
    """Return a number as text: four significant digits, or a whole number from 1000 on; "-" for None and NaN."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Return a time in seconds as text, in minutes from two minutes on."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
