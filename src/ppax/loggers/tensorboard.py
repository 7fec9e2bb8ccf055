"""TensorBoard logger, by tensorboardX (no TensorFlow)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ppax.protocols import Row


def require_tensorboard() -> Any:
    """Import tensorboardX; ImportError, with the extra to install, if it is missing."""
    try:
        import tensorboardX
    except ImportError as error:
        raise ImportError('TensorBoard logging needs an extra: pip install "ppax[tensorboard]"') from error
    return tensorboardX


class TensorBoard:
    """Logger of TensorBoard event files: scalars over env-steps."""

    def __init__(self, directory: Path, purge_from: int | None = None):
        """Write below `directory`; on resume, events from `purge_from` env-steps on are superseded."""
        self._writer = require_tensorboard().SummaryWriter(str(directory), purge_step=purge_from)

    def log(self, row: Row) -> None:
        """Write one row."""
        for name, value in row.items():
            if name != "env_steps" and isinstance(value, int | float) and math.isfinite(value):
                self._writer.add_scalar(name, value, row["env_steps"])
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()
