"""Loggers of one run: the user's, the console, the files of the run directory and TensorBoard."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ppax.arrays import counter
from ppax.loggers import Csv, JsonLines, TensorBoard, last_row
from ppax.program.footprint import peak_memory_mb
from ppax.protocols import Logger, Row, Training
from ppax.run.directory import ROWS
from ppax.types import TrainState


def measured(program: Training, seconds: float, iterations: int, env_steps: int, before: float) -> Row:
    """Return time and memory of `iterations` iterations that took `seconds`; `before` is the training time before."""
    whole, stages = 1e3 * seconds / iterations, dict[str, float]()
    if program.collect_seconds is not None:
        collect = 1e3 * program.collect_seconds / iterations
        stages = {"collect_ms": collect, "update_ms": whole - collect}
    speed = {"steps_per_second": env_steps / seconds, "seconds": before + seconds, "iteration_ms": whole}
    return stages | speed | {"compile_seconds": program.compile_seconds, "memory_mb": peak_memory_mb()}


class RunLoggers:
    """Context with the open loggers of a run. Files of a resumed run keep the rows up to its state's iteration."""

    def __init__(self, path: Path | None, loggers: Sequence[Logger], tensorboard: bool, state: TrainState):
        """Add the files below `path` to `loggers`; None: no files. With `tensorboard`, event files too."""
        self._loggers, self._seconds, done = [*loggers], 0.0, int(state.iteration)
        if path is not None:
            kept = done or -1  # no row: the evaluation of the untrained policy is repeated
            self._loggers += [JsonLines(path / ROWS, kept), Csv(path / "metrics.csv", kept)]
            self._seconds = float(last_row(path / ROWS).get("seconds", 0.0))
            if tensorboard:
                purge = counter.to_int(state.env_steps) + 1 if done else None
                self._loggers.append(TensorBoard(path / "tensorboard", purge))
        self._stack = ExitStack()
        for logger in self._loggers:
            self._stack.callback(_close, logger)

    @property
    def seconds(self) -> float:
        """Training time of the run before this start, in seconds; 0 for a new run."""
        return self._seconds

    def log(self, row: Row) -> None:
        """Log one row; a logger that fails is removed, with its traceback as a warning; training goes on."""
        for logger in list(self._loggers):
            try:
                logger.log(row)
            except Exception as error:
                self._loggers.remove(logger)
                trace = "".join(traceback.format_exception(error)).rstrip()
                name, kind = type(logger).__name__, type(error).__name__
                warnings.warn(
                    f"{name} failed ({kind}: {error}) and is removed; training goes on\n{trace}", stacklevel=2
                )

    def __enter__(self) -> RunLoggers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _close(logger: Logger) -> None:
    """Close a logger; warn if that fails, as when the terminal of a console logger is closed."""
    try:
        logger.close()
    except Exception as error:
        name, kind = type(logger).__name__, type(error).__name__
        warnings.warn(f"{name} could not be closed ({kind}: {error})", stacklevel=2)
