"""Run directory: layout, lock, record of the starts, checks for links.

run.toml         the resolved configuration; reproduces the run
policy.json      spaces, masks and memory of the policy: loads it without the environment
about.json       id of the run, and versions, git commit and hardware of each start
metrics.jsonl    one row per chunk of iterations; metrics.csv has the same
checkpoints/     the newest complete states
best/            the best policy so far, with `best.metric`
stopped.json     reason for the end: all done, a stop condition, a signal, a fault
evaluation.json  the evaluation at its end
tensorboard/     event files, with `log.tensorboard`
mlflow.json      id of the MLflow run, with this logger in `log.to`
films/           films during training, with `film.every`
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
from ppax.storage import safe_files, untrusted
from ppax.storage.paths import absolute, quoted
from ppax.types import ConfigError, printable

RUN_FILE, LOCK, OWNER = configs.RUN_FILE, ".lock", ".owner"
FOLDERS = ("checkpoints", "best")  # directories that hold checkpoints
ABOUT, ROWS, STOPPED, EVALUATION = "about.json", "metrics.jsonl", "stopped.json", "evaluation.json"
POLICY = "policy.json"
OWNER_LIMIT, ABOUT_LIMIT, TABLE_LIMIT = 2**16, 2**24, 2**20  # bytes; far above the size of a valid file
DIGITS = 10  # of a checkpoint's name, its iteration
STARTS = 100  # number of later starts recorded after the first


class RunDirectory:
    """Open run directory, locked against other processes until it is closed."""

    def __init__(self, path: Path):
        """Lock `path`, which must exist. Raise ConfigError if another process uses it or it contains links."""
        self.path = path = absolute(path)
        refuse_unusual(path)
        self._lock = filelock.FileLock(path / LOCK, blocking=False)
        try:
            self._lock.acquire()
        except filelock.Timeout as error:
            raise ConfigError(f"run directory {path} is in use by {_owner(path)}") from error
        # an open handle keeps the inode number from being reused
        self._handle = os.open(path, os.O_RDONLY) if os.name == "posix" else None
        try:
            safe_files.sweep(path)
            owner = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            safe_files.write_text(path / OWNER, json.dumps(owner))
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, paths: Path | Iterable[Path], config: Config, policy: dict[str, Any]) -> RunDirectory:
        """Create the directory of a new run and write its configuration; of several paths, use the first free one.

        `policy` is the specification of its policy, as plain data. Raises ConfigError where the directory already holds
        a run, OSError where it cannot be written.
        """
        path = absolute(_first_free(paths))
        try:
            with tempfile.TemporaryFile(dir=path) as probe:  # fails here, not at the first checkpoint
                probe.write(b"x")
                probe.flush()
                os.fsync(probe.fileno())
        except OSError as error:  # with the directory's name, not with that of the probe
            raise OSError(error.errno, error.strerror, str(path)) from error
        directory = cls(path)
        try:
            _refuse_run(path)
            directory._write_about({"id": secrets.token_hex(8), "starts": []})
            directory.write_policy(policy)
            directory.write_config(config)
        except BaseException:
            directory.close()
            raise
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open the directory of an existing run; ConfigError where there is none."""
        find(path)
        return cls(path)

    def record_start(self, start: dict[str, Any]) -> None:
        """Append a start (versions, hardware, time) to about.json."""
        about = read_about(self.path)
        starts = [*about.get("starts", []), start]
        self._write_about(about | {"starts": starts[:1] + starts[1:][-STARTS:]})

    def lengthen(self, before: int, after: int) -> dict[str, Any]:
        """Write another `total_steps` to the run file; return the record of it, {} if they are the same."""
        if before == after:
            return {}
        self.write_config(find(self.path) | {"total_steps": after})
        return {"total_steps": {"before": before, "after": after}}

    def write_config(self, config: Config) -> None:
        """Write the run file."""
        safe_files.write_text(self.path / RUN_FILE, configs.to_toml(config))

    def write_policy(self, policy: dict[str, Any]) -> None:
        """Write the specification of the policy, plain data."""
        safe_files.write_text(self.path / POLICY, json.dumps(policy, indent=1) + "\n")

    def _write_about(self, about: dict[str, Any]) -> None:
        safe_files.write_text(self.path / ABOUT, json.dumps(about, indent=1) + "\n")

    def require_unchanged(self) -> None:
        """Raise FileNotFoundError if the directory was removed or replaced since it was opened."""
        try:
            same = self._handle is None or os.path.samestat(self.path.stat(), os.fstat(self._handle))
        except OSError:
            same = False
        if not same or not (self.path / RUN_FILE).exists():
            text = "the run directory was removed or replaced while the run went on; nothing more is saved"
            raise FileNotFoundError(errno.ENOENT, text, str(self.path))

    @property
    def checkpoints(self) -> Path:
        """Directory of the checkpoints."""
        return self.path / "checkpoints"

    def close(self) -> None:
        """Release the lock."""
        with contextlib.suppress(OSError):  # the directory may have been removed
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
    """Configuration of the run in `path`; ConfigError where there is no run or the directory contains links."""
    if path.name == RUN_FILE and path.is_file():
        raise ConfigError(f"{path} is a run file, not a run directory; nearest valid value: {path.parent}")
    if not (path / RUN_FILE).is_file():
        raise ConfigError(configs.of_sweep(path) or f"{path} is not a run directory: it has no {RUN_FILE}")
    refuse_unusual(path)
    return configs.read(path / RUN_FILE)


