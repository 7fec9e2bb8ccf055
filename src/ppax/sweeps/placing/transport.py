"""Transport of run directories between a worker and the directory of the sweep, which only the driver writes.

A worker is an actor of a Ray cluster that trains members of the sweep, the driver the process that began it. A snapshot
has the files that would be left if the worker were killed at that moment, so that a sweep resumed from it has the same
results, bit by bit, as an uninterrupted one. Files are written in the order in which a run writes them: a checkpoint
after the rows and the best policy up to it, the reason for the end after the last checkpoint. Last of all, files that
the worker no longer has are removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ppax.core import untrusted
from ppax.core.types import ConfigError
from ppax.run import checkpoint
from ppax.run.directory import EVALUATION, FOLDERS, LOCK, OWNER, STOPPED, RunDirectory
from ppax.storage import safe_files

CHECKPOINTS = "checkpoints"
SAVED = re.compile(rf"^[^/]+/({'|'.join(FOLDERS)})/\d+/[^/]+$")  # file of a checkpoint
LIMIT = 2**33  # bytes of one file
ORDER = ("best", CHECKPOINTS, STOPPED, EVALUATION)  # written after all other files


class Snapshot(NamedTuple):
    """Content of run directories at one moment, with files by name; a name begins with that of the run directory.

    `files` has the content of those that have changed since the last snapshot, `names` the names of all files.
    """

    files: Mapping[str, bytes]  # those that have changed since the snapshot before
    names: frozenset[str]  # of all files


class Outbox:
    """Maker of snapshots of the run directories in `root`, each with the files that changed since the last snapshot."""

    def __init__(self, root: Path):
        self._root = root
        self._sent: dict[str, tuple[int, int, int]] = {}
        self._checkpoints: set[str] = set()

    def sent(self) -> None:
        """Mark the current files as known to the receiver, so that the next snapshot does not contain them."""
        self._sent, self._checkpoints = _stamps(self._root), _checkpoints(self._root)

    @property
    def due(self) -> bool:
        """Return whether there is a checkpoint that the last snapshot does not have."""
        return not _checkpoints(self._root) <= self._checkpoints

    def take(self) -> Snapshot | None:
        """Return a snapshot of the files that changed since the last one; None if files came or went meanwhile.

        This happens if a run writes checkpoints while the snapshot is taken; a later call succeeds.
        """
        before, checkpoints = _stamps(self._root), _checkpoints(self._root)
        files = {}
        try:
            for name, stamp in before.items():
                if self._sent.get(name) != stamp:
                    files[name] = untrusted.read(self._root / name, LIMIT)
        except OSError:
            return None
        if _checkpoints(self._root) != checkpoints:
            return None
        self._sent, self._checkpoints = before, checkpoints
        return Snapshot(files, frozenset(before))


def collect_files(root: Path, runs: Iterable[str]) -> Snapshot:
    """Return a snapshot of all files of the run directories `runs` (names) in `root`; a missing one has no files."""
    names = [name for run in runs for name in _names(root, run)]
    return Snapshot({name: untrusted.read(root / name, LIMIT) for name in names}, frozenset(names))


def apply(root: Path, runs: Collection[str], snapshot: Snapshot) -> None:
    """Write a snapshot of the run directories `runs` into `root`; ConfigError if another process uses one of them.

    The directories are locked meanwhile. If this process is killed while it writes, the sweep can still resume from
    them.
    """
    _require_inside(runs, snapshot)
    with contextlib.ExitStack() as stack:
        for run in sorted({_run_of(name) for name in snapshot.names}):
            (root / run).mkdir(parents=True, exist_ok=True)
            stack.enter_context(RunDirectory(root / run))
        for stage in range(len(ORDER) + 1):
            _write(root, {name: data for name, data in snapshot.files.items() if _stage(name) == stage})
        for run in runs:
            _remove(root, {name for name in _names(root, run) if name not in snapshot.names})


def _write(root: Path, files: Mapping[str, bytes]) -> None:
    """Write files, content by name, into `root`; all files of a checkpoint appear at once."""
    whole: dict[Path, dict[str, bytes]] = {}
    for name, data in files.items():
        path = root / name
        path.parent.parent.mkdir(parents=True, exist_ok=True)
        if SAVED.match(name):
            whole.setdefault(path.parent, {})[path.name] = data
        else:
            path.parent.mkdir(exist_ok=True)
            safe_files.write(path, data)
    for path, own in whole.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        checkpoint.replace(path, own)


def _remove(root: Path, names: Collection[str]) -> None:
    for name in names:
        path = root / name
        if SAVED.match(name):
            shutil.rmtree(path.parent, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _require_inside(runs: Collection[str], snapshot: Snapshot) -> None:
    """Raise ConfigError if a snapshot has a name outside of the run directories `runs`; ppax's workers send none."""
    for name in {*snapshot.files, *snapshot.names}:
        if _run_of(name) not in runs or ".." in PurePosixPath(name).parts:
            raise ConfigError(f"a worker has sent {name!r}, which is in none of its run directories")


def _run_of(name: str) -> str:
    return name.partition("/")[0]


def _stage(name: str) -> int:
    second = name.split("/")[1]
    return ORDER.index(second) + 1 if second in ORDER else 0


def _names(root: Path, run: str) -> list[str]:
    """Return the names of the regular files in a run directory, without its lock and unfinished files."""
    found = []
    for folder, _, files in os.walk(root / run):
        place = Path(folder).relative_to(root)
        names = [(place / file).as_posix() for file in files if file not in (LOCK, OWNER)]
        found += [name for name in names if safe_files.PARTIAL not in name and not (root / name).is_symlink()]
    return sorted(found)


def _stamps(root: Path) -> dict[str, tuple[int, int, int]]:
    """Return (modification time in ns, size in bytes, inode) of each file in `root`, by name, to detect changes."""
    stamps = {}
    for run in sorted(os.listdir(root)):
        for name in _names(root, run):
            with contextlib.suppress(OSError):  # removed meanwhile
                found = (root / name).stat()
                stamps[name] = found.st_mtime_ns, found.st_size, found.st_ino
    return stamps


def _checkpoints(root: Path) -> set[str]:
    paths = (path for run in root.iterdir() for path in checkpoint.list_checkpoints(run / CHECKPOINTS))
    return {path.relative_to(root).as_posix() for path in paths}
