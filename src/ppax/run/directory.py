"""A run's directory: who may write in it, and what stands where.

run.toml         the resolved configuration; reproduces the run
about.json       its id, and for each start versions, git commit and hardware
metrics.jsonl    one row a chunk of iterations; metrics.csv has the same
checkpoints/     the newest whole states
best/            the best policy so far, when asked for
stopped.json     why it ended: all done, a stop condition, a signal, a fault
evaluation.json  the evaluation at its end
tensorboard/     event files, when asked for
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import platform
import secrets
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import filelock

from ppax import config as configs
from ppax.options import Config
from ppax.storage import safe_files
from ppax.types import ConfigError

RUN_FILE, LOCK, OWNER = configs.RUN_FILE, ".lock", ".owner"
STATES = ("checkpoints", "best")  # directories of states
ABOUT = "about.json"
OWNER_LIMIT, ABOUT_LIMIT = 2**16, 2**24  # bytes; far above any real one
STARTS = 100  # the first start and so many later ones are recorded


class RunDirectory:
    """An open run directory; exclusively ours until closed, also across processes."""

    def __init__(self, path: Path):
        """Lock `path`, which must exist. Raises ConfigError where another process is using it, or it contains links."""
        refuse_unusual(path)
        self.path = path
        self._lock = filelock.FileLock(path / LOCK, blocking=False)
        try:
            self._lock.acquire()
        except filelock.Timeout as error:
            raise ConfigError(f"run directory {path} is in use by {_owner(path)}") from error
        # held open, so that no later directory gets the same number
        self._handle = os.open(path, os.O_RDONLY) if os.name == "posix" else None
        try:
            safe_files.sweep(path)
            owner = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            safe_files.write_text(path / OWNER, json.dumps(owner))
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, paths: Path | Iterable[Path], config: Config) -> RunDirectory:
        """A new run's directory, with its configuration in it; of several paths, the first that nothing has yet.

        Raises ConfigError where a run is there already, OSError where it cannot be written.
        """
        path = _first_free(paths)
        with tempfile.TemporaryFile(dir=path) as probe:  # better to fail now than at the first checkpoint
            probe.write(b"x")
            probe.flush()
            os.fsync(probe.fileno())
        directory = cls(path)
        try:
            _refuse_run(path)
            directory._write_about({"id": secrets.token_hex(8), "starts": []})
            safe_files.write_text(path / RUN_FILE, configs.to_toml(config))
        except BaseException:
            directory.close()
            raise
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run's directory."""
        find(path)
        return cls(path)

    def record_start(self, start: dict[str, Any]) -> None:
        """Add to the run's record with what it begins, or goes on."""
        about = read_about(self.path)
        starts = [*about.get("starts", []), start]
        self._write_about(about | {"starts": starts[:1] + starts[1:][-STARTS:]})

    def _write_about(self, about: dict[str, Any]) -> None:
        safe_files.write_text(self.path / ABOUT, json.dumps(about, indent=1) + "\n")

    def require_there(self) -> None:
        """Raise OSError where the directory was removed, or replaced, since it was opened."""
        try:
            same = self._handle is None or os.path.samestat(self.path.stat(), os.fstat(self._handle))
        except OSError:
            same = False
        if not same or not (self.path / RUN_FILE).exists():
            text = "the run directory was removed or replaced while the run went on; nothing more is saved"
            raise FileNotFoundError(errno.ENOENT, text, str(self.path))

    @property
    def checkpoints(self) -> Path:
        """Where whole states are kept."""
        return self.path / "checkpoints"

    def close(self) -> None:
        """Let others in."""
        with contextlib.suppress(OSError):  # the directory may be gone
            (self.path / OWNER).unlink(missing_ok=True)
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._lock.release()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find(path: Path) -> Config:
    """The configuration of the run in `path`; ConfigError where there is none, or where it contains links."""
    if not (path / RUN_FILE).is_file():
        raise ConfigError(f"{path} is not a run directory: it has no {RUN_FILE}")
    refuse_unusual(path)
    return configs.read(path / RUN_FILE)


def read_about(path: Path) -> dict[str, Any]:
    """Identity of the run in `path`, and with what it was begun and resumed; {} where that is not recorded."""
    try:
        about = json.loads(safe_files.read(path / ABOUT, ABOUT_LIMIT))
    except (OSError, ValueError, RecursionError):
        return {}
    whole = isinstance(about, dict) and isinstance(about.get("id"), str) and isinstance(about.get("starts"), list)
    return about if whole else {}


def refuse_unusual(path: Path) -> None:
    """Raise ConfigError, with their names, where a run directory contains links, pipes, devices or sockets.

    A link would let the directory's author choose which of the user's files ppax overwrites or removes.
    """
    names = safe_files.unusual(path)
    lock = path / LOCK  # the only file that is not replaced but opened: it must not be another file's second name
    if LOCK not in names and lock.exists() and lock.stat().st_nlink > 1:
        names.append(LOCK)
    if names:
        shown = ", ".join(ascii(name) for name in names[: safe_files.NAMED])
        more = f" and {len(names) - safe_files.NAMED} more" if len(names) > safe_files.NAMED else ""
        raise ConfigError(
            f"{path} contains links or other things that are neither files nor directories: {shown}{more}; a run "
            "directory has none of them, and through a link ppax would write elsewhere. Remove them, or put in their "
            "place the files that they point to"
        )


def _first_free(paths: Path | Iterable[Path]) -> Path:
    """`paths` itself, made where it is not there; of several the first that this process could make."""
    if isinstance(paths, Path):
        paths.mkdir(parents=True, exist_ok=True)
        return paths
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise FileExistsError(errno.EEXIST, "no name for a run directory is free")


def _refuse_run(path: Path) -> None:
    """Raise ConfigError where a run, or what is left of one, is in `path`."""
    if (path / RUN_FILE).exists():
        raise ConfigError(
            f"{path} already holds a run: continue it with `ppax resume {path}`, or choose another directory"
        )
    for name in STATES:
        if (path / name).is_dir() and any((path / name).iterdir()):
            raise ConfigError(
                f"{path} has no {RUN_FILE}, but {name}/ of another run in it, which would be mistaken for this one's: "
                f"remove {path / name}, or choose another directory"
            )


def _owner(path: Path) -> str:
    try:
        owner = json.loads(safe_files.read(path / OWNER, OWNER_LIMIT))
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "another process"
