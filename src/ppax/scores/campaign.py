"""Rows of a suite, one after the other, with a file each: an interrupted campaign continues where it was."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ppax.devices.footprint import NotEnoughMemory
from ppax.envs import EnvError
from ppax.run.result import NumericalError
from ppax.scores import results
from ppax.scores.curves import draw
from ppax.scores.results import FAILED, Score
from ppax.scores.scoring import EPISODES, measure
from ppax.scores.suite import Row


class Outcome(NamedTuple):
    """Outcome of a row: its score, or the error that ended it."""

    row: Row
    score: Score | None
    error: str = ""

    @property
    def failed(self) -> bool:
        """The row falls short, its control learns, or it could not be measured."""
        return self.score is None or self.score.status == FAILED


def score_rows(
    rows: Sequence[Row],
    out: Path,
    seeds: int | None = None,
    episodes: int = EPISODES,
    say: Callable[[str], None] = lambda text: None,
) -> list[Outcome]:
    """Measure the rows that `out` has no complete result of; write results and learning curves there.

    A library that is missing, a numerical fault or an environment that fails ends its row only.
    """
    out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for row in rows:
        try:
            known = results.load(row, out)
            score = measure(row, seeds, episodes, known, partial(results.save, out=out), say)
        except (ImportError, NumericalError, EnvError, NotEnoughMemory) as error:
            outcomes.append(Outcome(row, None, str(error)))
            say(f"{row.name}: {error}")
            continue
        outcomes.append(Outcome(row, score))
        _draw(score, out)
        say(f"{row.name}: IQM {score.statistics.iqm:.4g}, {score.status}")
    return outcomes


def _draw(score: Score, out: Path) -> None:
    """Draw the learning curve of a row, unless it is a control; without matplotlib, warn."""
    if score.row.at_most is not None:
        return
    try:
        draw(score, out / f"{score.row.name}.png")
    except ImportError as error:
        warnings.warn(f"no learning curve of {score.row.name}: {error}", stacklevel=2)
