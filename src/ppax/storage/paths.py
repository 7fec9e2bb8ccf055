"""Checks of paths that callers of the Python API or the command line pass, and the form of paths in messages."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ppax.core.types import ConfigError


def to_path(given: str | os.PathLike[str], name: str) -> Path:
    """Return `given` as a Path, with ~ as the home directory; ConfigError if it is no path, or the empty text.

    `name` is the argument's name in the message.
    """
    if given != "" and isinstance(given, str | os.PathLike):
        return Path(os.path.expanduser(given))
    here = "; the current directory is '.'" if given == "" else ""
    raise ConfigError(f"{name} = {given!r}: must be a path, as 'runs/mine'{here}")


def to_directory(given: str | os.PathLike[str], name: str) -> Path:
    """Return the absolute path of a directory, which may not exist yet; ConfigError where a file is in the way.

    `name` is the argument's name in the message.
    """
    path = absolute(to_path(given, name))
    there = next((one for one in (path, *path.parents) if one.exists()), path)
    if there.exists() and not there.is_dir():
        raise ConfigError(
            f"{name} = {str(given)!r}: {relative(there)} is a file; must be a new directory, or an empty one"
        )
    return path


def require_place(path: Path, example: str) -> None:
    """Raise ConfigError unless a file can be written at `path`.

    `example` is a file's name: if `path` is a directory, the message proposes the file of this name in it.
    """
    if path.is_dir():
        raise ConfigError(f"{path}: is a directory; must be a file; nearest valid value: {path / example}")
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no directory {path.parent}; nearest valid value: {path.name}")


def absolute(path: str | Path) -> Path:
    """Return `path` as an absolute path, with ~ as the home directory.

    The result stays valid where user code changes the current directory.
    """
    return Path(os.path.expanduser(path)).absolute()


def relative(path: Path) -> Path:
    """Return `path` as messages show it: relative to the current directory if it lies inside, else unchanged."""
    try:
        return path.relative_to(Path.cwd())
    except (OSError, ValueError):  # the current directory is removed, or does not contain the path
        return path


def quoted(path: Path) -> str:
    """Return a path as messages show it (by `relative`), quoted as one word of a shell command."""
    return command_line([str(relative(path))])


def command_line(words: Sequence[str]) -> str:
    """Return `words`, a command and its arguments, as one line for this system's shell, each quoted where necessary."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)
