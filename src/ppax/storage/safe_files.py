"""Atomic writes under a random temporary name, never through a link, and retries of writes that fail."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from ppax.core.untrusted import NO_WAIT, PLAIN, regular

# Exponential backoff for writes that fail, as on a full disk or where too many files are open.

FIRST_DELAY, LONGEST_DELAY = 0.1, 30.0  # seconds until the next attempt: doubled each time, up to a bound


class Backoff:
    """Schedule of attempts to write a file.

    After each failure the delay before the next attempt doubles, up to a limit. When attempts have failed for
    `patience` seconds, `hopeless` is True.
    """

    def __init__(self, patience: float):
        self._patience, self._failures = patience, 0
        self._failing_since, self._next = 0.0, 0.0

    @property
    def failing(self) -> bool:
        """Return whether the last attempt to write failed."""
        return self._failures > 0

    @property
    def due(self) -> bool:
        """Return whether the next attempt to write may be made now: none has failed, or its delay is over."""
        return not self.failing or time.monotonic() >= self._next

    @property
    def hopeless(self) -> bool:
        """Return whether all attempts to write have failed for `patience` seconds."""
        return self.failing and time.monotonic() - self._failing_since >= self._patience

    def succeeded(self) -> None:
        """Record a successful attempt to write, after which there is no delay."""
        self._failures = 0

    def failed(self) -> float:
        """Record a failed attempt to write, and return the seconds until the next one."""
        now = time.monotonic()
        if not self.failing:
            self._failing_since = now
        self._failures += 1
        delay = min(FIRST_DELAY * 2.0 ** min(self._failures - 1, 60), LONGEST_DELAY)
        self._next = now + delay
        return delay


PARTIAL = ".tmp-"  # prefix of the names of temporary files
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN
NAMED = 10  # maximum number of names in one message


def write(path: Path, data: bytes) -> None:
    """Write `data` to the file `path` atomically, in place of an existing file or link."""
    with replacing(path) as partial, open(partial, "wb") as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """Write `text` as UTF-8 to the file `path` atomically, in place of an existing file or link."""
    write(path, text.encode())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new empty file, which is renamed to `path` at the end; for libraries that write files.

    After an exception the new file is removed, and `path` stays as it was.
    """
    partial = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}{path.suffix}")
    try:
        with _naming(path, partial):
            create(partial, b"")
            yield partial
            _flush(partial, os.O_RDWR | PLAIN)
            os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink()
        raise
    flush_directory(path.parent)


def create(path: Path, data: bytes) -> None:
    """Write `data` to the file `path`, which must not exist, and flush it to disk."""
    with _naming(path), os.fdopen(os.open(path, NEW, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextlib.contextmanager
def _naming(path: Path, partial: Path | None = None) -> Iterator[None]:
    """Context that raises an OSError again with the file name `path`, where its own file name would say too little.

    It does so for errors with the name of the temporary file `partial`, and for errors without a file name, such as
    that of a full disk. Other errors pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(partial)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def open_to_append(path: Path) -> int:
    """Return the file descriptor of the regular file `path`, open for appending, and created if it is missing."""
    return regular(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | PLAIN | NO_WAIT, 0o666), path)


def flush_directory(directory: Path) -> None:
    """Flush the entries of a directory to disk, where the system supports it."""
    if os.name == "posix":
        _flush(directory, os.O_RDONLY)  # the user may reach it through a link


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files that a killed writer has left in `directory`.

    The caller must hold the run's lock, so that no other process is writing there.
    """
    for leftover in directory.glob(f"{PARTIAL}*"):
        with contextlib.suppress(OSError):
            leftover.unlink()


def unusual(directory: Path) -> list[str]:
    """Return the paths below `directory` that are neither regular files nor directories, such as links and sockets.

    The paths are sorted, and relative to `directory`.
    """
    found, pending = [], [directory]
    while pending:
        folder = pending.pop()
        with contextlib.suppress(FileNotFoundError):  # a running process removes old checkpoints
            for entry in os.scandir(folder):
                if entry.is_dir(follow_symlinks=False):
                    pending.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                    found.append(os.path.relpath(entry.path, directory))
    return sorted(found)


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
