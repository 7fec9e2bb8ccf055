"""Loggers of one run: the user's, the console, the files of the run directory and TensorBoard."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from ppax.arrays import counter
from ppax.loggers import Csv, JsonLines, TensorBoard, last_row
from ppax.protocols import Logger, Row
from ppax.run.directory import ROWS
from ppax.types import TrainState


class RunLoggers:
    """Context with the open loggers of a run. Files of a resumed run keep the rows up to its state's iteration."""

    def __init__(self, path: Path | None, loggers: Sequence[Logger], tensorboard: bool, state: TrainState):
        """Add the files below `path` to `loggers`; None: no files. With `tensorboard`, event files too."""
        self._loggers, self._seconds, done = [*loggers], 0.0, int(state.iteration)
        if path is not None:
            self._loggers += [JsonLines(path / ROWS, done), Csv(path / "metrics.csv", done)]
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
        """Log one row; a logger that fails is removed with a warning, and training goes on."""
        for logger in list(self._loggers):
            try:
                logger.log(row)
            except Exception as error:
                self._loggers.remove(logger)
                warnings.warn(f"{type(logger).__name__} failed and is removed: {_described(error)}", stacklevel=2)

    def __enter__(self) -> RunLoggers:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def _close(logger: Logger) -> None:
    """Close a logger; warn if that fails, as when the terminal of a console logger is closed."""
    try:
        logger.close()
    except Exception as error:
        warnings.warn(f"{type(logger).__name__} could not be closed: {_described(error)}", stacklevel=2)


def _described(error: Exception) -> str:
    """Class and message of an exception, and below them its traceback: a logger is often the user's own code."""
    return f"{type(error).__name__}: {error}\n" + "".join(traceback.format_tb(error.__traceback__)).rstrip()
