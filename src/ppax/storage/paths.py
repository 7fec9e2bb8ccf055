"""Paths that a caller of the Python API or of the command line names."""

from __future__ import annotations

import os
from pathlib import Path

from ppax.types import ConfigError


def to_path(given: str | os.PathLike[str], name: str) -> Path:
    """Return `given` as a Path; ConfigError, under the argument's `name`, for what is no path."""
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise ConfigError(f"{name} = {given!r}: must be a path, as 'runs/mine'")
