"""Loggers of runs: console, JSON Lines, CSV, TensorBoard, Weights & Biases and MLflow.

The classes `TensorBoard`, `WandB` and `MLflow` are logger parts, frozen dataclasses of options: their method `open`
returns the logger of one run. A logger of your own follows the protocol `Logger`.
"""

from ppax.core.protocols import Logger, Row
from ppax.loggers.background import Background
from ppax.loggers.console import Console
from ppax.loggers.files import Csv, JsonLines, last_row
from ppax.loggers.mlflow import MLflow
from ppax.loggers.tensorboard import EventFiles, TensorBoard, require_tensorboard
from ppax.loggers.wandb import WandB

__all__ = [
    "Background",
    "Console",
    "Csv",
    "EventFiles",
    "JsonLines",
    "Logger",
    "MLflow",
    "Row",
    "TensorBoard",
    "WandB",
    "last_row",
    "require_tensorboard",
]
