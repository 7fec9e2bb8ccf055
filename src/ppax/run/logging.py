"""Log rows of a run, and its loggers: the user's, the console, files of the run directory, those of the settings."""

from __future__ import annotations

import math
import traceback
import warnings
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from ppax import config as configs
from ppax.arrays import counter
from ppax.config import Run
from ppax.core.options import flatten
from ppax.core.protocols import Agent, Artifact, FileLogger, LoggedRun, Logger, LoggerPart, Row
from ppax.core.types import TrainState
from ppax.devices.footprint import peak_memory_mb
from ppax.envs import Env
from ppax.loggers import Csv, JsonLines, last_row
from ppax.loggers.background import tell_failure
from ppax.run.directory import BEST_BUNDLE, LAST_BUNDLE, MEMBERS, ROWS, RUN_FILE, SweepName, name_of_sweep, read_about
from ppax.run.result import TrainedRun
from ppax.training.loop import MEASURED

FORMATS = ("numpy", "stablehlo")  # of these bundles: ONNX takes long to write; `ppax export` writes it
SCORES = ("episode_return", "eval_return")  # columns of the policy's row that its bundle holds


class RunLoggers:
    """Open loggers of a run, to which log rows and files (films, policies) are passed; a context manager.

    The log files of a resumed run keep the rows up to the iteration at which it goes on.
    """

    def __init__(
        self,
        path: Path | None,
        loggers: Sequence[Logger],
        iteration: int,
        parts: Sequence[LoggerPart] = (),
        run: LoggedRun | None = None,
    ):
        """Open the loggers of a run of which `iteration` iterations are done.

        The loggers are `loggers`, those that write the log files in the run directory `path` (None: no files), and
        those that `parts`, the logger parts of the settings such as TensorBoard, open for the run that `run` describes.
        """
        self._path, self._seconds = path, 0.0
        self._loggers: dict[str, Logger] = {}
        self._files: dict[str, tuple[FileLogger, LoggerPart]] = {}  # those that are parts
        self._stack = ExitStack()
        for logger in loggers:
            self._add(type(logger).__name__, logger)
        if path is not None:
            kept = iteration or -1  # no row: the evaluation of the untrained policy is repeated
            self._add("JsonLines", JsonLines(path / ROWS, kept))
            self._add("Csv", Csv(path / "metrics.csv", kept))
            self._seconds = float(last_row(path / ROWS).get("seconds") or 0.0)
        for part in parts:
            assert run is not None
            self._open(part, run)

    @property
    def seconds(self) -> float:
        """Training time of the run before it was last started or resumed, in seconds; 0 for a new run."""
        return self._seconds

    def log(self, row: Row) -> None:
        """Pass a copy of one row to each logger; one that fails is removed with a warning, and training goes on."""
        for name, logger in list(self._loggers.items()):
            try:
                logger.log(dict(row))
            except Exception as error:
                self._remove(name, error)

    def store(self, artifact: Artifact | None) -> None:
        """Pass the files of `artifact` (None: no files) to the loggers that store files of this kind, such as films.

        A logger that fails is removed, with a warning, and training goes on.
        """
        if artifact is None:
            return
        for name, (logger, part) in list(self._files.items()):
            try:
                if artifact.kind in part.stores:
                    logger.store(artifact)
            except Exception as error:
                self._remove(name, error)

    def store_policy(self, run: TrainedRun) -> None:
        """Export the last and the best policy of `run`, and pass their files to the loggers that store policies.

        Without such a logger, or without a run directory, nothing is exported. Warns if the export fails.
        """
        if run.run_dir is None or not any("policy" in part.stores for _, part in self._files.values()):
            return
        try:
            self.store(export_policies(run, run.run_dir))
        except Exception as error:  # a user's network may do what a bundle cannot hold
            warnings.warn(f"the loggers get no policy: {type(error).__name__}: {error}", stacklevel=3)

    def _open(self, part: LoggerPart, run: LoggedRun) -> None:
        name = type(part).__name__
        try:
            logger = part.open(run)
        except Exception as error:
            _warn_of_failure(name, error)
        else:
            self._files[self._add(name, logger)] = logger, part

    def _add(self, name: str, logger: Logger) -> str:
        """Add a logger to those of the run, to be closed at the end, and return its name, made unique by primes (')."""
        while name in self._loggers:
            name += "'"
        self._loggers[name] = logger
        self._stack.callback(close_logger, name, logger)
        return name

    def _remove(self, name: str, error: Exception) -> None:
        self._loggers.pop(name, None)
        self._files.pop(name, None)
        _warn_of_failure(name, error)

    def __enter__(self) -> RunLoggers:
        return self

    def __exit__(self, kind: object = None, error: BaseException | None = None, trace: object = None) -> None:
        if isinstance(error, Exception):  # not KeyboardInterrupt: the run can be resumed
            for name, logger in list(self._loggers.items()):
                try:
                    tell_failure(logger, error)
                except Exception as other:
                    self._remove(name, other)
        self._stack.close()


