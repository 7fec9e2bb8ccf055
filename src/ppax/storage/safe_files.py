"""Files of a run: written under a fresh random name and renamed, never through a link; read only if regular files.

A run directory may come from a stranger: a link in it would let its author choose which of the user's files are
overwritten, and a named pipe would be waited for without end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path

PARTIAL = ".tmp-"  # begins the names of files that are being written
# flags that Windows lacks are 0 there
PLAIN = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | PLAIN
NAMED = 10  # names of links in one message at most


def write(path: Path, data: bytes) -> None:
    """Put `data` in the place of the file `path`, whole or not at all; what was there, a link too, is replaced."""
    with replacing(path) as partial, open(partial, "wb") as file:
        file.write(data)


def write_text(path: Path, text: str) -> None:
    """`write` for text, as UTF-8."""
    write(path, text.encode())


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new empty file beside `path`, which takes its place at the end; for libraries that write by themselves."""
    partial = path.with_name(f"{PARTIAL}{secrets.token_hex(8)}{path.suffix}")
    try:
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
    """Write the file `path`, which must not exist, to the disk itself."""
    with os.fdopen(os.open(path, NEW, 0o666), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def open_to_append(path: Path) -> int:
    """Handle for appending to a regular file, which is made where there is none."""
    return _regular(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | PLAIN | _no_wait(), 0o666), path)


def open_to_read(path: Path) -> int:
    """Handle for reading a regular file; OSError for links, pipes and devices."""
    return _regular(os.open(path, os.O_RDONLY | PLAIN | _no_wait()), path)


def read(path: Path, limit: int | None = None) -> bytes:
    """Content of a regular file of at most `limit` bytes; OSError for links, pipes, devices and longer ones."""
    with os.fdopen(open_to_read(path), "rb") as file:
        if limit is not None and os.fstat(file.fileno()).st_size > limit:
            raise OSError(errno.EFBIG, f"more than {limit} bytes", str(path))
        return file.read()


def flush_directory(directory: Path) -> None:
    """Make a directory's entries durable, where the system can."""
    if os.name == "posix":
        _flush(directory, os.O_RDONLY)  # the user may reach it through a link


def sweep(directory: Path) -> None:
    """Remove files that a writer that was killed has left; the caller holds the run's lock."""
    for leftover in directory.glob(f"{PARTIAL}*"):
        with contextlib.suppress(OSError):
            leftover.unlink()


def unusual(directory: Path) -> list[str]:
    """Names below `directory` of links, pipes, devices and sockets: everything but regular files and directories."""
    found, left = [], [directory]
    while left:
        here = left.pop()
        with contextlib.suppress(FileNotFoundError):  # a run that is going on removes old checkpoints
            for entry in os.scandir(here):
                if entry.is_dir(follow_symlinks=False):
                    left.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False) and os.path.lexists(entry.path):
                    found.append(os.path.relpath(entry.path, directory))
    return sorted(found)


def _regular(handle: int, path: Path) -> int:
    """`handle`, if it is of a regular file."""
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def _no_wait() -> int:
    """Flag that opens a named pipe at once, instead of waiting for its other end."""
    return getattr(os, "O_NONBLOCK", 0)


def _flush(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
