"""Recording of one member (run) of a sweep: directory, log rows, stop conditions, checkpoints, evaluation."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from ppax.arrays import counter
from ppax.config import RUN_FILE
from ppax.core import untrusted
from ppax.core.options import Config
from ppax.core.protocols import Row
from ppax.core.types import TrainState
from ppax.loggers.files import rows_until
from ppax.policy.spec import spec_of
from ppax.run import checkpoint
from ppax.run.conditions import replayable
from ppax.run.directory import ROWS, STOPPED, RunDirectory, read_about, read_evaluation, read_run_config
from ppax.run.evaluations import Evaluations
from ppax.run.films import FilmRecorder
from ppax.run.logging import RunLoggers, logged_run
from ppax.run.monitor import RunMonitor
from ppax.run.provenance import origin_of, record_start, saved_origin
from ppax.run.restore import initial_state
from ppax.run.result import NumericalError, TrainedRun, record_evaluation
from ppax.run.warm_start import prepare
from ppax.storage import safe_files
from ppax.sweeps.directory import require_unchanged
from ppax.sweeps.packing import Task, task_config, with_values

FAULT, SEARCH = "fault", "search"  # kinds of the ends of a member that was dropped, and of one that a search stopped
ENDS = ("done", "stopped", FAULT, SEARCH)  # kinds of ends after which a member trains no more
LIMIT = 2**20  # bytes read of stopped.json


class End(NamedTuple):
    """End of a run, as its file stopped.json records it: the kind of end, the iteration and the environment steps.

    `kind` is "" while the run goes on or can be resumed.
    """

    kind: str = ""  # of ENDS; "" while the run goes on or can be resumed
    iteration: int = 0
    env_steps: int = 0


def end_of(path: Path) -> End:
    """Return the end that is recorded in the run directory `path`; its kind is "" where the run can go on."""
    reason = untrusted.read_table(path / STOPPED, LIMIT)
    numbers = [reason.get(name) for name in ("iteration", "env_steps")]
    iteration, env_steps = (x if type(x) is int else 0 for x in numbers)
    return End(reason["kind"] if reason.get("kind") in ENDS else "", iteration, env_steps)


def is_complete(path: Path) -> bool:
    """Return True if the run in directory `path` is trained and evaluated, or was dropped, or was stopped.

    A run is dropped when an iteration is not finite, and stopped by the search of its sweep.
    """
    kind = end_of(path).kind
    return kind in (FAULT, SEARCH) or (kind != "" and bool(read_evaluation(path)))


def reached(path: Path, iteration: int) -> bool:
    """Return True if the run directory `path` has a checkpoint of `iteration` or a later one."""
    saved = checkpoint.list_checkpoints(path / "checkpoints")
    return bool(saved) and int(saved[-1].name) >= iteration


def stop(path: Path, iteration: int, why: str) -> None:
    """Record in the run directory `path` that the sweep's search stopped this run at `iteration`, for the reason `why`.

    No process may have the directory open. Unless `iteration` is 0, it must have a checkpoint of that iteration.
    """
    steps = [row["env_steps"] for row in rows_until(path / ROWS, iteration) if type(row.get("env_steps")) is int]
    numbers = {"iteration": iteration, "env_steps": steps[-1] if steps else 0}
    safe_files.write_text(path / STOPPED, json.dumps({"kind": SEARCH, "why": why} | numbers) + "\n")


def require_recorded(task: Task, path: Path, changing: Collection[str] = ()) -> None:
    """Raise ConfigError if the run directory `path`, of an unfinished run, has another run file than that of `task`.

    `task` is the member (run) of the sweep that the directory should belong to. Options whose names are in `changing`
    may differ.
    """
    if (path / RUN_FILE).is_file() and not is_complete(path):
        require_unchanged(read_run_config(path), task_config(task), path / RUN_FILE, changing)


class MemberRun:
    """Recording of one member (run) of a sweep: it writes rows, checkpoints and films to the member's run directory.

    The directory has the layout of any run's. Its files are closed when the ExitStack given to the constructor closes.
    """

    def __init__(self, task: Task, path: Path, shapes: TrainState, stack: ExitStack, changing: Collection[str] = ()):
        """Open the run directory of the member (run) at `path`, or create it.

        `shapes` are the shapes of the member's state. Options in `changing` are those that a search changes while the
        member trains. Raises ConfigError where the directory is that of another run.
        """
        require_recorded(task, path, changing)
        self.task, self.path, self.shapes = task, path, shapes
        self.agent, self.env, self.run = task.agent, task.env, task.run
        self.monitor, self._stack = RunMonitor(self.run), stack
        self.evaluations = stack.enter_context(Evaluations(self.agent, self.env, self.run, shapes))
        self.monitor.check(self.agent, self.env, shapes, self.evaluations.blank)
        self.directory = stack.enter_context(self._directory())
        self.films = FilmRecorder(self.agent, self.env, self.run)
        self.end, self.history = end_of(path).kind, list[Row]()
        self._id = read_about(path).get("id")
        self.iteration = self.env_steps = 0
        self.seconds, self.started_at = 0.0, time.time()
        self.values: Row = {}  # further columns of the log rows: swept values, where they change
        self._written: Row = {}  # those in the run file
        self._loggers: RunLoggers | None = None

    def _directory(self) -> RunDirectory:
        if (self.path / RUN_FILE).is_file():
            return RunDirectory.open(self.path)
        policy = spec_of(self.agent, self.env, self.shapes.actor.action_mask, {}).to_data()
        return RunDirectory.create(self.path, task_config(self.task), policy)

    def initial(self) -> TrainState:
        """Return the member's state before the first iteration, the same as if it were trained outside of a sweep."""
        warm = prepare(self.task.agent, self.shapes, self.run.init_from)
        return initial_state(self.task.agent, self.env, self.run, warm)

    def saved(self) -> list[int]:
        """Return the iterations of the member's checkpoints, oldest first; [] without any."""
        return [int(path.name) for path in checkpoint.list_checkpoints(self.directory.checkpoints)]

    def ended_before(self, iteration: int) -> bool:
        """Return True if this member (run) had ended when the other members of its program reached `iteration`.

        A member that is dropped because iteration i + 1 was not finite still counts as training at iteration i.
        """
        end = end_of(self.path)
        return iteration > end.iteration or (iteration == end.iteration and end.kind != FAULT)

    def load(self, iteration: int) -> TrainState:
        """Return the member's state in the checkpoint of `iteration`; CheckpointError where that is damaged."""
        return checkpoint.load(self.directory.checkpoints / f"{iteration:010d}", self.shapes, self._id)

    def begin(self, state: TrainState) -> None:
        """Open the member's log files to go on at the iteration of `state`, and add this start to about.json.

        The new entry in about.json has the start's time, devices, versions and hardware. Log rows after the iteration
        of `state` are removed.
        """
        iteration = int(state.iteration)
        if iteration:
            self.monitor.restore(self.path, iteration, self.shapes)
        self.saved_by = saved_origin(self.path)
        self._write_values()
        (self.path / STOPPED).unlink(missing_ok=True)
        self.origin = record_start(self.directory, "sweep", self.agent, self.env, self.run, {})
        loggers = self._open_loggers(state)
        self.iteration, self.env_steps, self.seconds = iteration, counter.to_int(state.env_steps), loggers.seconds
        self.films.resume(iteration)
        loggers.store(self.films.due(state, self.path))

    def _open_loggers(self, state: TrainState) -> RunLoggers:
        described = logged_run(self.agent, self.env, self.run, self.path, state)
        self._loggers = RunLoggers(self.path, [], int(state.iteration), self.run.log.parts, described)
        return self._loggers

    def close_loggers(self, error: BaseException | None) -> None:
        """Close the member's loggers, if they are open; may wait for slow servers.

        They are told of a failure: that the member was dropped, or of the `error` (None: none) that ends the sweep if
        the member would still train.
        """
        if self._loggers is None:
            return
        if self.end == FAULT:
            error = NumericalError(f"iteration {self.iteration + 1} is not finite")
        elif self.end:
            error = None
        self._loggers.__exit__(type(error), error)

    def log(self, row: Row, states: Sequence[TrainState], place: int) -> bool:
        """Log one row, with evaluation and film if they are due; return True if a stop condition ends the member's run.

        The member's state is `states[place]`, which is copied to the host only if an evaluation, a film or the best
        policy needs it.
        """
        assert self._loggers is not None
        evaluated, filmed = self.evaluations.due(int(row["iteration"])), self.films.wanted(int(row["iteration"]))
        stop = self.monitor.stop
        own = stop is not None and replayable(stop) != stop  # a user's condition may read the state
        read = evaluated or filmed or own or self.monitor.best is not None
        state = states[place] if read else self.shapes  # conditions of ppax read rows alone
        self.evaluations.learn([row])
        row = row | (self.evaluations.columns(state, row) if evaluated else self.evaluations.blank) | self.values
        self.iteration, self.env_steps, self.seconds = int(row["iteration"]), int(row["env_steps"]), row["seconds"]
        self.history.append(row)
        self._loggers.log(row)
        self._loggers.store(self.films.due(state, self.path) if filmed else None)
        return self.monitor.update(state, row)

    def save(self, state: TrainState) -> None:
        """Write a checkpoint of the member's `state`; earlier checkpoints stay until `prune` is called."""
        if self._write_values():
            self.origin = origin_of(self.path, self.agent, self.env, self.run)
        origin = None if self.origin is None else self.origin._asdict()
        self.monitor.save(self.path, origin)
        checkpoint.save(self.directory.checkpoints, state, None, origin=origin)

    def take_values(self, values: Config) -> None:
        """Train the member (run) with the values `values` of the swept options, by dotted path, from now on.

        Evaluations and log rows have the values at once, the run file from the next checkpoint on.
        """
        self.values = {path: float(x) for path, x in values.items()}
        if values != self.task.member.values:
            self.task = with_values(self.task, values)
            self.agent, self.env = self.task.agent, self.task.env
            self.evaluations = self._stack.enter_context(Evaluations(self.agent, self.env, self.run, self.shapes))
            self.films = FilmRecorder(self.agent, self.env, self.run)
            self.films.resume(self.iteration)

    def _write_values(self) -> bool:
        """Write swept values that a search has changed to the member's run file; return True if any had changed.

        If the member is later resumed as a run outside of the sweep, it goes on with these values.
        """
        if self._written == self.values:
            return False
        self.directory.write_config(task_config(self.task))
        self._written = self.values
        return True

    def prune(self, iteration: int) -> None:
        """Remove the member's checkpoints up to `iteration`, except the newest `log.keep` of them."""
        paths = checkpoint.list_checkpoints(self.directory.checkpoints)
        older = [path for path in paths if int(path.name) <= iteration]
        for path in older[: -self.run.log.keep if self.run.log.keep else 0]:
            checkpoint.remove(path)

    def finish(self, state: TrainState, kind: str, why: str = "") -> None:
        """Save the member's last state, and record the end of its run.

        `kind` is the kind of end, such as "done" or "fault", `why` the reason in words.
        """
        self.save(state)
        self.monitor.record(self.path, state, kind, why)
        self.prune(int(state.iteration))  # last: until then a resume may need an earlier one
        self.end = "stopped" if self.monitor.stop_reason else kind

    def evaluate(self, state: TrainState) -> None:
        """Evaluate the member's policy, write its scores to evaluation.json, and hand the policy to the loggers.

        `state` is the member's state at the end of its training. Does nothing if the member was dropped or stopped by
        the search, or has an evaluation already.
        """
        if is_complete(self.path):
            return
        if self._loggers is None:  # its training has ended in an earlier process
            self._open_loggers(state)
            self.monitor.restore(self.path, int(state.iteration), self.shapes)
            self.env_steps = counter.to_int(state.env_steps)
            self.history = list(rows_until(self.path / ROWS, int(state.iteration)))
            self.seconds = float(self.history[-1]["seconds"] or 0.0) if self.history else 0.0
        settings = self.run.eval
        trained = TrainedRun(
            self.agent,
            self.env,
            state,
            self.history,
            self.path,
            started_at=self.started_at,
            compile_seconds=self.history[-1]["compile_seconds"] if self.history else 0.0,
            train_seconds=self.seconds,
            steps_per_second=self.env_steps / max(self.seconds, 1e-9),
            stopped=self.monitor.stop_reason,
            best=self.monitor.best,
            eval_settings=settings,
        )
        assert self._loggers is not None
        self._loggers.store_policy(trained)
        record_evaluation(
            trained, trained.evaluate(settings.episodes, settings.deterministic, self.run.seed, record=False)
        )
