"""Protocols of what a run calls at its log rows: callbacks, loggers and stop conditions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from ppax.core.types import TrainState

Row = dict[str, Any]  # log row: numbers by name, among them `iteration` and `env_steps`; NaN for metrics without data


class Callback(Protocol):
    """Callback protocol: a function called at every log row, after the loggers and before the row's checkpoint."""

    def __call__(self, state: TrainState, row: Row, /) -> bool | None:
        """Return True to end the run after this row; it goes on after False and None.

        `row` has the metrics since the row before, `state` is the state after them. The next iterations reuse the
        memory of `state` (buffer donation): copy what you keep. An exception ends the run, and `fit` raises it.
        """


@runtime_checkable
class Logger(Protocol):
    """Logger protocol: receives every log row, in order, before the callbacks."""

    def log(self, row: Row) -> None:
        """Log one row. After an exception this logger gets no more rows: the run goes on, with a warning."""

    def close(self) -> None:
        """Release resources. Called once, at the end of the run, also of a run that failed."""


class Artifact(NamedTuple):
    """Files of a run that belong together, for loggers that store files."""

    kind: str  # "policy" or "film"
    files: Mapping[str, Path]  # files by name
    env_steps: int  # at which they were made


class FileLogger(Logger, Protocol):
    """Logger protocol of parts: logs rows and stores files."""

    def store(self, artifact: Artifact) -> None:
        """Store files of a kind that its part names. An exception is handled as one of `log`."""


class LoggedRun(NamedTuple):
    """Run as its loggers see it at a start: names, options, and where it goes on."""

    name: str  # of the run directory, or of the environment
    path: Path | None  # run directory
    id: str  # of the run, in its directory; "" without one
    options: Mapping[str, Any]  # values by dotted path
    run_file: str  # text of the run file
    iteration: int  # iterations done; above 0: the run is resumed
    env_steps: int  # steps done


class LoggerPart(Protocol):
    """Logger part protocol: settings of a logger in a run file, hashable; `open` makes the logger of one run."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Kinds of artifacts that its loggers store."""

    def require(self, run_dir: object) -> None:
        """Raise ImportError, with the extra to install, or ConfigError if it needs a directory and there is none."""

    def open(self, run: LoggedRun) -> FileLogger:
        """Open the logger of `run`; it is closed at the end. An exception is handled as one of `Logger.log`."""


class ConditionState(NamedTuple):
    """State of a stop condition after a row: the verdict, and numbers that the next update compares with."""

    met: bool = False
    reason: str = ""  # conditions that are met, with the values of their metrics; "" if not met
    reference: float = math.nan  # value that later rows are compared with; NaN before the first one
    rows: int = 0  # consecutive rows that the comparison has held
    parts: tuple[Any, ...] = ()  # states of the conditions that it combines


@runtime_checkable
class StopCondition(Protocol):
    """Stop condition protocol: a value that may be used in many runs; its state is passed in and returned."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that it reads."""

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row, from the state before it; `ConditionState()` before the first row."""
