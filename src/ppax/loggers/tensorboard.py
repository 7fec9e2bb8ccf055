"""Metrics as TensorBoard event files, by tensorboardX (no TensorFlow)."""

from __future__ import annotations

import math
from pathlib import Path

from ppax.loggers.files import Row


class TensorBoard:
    """Scalars over env-steps in `directory`."""

    def __init__(self, directory: Path, purge_from: int | None = None):
        """Write below `directory`; on resume, events at `purge_from` env-steps and later are superseded."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise ImportError('TensorBoard logging needs an extra: pip install "ppax[tensorboard]"') from error
        self._writer = SummaryWriter(str(directory), purge_step=purge_from)

    def log(self, row: Row) -> None:
        """Write one row."""
        for name, value in row.items():
            if name != "env_steps" and isinstance(value, int | float) and math.isfinite(value):
                self._writer.add_scalar(name, value, row["env_steps"])
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()
