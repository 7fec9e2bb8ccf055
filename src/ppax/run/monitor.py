"""Monitor of a run: stop conditions, callbacks, the reason for the end, and the best policy; a resume restores them."""

from __future__ import annotations

import difflib
import json
import math
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ppax.agents.metrics import EPISODE_METRICS
from ppax.arrays import counter
from ppax.config import Run
from ppax.core import untrusted
from ppax.core.protocols import Agent, ConditionState, Row, StopCondition
from ppax.core.types import ConfigError, TrainState
from ppax.envs import Env
from ppax.envs.hosting.spec import SUCCESS
from ppax.loggers.files import finite_or_none, rows_until
from ppax.run import checkpoint
from ppax.run.conditions import MODES, KeepBest, parse_condition, policy_of, replayable
from ppax.run.directory import BEST, ROWS, STOPPED
from ppax.storage import safe_files
from ppax.training.backends import backend_of
from ppax.training.evaluation import COLUMNS
from ppax.training.loop import MEASURED

REASONS = {
    "done": "total_steps are done",
    "signal": "a signal asked it to stop; it can be resumed",
    "fault": "rollout, gradient or weights of the next iteration were not finite",
    "environment": "an environment failed; it can be resumed",
    "search": "the search of its sweep stopped it; it can be resumed",
}
PER_EPISODE = tuple(name for name in EPISODE_METRICS if name != "episodes")  # NaN where none has ended
ERROR_LENGTH = 10_000  # characters of an error that are recorded
OWN_ROWS = ("iteration", "env_steps", *MEASURED)  # entries of a log row that are not metrics


class BestPolicy(NamedTuple):
    """Best policy of a run by the metric of `best.metric`, as saved in the run's directory."""

    policy: TrainState  # without `actor` and `key`
    row: Row  # log row at which the metric was best
    metric: str  # metric of the comparison, or import path of a function of the row
    mode: str  # "max" or "min"
    value: float


class RunMonitor:
    """Stop conditions, callbacks and best policy of a run, which are updated at every log row and may end it."""

    def __init__(self, run: Run, conditions: Sequence[StopCondition] = ()):
        self.stop = None if run.stop is None else parse_condition(run.stop)
        self.best = None if run.best.metric is None else KeepBest(run.best.metric, run.best.mode)
        own = [condition for condition in (self.stop, self.best) if condition is not None]
        self.conditions = [*conditions, *own]
        self.stop_reason = ""  # conditions that ended the run early, with values; "" if none has
        self._states = [ConditionState()] * len(self.conditions)
        self._stop_place = len(conditions)  # of `stop` among the conditions
        self._without_values = {metric for condition in own for metric in condition.metrics}  # NaN in every row so far
        self._saved: Row | None = None  # row of the best policy on disk
        self._resets = (run.iterations_per_env_reset or 0) > 0

    def check(self, agent: Agent, env: Env, state: TrainState, evaluated: Collection[str] = ()) -> None:
        """Raise ConfigError if a stop condition or `best.metric` needs a metric that the run will not log.

        `state` may consist of shapes. `evaluated` are the columns of evaluations during training. Compiles nothing.
        """
        if self.best is not None or any(condition.metrics for condition in self.conditions):
            names = (*OWN_ROWS, *evaluated, *backend_of(env).metric_names(agent, state))
            for condition in self.conditions:
                require_logged(condition, names)
                if not self._resets:
                    require_episodes(condition, env)
            if self.best is not None:
                self.best.score(dict.fromkeys(names, math.nan))

    def restore(self, run_dir: Path, iteration: int, like: TrainState) -> None:
        """Bring the run's stop condition and best policy to where they were after `iteration` iterations.

        The log rows up to that iteration are replayed through the condition, and the best policy is loaded. Conditions
        of the user's own start anew: they may read training states, which are gone. `like` has the shapes of a training
        state.
        """
        if self.stop is not None:
            stop = replayable(self.stop)
            # the evaluation of the untrained policy is repeated, and its row with it
            for row in rows_until(run_dir / ROWS, iteration) if iteration else ():
                self._replay(stop, like, row)
        best = None if self.best is None else load_best(run_dir, like)
        if best is not None and self.best is not None and (best.metric, best.mode) == (self.best.key, self.best.mode):
            self.best.keep(best.policy, best.row, best.value)
            self._saved = self.best.row

    def update(self, state: TrainState, row: Row) -> bool:
        """Update the run's stop conditions and best policy with a new log row; return True if that ends the run.

        Each gets a copy of the row, which user code may change.
        """
        pairs = zip(self.conditions, self._states, strict=True)
        self._states = [condition.update(before, state, dict(row)) for condition, before in pairs]
        self._without_values -= {metric for metric in self._without_values if not math.isnan(row[metric])}
        met = [(condition, after) for condition, after in zip(self.conditions, self._states, strict=True) if after.met]
        self.stop_reason = " or ".join(after.reason or str(condition) for condition, after in met)
        return bool(met)

    def _replay(self, stop: StopCondition, like: TrainState, row: Row) -> None:
        """Update the run's condition `stop` with a row of metrics.jsonl, as if the row were logged now.

        `like` stands for the state, which the condition does not read: it may consist of shapes.
        """
        values = {name: math.nan if value is None else value for name, value in row.items()}
        if all(name in values for name in stop.metrics):
            after = stop.update(self._states[self._stop_place], like, values)
            self._states[self._stop_place] = after
            self.stop_reason = (after.reason or str(stop)) if after.met else ""
            self._without_values -= {metric for metric in stop.metrics if not math.isnan(values[metric])}

    def metrics_without_values(self) -> list[str]:
        """Return a warning for each metric of the run's `stop` and `best` settings that was NaN in every log row."""
        own = {"stop": self.stop, "best": None if self.best is None or self.best.policy is not None else self.best}
        return [
            f"{name}: no log row had a number for {metric}"
            + ("; no episode ended" if metric.startswith(("episode", "eval_")) else "")
            + {"stop": ", so the run could not stop by it", "best": ", so no policy was kept"}[name]
            + ": give the environment a time limit (ppax.envs.TimeLimit), set iterations_per_env_reset, train longer, "
            "or watch reward_mean"
            for name, condition in own.items()
            if condition is not None
            for metric in dict.fromkeys(condition.metrics)
            if metric in self._without_values
        ]

    def save(self, run_dir: Path, origin: dict[str, Any] | None = None) -> None:
        """Write the run's best policy atomically, if it is not saved yet; `origin` is plain data for its manifest."""
        best = self.best
        if best is None or best.policy is None or best.row is None or best.row is self._saved:
            return
        row = {name: finite_or_none(value) for name, value in best.row.items()}
        notes = {"metric": best.key, "mode": best.mode, "value": finite_or_none(best.value), "row": row}
        path = checkpoint.save(run_dir / BEST, best.policy, keep=2**31, notes=notes, origin=origin)
        for other in checkpoint.list_checkpoints(run_dir / BEST):
            if other != path:
                checkpoint.remove(other)
        self._saved = best.row

    def record(self, run_dir: Path | None, state: TrainState, kind: str, why: str = "", error: str = "") -> None:
        """Write the reason for the end of the run to stopped.json, atomically; warn if the disk fails.

        If a stop condition is met, the reason is that condition. Otherwise it is the sentence `why`, or, if that is "",
        the sentence of `kind`, a name in REASONS. `error` is the message of the fault that ended the run, for `ppax
        doctor`. Without a run directory nothing is written.
        """
        if run_dir is None:
            return
        kind = "stopped" if self.stop_reason else kind
        reason = {"kind": kind, "why": self.stop_reason or why or REASONS[kind]}
        reason |= {"error": error[:ERROR_LENGTH]} if error else {}
        numbers = {"iteration": int(state.iteration), "env_steps": counter.to_int(state.env_steps)}
        try:
            safe_files.write_text(run_dir / STOPPED, json.dumps(reason | numbers) + "\n")
        except OSError as error:  # must not hide the exception that ended the run
            warnings.warn(f"{run_dir / STOPPED} could not be written: {error}", stacklevel=2)


