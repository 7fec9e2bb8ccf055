"""Tables of scores, as text for the terminal and in Markdown for the documentation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ppax.core.types import printable
from ppax.reports import comparison
from ppax.scores.results import FAILED, Score
from ppax.scores.scoring import RowOutcome

RED, PLAIN = "\033[31m", "\033[0m"
HEAD = ("row", "target", "IQM [95 %]", "mean +- std", "min", "random", "threshold", "reference", "steps", "time", "")


def terminal_table(outcomes: Sequence[RowOutcome], color: bool, width: int | None = None) -> str:
    """Return a table of all outcomes as aligned text, in blocks of at most `width` characters (None: any width).

    Rows that fall short are red if `color`.
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
    """Return the status of a score in words, with the reason of a failure; a negative control "fails as it must"."""
    if score.status == FAILED:
        return f"FAILED: {score.reason}"
    return score.status if score.row.at_most is None else "fails as it must"


def markdown(scores: Sequence[Score], picture: Callable[[Score], str]) -> list[str]:
    """Return the lines of a Markdown table of scores, none of negative controls.

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
    """Return a number as text with four digits; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def duration(seconds: float) -> str:
    """Return a time in seconds as text, in minutes from two minutes on."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
