"""A run's directory: who may write in it, and what stands where.

run.toml         the resolved configuration; reproduces the run
metrics.jsonl    one row a chunk of iterations; metrics.csv has the same
checkpoints/     the newest whole states
best/            the best policy so far, when asked for
stopped.json     why it ended: all done, a stop condition, a signal, a fault
tensorboard/     event files, when asked for
"""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from pathlib import Path
from types import TracebackType

import filelock

from ppax import config as configs
from ppax.options import Config
from ppax.types import ConfigError

RUN_FILE = configs.RUN_FILE


class RunDirectory:
    """An open run directory; exclusively ours until closed, also across processes."""

    def __init__(self, path: Path):
        """Lock `path`, which must exist. Raises ConfigError where another process is using it."""
        self.path = path
        self._lock = filelock.FileLock(path / ".lock", blocking=False)
        try:
            self._lock.acquire()
        except filelock.Timeout as error:
            raise ConfigError(f"run directory {path} is in use by {_owner(path)}") from error
        owner = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
        (path / ".owner").write_text(json.dumps(owner), encoding="utf-8")

    @classmethod
    def create(cls, path: Path, config: Config) -> RunDirectory:
        """A new run's directory, with its configuration in it.

        Raises ConfigError where a run is there already, OSError where it cannot be written.
        """
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as probe:  # better to fail now than at the first checkpoint
            probe.write(b"x")
            probe.flush()
            os.fsync(probe.fileno())
        directory = cls(path)
        if (path / RUN_FILE).exists():
            directory.close()
            raise ConfigError(
                f"{path} already holds a run: continue it with `ppax resume {path}`, or choose another directory"
            )
        partial = path / (RUN_FILE + ".tmp")
        partial.write_text(configs.to_toml(config), encoding="utf-8")
        os.replace(partial, path / RUN_FILE)
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """An existing run's directory."""
        find(path)
        return cls(path)

    @property
    def checkpoints(self) -> Path:
        """Where whole states are kept."""
        return self.path / "checkpoints"

    def close(self) -> None:
        """Let others in."""
        (self.path / ".owner").unlink(missing_ok=True)
        self._lock.release()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def find(path: Path) -> Config:
    """The configuration of the run in `path`; ConfigError where there is none."""
    if not (path / RUN_FILE).is_file():
        raise ConfigError(f"{path} is not a run directory: it has no {RUN_FILE}")
    return configs.read(path / RUN_FILE)


def _owner(path: Path) -> str:
    try:
        owner = json.loads((path / ".owner").read_text(encoding="utf-8"))
        return f"process {owner['pid']} on {owner['host']} since {owner['since']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
