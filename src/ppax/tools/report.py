"""Report of recorded runs as an HTML file, and their comparison, from run directories or results of `fit`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ppax.reports import comparison, records, summary
from ppax.reports.comparison import Comparison
from ppax.reports.page import page
from ppax.reports.records import Record
from ppax.run.result import TrainedRun
from ppax.storage import safe_files
from ppax.storage.paths import require_place, to_path
from ppax.tools.films import film_of
from ppax.types import ConfigError

RunLike = str | Path | TrainedRun  # run directory, or result of `fit`


def report(runs: RunLike | Sequence[RunLike], path: str | Path = "report.html", video: bool = True) -> Path:
    """Write the report of one run or several as one HTML file, which loads nothing from the network; return its path.

    `runs` are run directories or results of `fit`; a run may still be going on. Runs that differ by their seed alone
    share a curve: their mean with their whole range. With `video`, an episode of the run with the highest return is
    rendered, where environment and checkpoint allow it. Raises ConfigError for a directory without a run.
    """
    path, given = to_path(path, "path"), _listed(runs)
    require_place(path, "report.html")
    found = records_of(given)
    film = None
    if video:
        returns = np.nan_to_num([summary.final_return(record) for record in found], nan=-np.inf)
        best = int(np.argmax(returns))
        film = film_of(given[best], found[best].name)
    text = page(found, film, time.strftime("%Y-%m-%d %H:%M"))
    safe_files.write(path, text.encode(errors="replace"))
    return path


def compare(runs: Sequence[RunLike]) -> Comparison:
    """Compare runs: options in which they differ, evaluation, last return, steps, time. `print` shows it as a table."""
    return comparison.of_records(records_of(runs))


def records_of(runs: RunLike | Sequence[RunLike]) -> list[Record]:
    """Records of run directories and of results of `fit`."""
    return [run.record() if isinstance(run, TrainedRun) else records.read(to_path(run, "run")) for run in _listed(runs)]


def _listed(runs: RunLike | Sequence[RunLike]) -> list[RunLike]:
    listed: list[RunLike] = [runs] if isinstance(runs, str | Path | TrainedRun) else list(runs)
    if not listed:
        raise ConfigError("runs = []: must be at least one run directory or result of fit")
    return listed