def _warn_of_failure(name: str, error: Exception) -> None:
    """Warn, with the traceback, that the logger `name` failed and is not used any more."""
    trace = "".join(traceback.format_exception(error)).rstrip()
    kind = type(error).__name__
    warnings.warn(f"{name} failed ({kind}: {error}) and is removed; training goes on\n{trace}", stacklevel=3)


def close_logger(name: str, logger: Logger) -> None:
    """Close a logger; warn if that fails, as when the terminal of a console logger is closed."""
    try:
        logger.close()
    except Exception as error:
        warnings.warn(f"{name} could not be closed ({type(error).__name__}: {error})", stacklevel=2)


def logged_run(agent: Agent, env: Env, run: Run, path: Path | None, state: TrainState) -> LoggedRun:
    """Return the description of a run for its loggers, from its directory `path`, or, if None, from its objects.

    The objects are the arguments agent, environment, settings and state.
    """
    run_config = configs.describe_run(agent, env, run) if path is None else configs.read(path / RUN_FILE)
    name = (env.name or type(env).__name__) if path is None else path.name or path.resolve().name
    sweep = SweepName() if path is None or path.parent.name != MEMBERS else name_of_sweep(path.parent.parent)
    name = f"{sweep.name}/{name}" if sweep.id else name
    run_id = "" if path is None else read_about(path).get("id", "")
    steps = counter.to_int(state.env_steps)
    text = configs.to_toml(run_config)
    return LoggedRun(name, path, run_id, dict(flatten(run_config)), text, int(state.iteration), steps, sweep.group)


def export_policies(run: TrainedRun, run_dir: Path) -> Artifact:
    """Write the last policy and the best one, if any, as bundles into `run_dir`, and return the files' paths.

    A bundle is a file that holds a policy alone.
    """
    row = run.history[-1] if run.history else {}
    scores = {name: row[name] for name in SCORES if name in row}
    files = {LAST_BUNDLE: run.policy().export(run_dir / LAST_BUNDLE, FORMATS, scores).path}
    if run.best is not None and run.best.learner is not None:
        scores = {name: run.best.row[name] for name in SCORES if name in run.best.row} if run.best.row else {}
        files[BEST_BUNDLE] = run.policy(best=True).export(run_dir / BEST_BUNDLE, FORMATS, scores).path
    return Artifact("policy", files, run.env_steps)


ROWS_PER_RUN = 100  # log rows of a run that is long enough
CHUNK_STEPS = 2**18  # maximum env-steps between two rows, so that a signal stops the run within seconds


def row_intervals(run: Run, total_iterations: int, steps: int) -> tuple[int, int]:
    """Return two numbers of iterations: those between log rows, and those between checkpoints.

    `steps` is the number of environment steps in one iteration.
    """
    every = run.log.every or max(1, min(total_iterations // ROWS_PER_RUN, CHUNK_STEPS // steps))
    return every, run.log.checkpoint_every or every


def next_row(done: int, intervals: tuple[int, int], next_evaluation: int) -> int:
    """Return the iteration of the first log row after iteration `done`.

    It is the nearest of three iterations: the next multiple of each of the two `intervals`, which are the iterations
    between log rows and between checkpoints, and `next_evaluation`. The latter is the iteration of the next evaluation
    (in a sweep, also of the next decision of a search); if there is none, the last iteration of the run.
    """
    return min(*(done - done % every + every for every in intervals), next_evaluation)


def untrained_row(metric_names: Iterable[str]) -> Row:
    """Return the log row before the first iteration: NaN for all metrics of training, and no columns of evaluations."""
    row = dict.fromkeys(("iteration", "env_steps", *metric_names, *MEASURED), math.nan)
    return row | {"iteration": 0, "env_steps": 0, "seconds": 0.0}


def measured(
    seconds: float,
    iterations: int,
    env_steps: int,
    before: float,
    compile_seconds: float,
    collect_seconds: float | None = None,
) -> Row:
    """Return the log row's entries on speed, time and memory, for `iterations` iterations that took `seconds`.

    `env_steps` are the valid steps in them: all but autoreset steps. `before` is the run's training time before these
    iterations, and `compile_seconds` the time of compilation. `collect_seconds` is the time of the rollouts; None where
    it cannot be separated from the time of updates.
    """
    whole, stages = 1e3 * seconds / iterations, dict[str, float]()
    if collect_seconds is not None:
        collect = 1e3 * collect_seconds / iterations
        stages = {"collect_ms": collect, "update_ms": whole - collect}
    speed = {"steps_per_second": env_steps / seconds, "seconds": before + seconds, "iteration_ms": whole}
    return stages | speed | {"compile_seconds": compile_seconds, "memory_mb": peak_memory_mb()}