def read_about(path: Path) -> dict[str, Any]:
    """Content of about.json, id and starts of the run in `path`; {} where it is missing or invalid."""
    about = untrusted.read_table(path / ABOUT, ABOUT_LIMIT)
    valid = isinstance(about.get("id"), str) and isinstance(about.get("starts"), list)
    return about if valid else {}


def read_policy(path: Path) -> dict[str, Any] | None:
    """Content of policy.json of the run in `path`; None where it is missing, as in runs of earlier versions."""
    try:
        policy = untrusted.read_json(path / POLICY, ABOUT_LIMIT)
        if not isinstance(policy, dict):
            raise ValueError("no table")
        return policy
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path / POLICY} is damaged: {error}; remove it to read the spaces from the environment"
        ) from error


def refuse_unusual(path: Path) -> None:
    """Raise ConfigError, with their names, if a run directory contains links, pipes, devices or sockets.

    Through a link, the author of the directory could choose which of the user's files ppax overwrites or removes.
    """
    names = safe_files.unusual(path)
    lock = path / LOCK  # opened, not replaced: it must not be a hard link to another file
    if LOCK not in names and lock.exists() and lock.stat().st_nlink > 1:
        names.append(LOCK)
    if names:
        shown = ", ".join(ascii(name) for name in names[: safe_files.NAMED])
        more = f" and {len(names) - safe_files.NAMED} more" if len(names) > safe_files.NAMED else ""
        raise ConfigError(
            f"{path} contains links or other entries that are neither regular files nor directories: {shown}{more}. "
            "Through a link ppax would write outside of the run directory: remove them, or replace them by the files "
            "that they point to"
        )


def _first_free(paths: Path | Iterable[Path]) -> Path:
    """Return the single path, created if missing; of several, the first that this process could create."""
    if isinstance(paths, Path):
        paths.mkdir(parents=True, exist_ok=True)
        return paths
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise FileExistsError(errno.EEXIST, "all names for the run directory are taken by other runs")


def _refuse_run(path: Path) -> None:
    """Raise ConfigError if `path` holds a run, or checkpoints of one."""
    if (path / RUN_FILE).exists():
        raise ConfigError(
            f"{path} already holds a run: continue it with `ppax resume {quoted(path)}`, or choose another directory"
        )
    for name in FOLDERS:
        if (path / name).is_dir() and any((path / name).iterdir()):
            raise ConfigError(
                f"{path} has no {RUN_FILE}, but it holds {name}/ of another run, which would be taken for this run's: "
                f"remove {path / name}, or choose another directory"
            )


def _owner(path: Path) -> str:
    owner = untrusted.read_table(path / OWNER, OWNER_LIMIT)
    try:
        return printable(f"process {owner['pid']} on {owner['host']} since {owner['since']}")
    except untrusted.MALFORMED:
        return "another process"


def read_evaluation(path: Path, iteration: int | None = None) -> dict[str, Any]:
    """Return EVALUATION of a run directory; {} where it is missing, damaged, or of another policy.

    The policy is that after `iteration` iterations of this run, by default the newest.
    """
    found = untrusted.read_table(path / EVALUATION, TABLE_LIMIT)
    if iteration is None:
        iteration = _newest_iteration(path)
    other_run = "run_id" in found and found["run_id"] != read_about(path).get("id")
    return {} if other_run or (iteration is not None and found.get("iterations") != iteration) else found


def _newest_iteration(path: Path) -> int | None:
    """Return the iteration of the newest policy: of the last checkpoint or the run's end; None without either."""
    folder, end = path / FOLDERS[0], untrusted.read_table(path / STOPPED, TABLE_LIMIT).get("iteration")
    names = [one.name for one in folder.iterdir()] if folder.is_dir() and not folder.is_symlink() else []
    saved = [int(name) for name in names if name.isascii() and name.isdigit() and len(name) == DIGITS]
    return max([*saved, *([end] if type(end) is int else [])], default=None)
