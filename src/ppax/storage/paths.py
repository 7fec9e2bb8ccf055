"""Paths of run directories and sweeps: absolute for files, short and quoted in messages and commands."""

from __future__ import annotations

import os
import shlex
from pathlib import Path


def absolute(path: str | Path) -> Path:
    """Absolute path, ~ being the home directory: it stays valid where code of the user changes the directory."""
    return Path(os.path.expanduser(path)).absolute()


def relative(path: Path) -> Path:
    """Path as messages show it: relative to the current directory, if it is inside."""
    try:
        return path.relative_to(Path.cwd())
    except (OSError, ValueError):  # the current directory is removed, or does not contain the path
        return path


def quoted(path: Path) -> str:
    """Path as `relative` returns it, as a word of a shell command."""
    return shlex.quote(str(relative(path)))
