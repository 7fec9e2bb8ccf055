"""Report of recorded runs as an HTML file, and their comparison, from run directories or results of `fit`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ppax.core.types import ConfigError
from ppax.reports import comparison
from ppax.reports.comparison import Comparison
from ppax.reports.curves import CONFIDENCE, checked_band
from ppax.reports.films import film_of
from ppax.reports.long_table import long_table
from ppax.reports.page import page
from ppax.run import records
from ppax.run.records import Record
from ppax.run.result import TrainedRun
from ppax.storage import safe_files
from ppax.storage.paths import require_place, to_path

if TYPE_CHECKING:
    from pandas import DataFrame

RunLike = str | Path | TrainedRun  # run directory, or result of `fit`


def report(
    runs: RunLike | Sequence[RunLike],
    path: str | Path = "report.html",
    video: bool = True,
    band: str = CONFIDENCE,
) -> Path:
    """Write the report of one run or several as one HTML file, which loads nothing from the network; return its path.

    `runs` are run directories, directories of sweeps (all their members) or results of `fit`; a run may still be going
    on. Runs that differ by their seed alone are one setting with one curve: the interquartile mean of the returns with
    its 95 % bootstrap interval, or with `band="range"` their mean with their whole range. Settings are ranked by that
    interquartile mean. With `video`, an episode of the run with the highest return is rendered, where environment and
    checkpoint allow it. Raises ConfigError for a directory without a run.
    """
    path, given = to_path(path, "path"), _listed(runs)
    require_place(path, "report.html")
    checked_band(band)
    found = records_of(given)
    film = None
    if video:
        best = int(np.argmax(np.nan_to_num([record.final_return for record in found], nan=-np.inf)))
        film = film_of(given[best], found[best].name)
    text = page(found, film, time.strftime("%Y-%m-%d %H:%M"), band)
    safe_files.write(path, text.encode(errors="replace"))
    return path


def compare(runs: Sequence[RunLike]) -> Comparison:
    """Compare runs: options in which they differ, evaluation, last return, steps, time, and the ranking of settings.

    `runs` as in `report`. `print` shows it as a table, the best run first.
    """
    return comparison.of_records(records_of(runs))


def frame(runs: RunLike | Sequence[RunLike]) -> DataFrame:
    """Log rows of runs as one pandas DataFrame: a row per run and log row.

    `runs` as in `report`; the directory of a sweep gives all its members. Columns: run, env, setting, seed, each option
    in which the runs differ, and every metric, as `ppax compare --csv` writes them. Raises ConfigError for a directory
    without a run, ImportError without pandas.
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError('ppax.frame needs pandas: pip install "ppax[pandas]"') from error
    return pandas.DataFrame(long_table(records_of(runs)))


def records_of(runs: RunLike | Sequence[RunLike]) -> list[Record]:
    """Records of run directories and of results of `fit`."""
    return [run.record() if isinstance(run, TrainedRun) else records.read(to_path(run, "run")) for run in _listed(runs)]


def _listed(runs: RunLike | Sequence[RunLike]) -> list[RunLike]:
    """Runs one by one; a directory of a sweep stands for its members."""
    listed: list[RunLike] = [runs] if isinstance(runs, str | Path | TrainedRun) else list(runs)
    if not listed:
        raise ConfigError("runs = []: must be at least one run directory or result of fit")
    return [one for run in listed for one in ([run] if isinstance(run, TrainedRun) else records.members_of(run))]
