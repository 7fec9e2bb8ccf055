"""Record of a run for reports: metrics as columns, configuration, evaluation and end, from its directory or memory.

A run directory may come from a stranger: everything in it is read as data, with limits on sizes, and what is missing,
damaged or unknown is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppax import config as configs
from ppax.core import untrusted
from ppax.core.options import Config, flatten
from ppax.core.protocols import Row
from ppax.core.types import ConfigError
from ppax.loggers.files import METRICS, rows_until, thinned
from ppax.run import directory as run_dirs
from ppax.run.directory import MEMBERS, ROWS, RUN_FILE, STOPPED, TABLE_LIMIT
from ppax.storage.paths import to_path

FAULT = "fault"  # kind of the end of a run of which an iteration was not finite
# Metrics of learning curves, the better one first; the last one where no episode ended
EVALUATED, RETURN, REWARD = "eval_return", "episode_return", "reward_mean"
CURVES = (EVALUATED, RETURN, REWARD)
# Kinds of measurement behind a run's final return, the more trustworthy first
FINAL, DURING, TRAINING = "final evaluation", "last evaluation during training", "training episodes"
WHOLE = "mean return over training"  # score of records with `over_training`, and its kinds
WHOLE_EVALUATED, WHOLE_TRAINED = f"{WHOLE}, of evaluations", f"{WHOLE}, of training episodes"
# Sizes of values: a diverged run has larger ones, which are cut so that sums stay finite, and smaller ones are 0
LARGEST, SMALLEST = 1e100, 1e-100


class Record(NamedTuple):
    """Metrics, configuration, final evaluation and end of one run.

    With `over_training` the score of the run is its mean return over training, in place of the final return.
    """

    name: str
    path: Path | None  # run directory
    columns: dict[str, np.ndarray]  # [rows] each, by metric; NaN where a row has no number
    tables: Config  # options as the run file has them
    run_file: str  # text of the run file
    evaluation: dict[str, Any]  # evaluation.json; {} where there is none of the newest policy
    starts: list[dict[str, Any]]  # time, versions and hardware of each start
    stopped: dict[str, Any]  # stopped.json; {} while the run goes on or after it was killed
    over_training: bool = False  # the score of the run is its mean return over training, in place of the final return

    @property
    def config(self) -> dict[str, Any]:
        """Options of the run file by dotted path, such as "agent.learning_rate"; without empty tables."""
        return {path: value for path, value in flatten(self.tables) if value != {}}

    @property
    def env(self) -> str:
        """Name of the run's environment."""
        return str(self.config.get("env", "unknown environment"))

    def has(self, metric: str) -> bool:
        """Return True if a log row of the run has a finite number for `metric`."""
        return len(self.numbers(metric)) > 0

    def last(self, metric: str) -> float:
        """Return the last finite number of `metric` in the log rows; NaN where there is none."""
        values = self.numbers(metric)
        return float(values[-1]) if len(values) else math.nan

    def highest(self, metric: str) -> float:
        """Return the highest finite number of `metric` in the log rows; NaN where there is none."""
        return float(self.numbers(metric).max()) if self.has(metric) else math.nan

    def numbers(self, metric: str) -> np.ndarray:
        """Return an array of the finite values of `metric`, in the order of log rows; empty if there are none."""
        values = self.columns.get(metric, np.zeros(0))
        return values[np.isfinite(values)]

    def result(self, name: str) -> float:
        """Return the number called `name` in the final evaluation, such as "mean_return"; NaN where there is none."""
        value = self.evaluation.get(name, math.nan)
        return float(value) if _is_number(value) else math.nan

    def first(self, metric: str) -> float:
        """Return the first finite number of `metric` in the log rows; NaN where there is none."""
        values = self.numbers(metric)
        return float(values[0]) if len(values) else math.nan

    @property
    def untrained_return(self) -> float:
        """Mean return of the untrained policy, evaluated before the first iteration; NaN without such an evaluation."""
        rows = self.columns.get("iteration", np.zeros(0)) == 0
        values = self.columns[EVALUATED][rows] if EVALUATED in self.columns else np.zeros(0)
        return float(values[0]) if len(values) else math.nan

    @property
    def measure(self) -> str:
        """Text on what `final_return` is measured by, such as "final evaluation"; "" for a run without any number.

        It is FINAL, DURING (last evaluation during training) or TRAINING (training episodes); with `over_training` it
        is WHOLE_EVALUATED (all evaluations during training) or WHOLE_TRAINED (all training episodes).
        """
        if self.over_training:
            kind = WHOLE_EVALUATED if self.has(EVALUATED) else WHOLE_TRAINED
            return kind if math.isfinite(self.training_return) else ""
        if self.evaluation:
            return FINAL
        if self.stopped.get("kind") == FAULT:
            return ""
        return next((kind for kind, name in ((DURING, EVALUATED), (TRAINING, RETURN)) if self.has(name)), "")

    @property
    def final_return(self) -> float:
        """Mean return of the final evaluation, or of the last one in training, or in the last log row.

        The first of these that exists is taken; only log rows with a number count. NaN, which is no score, if no
        episode of the final evaluation has ended, or if the run failed because an iteration was not finite. With
        `over_training` it is `training_return`.
        """
        if self.over_training:
            return self.training_return
        if self.evaluation or self.stopped.get("kind") == FAULT:
            return self.result("mean_return")
        numbers = (self.last(EVALUATED), self.last(RETURN))
        return next((number for number in numbers if math.isfinite(number)), math.nan)

    @property
    def training_return(self) -> float:
        """Mean return over training: the area under the learning curve, divided by its environment steps.

        The curve is that of evaluations during training, without them that of training episodes, with straight lines
        between the log rows that have a number. NaN without such a row, and for a run that failed because an iteration
        was not finite.
        """
        metric = next((name for name in (EVALUATED, RETURN) if self.has(name)), "")
        if not metric or self.stopped.get("kind") == FAULT:
            return math.nan
        known = np.isfinite(self.columns[metric])
        steps, values = self.columns["env_steps"][known], self.columns[metric][known]
        span = float(steps[-1] - steps[0])
        if span <= 0.0:
            return float(values.mean())
        return float((np.diff(steps) * (values[1:] + values[:-1])).sum() / (2.0 * span))

    @property
    def steps_per_second(self) -> float:
        """Environment steps per second of training over the whole run, without compilation; NaN without log rows."""
        seconds = self.last("seconds")
        return self.last("env_steps") / seconds if seconds > 0 else math.nan

    @property
    def end(self) -> str:
        """Reason for the end of the run, in words; a text that says that no end is recorded, if there is none."""
        why = self.stopped.get("why")
        return why if isinstance(why, str) else "still running, or ended without a record of it"


