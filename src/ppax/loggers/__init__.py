"""Loggers of metrics: console, JSON Lines, CSV, TensorBoard; `Logger` is the Protocol of a user's own."""

from __future__ import annotations

from typing import Protocol

from ppax.loggers.console import Console
from ppax.loggers.files import Csv, JsonLines, Row, last_row
from ppax.loggers.tensorboard import TensorBoard, require_tensorboard


class Logger(Protocol):
    """Logger protocol: receives a row of metrics at every log row."""

    def log(self, row: Row) -> None:
        """Log one row: numbers by name, among them `iteration` and `env_steps`; NaN for metrics without data."""
        ...

    def close(self) -> None:
        """Release resources; called once, after the last row."""
        ...


__all__ = ["Console", "Csv", "JsonLines", "Logger", "Row", "TensorBoard", "last_row", "require_tensorboard"]
