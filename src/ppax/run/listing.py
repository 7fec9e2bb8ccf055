"""`ppax.checkpoints`: the states and the best policy that a run directory holds, with their steps and scores."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any, NamedTuple

from ppax.core.options import flatten, require_whole
from ppax.core.protocols import Row
from ppax.core.types import ConfigError
from ppax.loggers.files import rows_until
from ppax.run import checkpoint
from ppax.run import directory as run_dirs
from ppax.run.directory import ROWS
from ppax.run.ending import BEST
from ppax.run.result import TrainedRun
from ppax.storage.paths import to_path

CHECKPOINTS = "checkpoints"


class SavedState(NamedTuple):
    """Checkpoint of a run, or its best policy."""

    step: int  # environment steps done, valid ones of all agents; `ppax.load(run, step=...)` takes it
    iteration: int
    score: float  # `metric` in the log row of this checkpoint; NaN if the row has no value
    metric: str  # best.metric of the run; else eval_return, if the run has evaluations, or episode_return
    best: bool  # the best policy, which `resume` cannot continue from
    path: Path

    def __repr__(self) -> str:
        kind = ", best" if self.best else ""
        return f"SavedState(step {self.step:,}, iteration {self.iteration:,}, {self.metric} {self.score:.4g}{kind})"


def checkpoints(run: str | Path | TrainedRun) -> list[SavedState]:
    """Return what a run directory holds, by step: its checkpoints (`log.keep` of them) and its best policy.

    ConfigError where there is no run. A damaged checkpoint is left out.
    """
    path = run.run_dir if isinstance(run, TrainedRun) else to_path(run, "run")
    if path is None:
        raise ConfigError("run: it has no directory; train with ppax.fit(..., run_dir='runs/mine')")
    metric = dict(flatten(run_dirs.find(path))).get("best.metric", "none")
    found = [(one, name == BEST) for name in (CHECKPOINTS, BEST) for one in checkpoint.list_checkpoints(path / name)]
    iterations, rows, evaluated = {int(one.name) for one, _ in found}, dict[int, Row](), False
    for row in rows_until(path / ROWS, 2**63):
        evaluated |= "eval_return" in row
        if row["iteration"] in iterations:
            rows[row["iteration"]] = row
    if not isinstance(metric, str) or metric == "none":
        metric = "eval_return" if evaluated else "episode_return"
    saved = []
    for one, best in found:
        with contextlib.suppress(checkpoint.DamagedCheckpoint):
            saved.append(_saved(one, rows, metric, best))
    return sorted(saved, key=lambda one: (one.iteration, one.best))


def _saved(path: Path, rows: dict[int, Row], metric: str, best: bool) -> SavedState:
    manifest = checkpoint.read_manifest(path)
    value: Any = rows.get(manifest["iteration"], {}).get(metric)
    steps = manifest.get("env_steps")
    if type(steps) is not int:
        raise checkpoint.DamagedCheckpoint(f"{path}: env_steps = {steps!r}: must be a whole number")
    return SavedState(steps, manifest["iteration"], math.nan if value is None else float(value), metric, best, path)


def find_step(run_dir: Path, step: int) -> SavedState:
    """Return the checkpoint after `step` environment steps; ConfigError, with the nearest, for others."""
    require_whole(step, "step", low=0)
    saved = checkpoints(run_dir)
    found = [one for one in saved if one.step == step]
    if found:
        return found[0]
    listed = ", ".join(f"{one.step}" for one in saved[-10:])
    nearest = min(saved, key=lambda one: abs(one.step - step)).step if saved else None
    raise ConfigError(
        f"step = {step}: {run_dir} has no checkpoint of this step; "
        + (f"nearest valid value: {nearest}, the last ones are {listed}" if saved else "it has none at all")
    )