def require_logged(condition: StopCondition, names: Collection[str]) -> None:
    """Raise ConfigError, with the nearest name, if `condition` reads a metric that is not among the logged `names`."""
    for metric in condition.metrics:
        if metric not in names:
            nearest = difflib.get_close_matches(metric, names, n=1, cutoff=0.0)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
            if metric.partition("/")[0] in COLUMNS and not any(name in COLUMNS for name in names):
                hint = "; it is one of evaluations during training: set eval.every, for example --eval.every 10"
            if metric.partition("/")[0] in SUCCESS:
                hint = '; where the first step does not give it, name it: info_metrics = ["is_success"]'
            raise ConfigError(f"{condition}: no metric {metric!r} is logged{hint}")


def require_episodes(condition: StopCondition, env: Env) -> None:
    """Raise ConfigError if `condition` reads a metric of training's episodes, and `env` is known to never end one."""
    for metric in condition.metrics:
        if metric.partition("/")[0] in PER_EPISODE and backend_of(env).endless:
            raise ConfigError(
                f"{condition}: {env.name or 'the environment'} never ends an episode, so that {metric} never has a "
                "value; watch reward_mean, or eval_return with eval.every, or let episodes end: "
                "iterations_per_env_reset = 4, or a time limit (max_steps in env_params, ppax.envs.TimeLimit)"
            )


def load_best(run_dir: Path, like: TrainState, run_id: str | None = None) -> BestPolicy | None:
    """Return the best policy of a run directory, None where there is none that can be loaded.

    `like` has the shapes of a training state. Damaged policies are skipped with a warning, and so are those of another
    run than `run_id` (None: any run).
    """
    for _ in range(checkpoint.LISTINGS):
        paths = checkpoint.list_checkpoints(run_dir / BEST)  # two if a kill came between writing and removing
        best: BestPolicy | None = None
        problems = []
        for path in paths:
            try:
                loaded = checkpoint.load_with_manifest(path, policy_of(like), run_id)
                candidate = _best(loaded.manifest["notes"], jax.device_get(loaded.state))
            except checkpoint.CheckpointError as error:
                problems.append(error)
                continue
            sign = 1.0 if candidate.mode == "max" else -1.0
            if best is None or sign * candidate.value > sign * best.value:
                best = candidate
        if all(path.is_dir() for path in paths):  # otherwise a running process has replaced it: list again
            break
    for problem in problems:
        warnings.warn(f"skipped a damaged best policy: {problem}", stacklevel=2)
    return best


def _best(notes: Any, policy: TrainState) -> BestPolicy:
    try:
        row = {name: math.nan if value is None else float(value) for name, value in notes["row"].items()}
        if notes["mode"] not in MODES:
            raise ValueError(notes["mode"])
        value = notes["value"] if "value" in notes else row[notes["metric"]]  # of a run by an earlier version
        number = math.nan if value is None else float(value)
        return BestPolicy(policy, row, str(notes["metric"]), str(notes["mode"]), number)
    except untrusted.MALFORMED as error:
        raise checkpoint.CheckpointError(
            f"{BEST}: its manifest does not name the metric by which it is the best"
        ) from error
