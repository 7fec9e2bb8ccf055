"""Loggers of metrics: console, JSON Lines, CSV, TensorBoard; `Logger` is the Protocol of a user's own."""

from ppax.loggers.console import Console
from ppax.loggers.files import Csv, JsonLines, last_row
from ppax.loggers.tensorboard import TensorBoard, require_tensorboard
from ppax.protocols import Logger, Row

__all__ = ["Console", "Csv", "JsonLines", "Logger", "Row", "TensorBoard", "last_row", "require_tensorboard"]