def read(path: Path) -> Record:
    """Return the record of the run in the directory `path`, also while it trains; ConfigError if there is no run."""
    if not (path / RUN_FILE).is_file() and path.is_dir():
        inside = sorted(folder.name for folder in path.iterdir() if (folder / RUN_FILE).is_file())
        if inside:
            raise ConfigError(
                f"{path} is not a run directory: it has no {RUN_FILE}; nearest: {path / inside[0]}, "
                f"one of {len(inside)} runs in it"
            )
    tables = run_dirs.read_run_config(path)
    run_file = untrusted.read_text(path / RUN_FILE, untrusted.RUN_FILE_LIMIT)
    starts = [start for start in run_dirs.read_about(path).get("starts", []) if isinstance(start, dict)]
    columns = record_columns(thinned(rows_until(path / ROWS, 2**63)))
    evaluation, stopped = run_dirs.read_evaluation(path), untrusted.read_table(path / STOPPED, TABLE_LIMIT)
    name = path.name or path.resolve().name
    return Record(name, path, columns, tables, run_file, evaluation, starts, stopped)


def run_dirs_at(run: str | Path) -> list[Path]:
    """Return [`run`], or, if it is the directory of a sweep, the run directories of all its members (runs)."""
    path = to_path(run, "run")
    if (path / RUN_FILE).is_file() or not (path / MEMBERS).is_dir():
        return [path]
    return sorted(folder for folder in (path / MEMBERS).iterdir() if (folder / RUN_FILE).is_file()) or [path]


def of_history(name: str, rows: Sequence[Row], config: Config, stopped: str = "") -> Record:
    """Return the record of a run in memory, from its log rows; `stopped` is what ended it early, or ""."""
    end = {"why": stopped or "total_steps are done"}
    return Record(name, None, record_columns(rows), config, configs.to_toml(config), {}, [], end)


def record_columns(rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the metrics of log rows as columns, float64 [rows], with NaN where a row has no finite number.

    Rows without environment steps are left out.
    """
    rows = [row for row in rows if _is_number(row.get("env_steps")) and row["env_steps"] >= 0]
    names = list(dict.fromkeys(name for row in rows for name in row))[:METRICS]
    columns = {name: np.array([row.get(name) for row in rows], np.float64) for name in names}
    return {name: _bounded(values) for name, values in columns.items()}


def _bounded(values: np.ndarray) -> np.ndarray:
    values = np.where(np.isfinite(values), values, np.nan)
    return np.clip(np.where(np.abs(values) < SMALLEST, 0.0, values), -LARGEST, LARGEST)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST  # NaN and infinities are not less
