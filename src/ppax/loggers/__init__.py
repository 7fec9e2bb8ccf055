"""Where metrics go. A logger has `log(row)` and `close()`; a row is numbers, among them `iteration` and `env_steps`."""

from __future__ import annotations

from typing import Protocol

from ppax.loggers.console import Console
from ppax.loggers.files import Csv, JsonLines, Row, last_row
from ppax.loggers.tensorboard import TensorBoard, require_tensorboard


class Logger(Protocol):
    """A sink for metrics."""

    def log(self, row: Row) -> None:
        """Take one row."""
        ...

    def close(self) -> None:
        """No more rows will come."""
        ...


__all__ = ["Console", "Csv", "JsonLines", "Logger", "Row", "TensorBoard", "last_row", "require_tensorboard"]
