"""Run directory: layout, lock, record of the starts, check for links, and what happens to an earlier run in its place.

run.toml         the resolved configuration; reproduces the run
policy.json      spaces, masks and memory of the policy: loads it without the environment
about.json       id of the run, and versions, git commit and hardware of each start
metrics.jsonl    one row per chunk of iterations; metrics.csv has the same
checkpoints/     the newest complete states
best/            the best policy so far, with `best.metric`
stopped.json     reason for the end: all done, a stop condition, a signal, a fault
evaluation.json  the evaluation at the end of the run
tensorboard/     event files, with `log.tensorboard`
mlflow.json      id of the MLflow run, with this logger in `log.to`
films/           films during training, with `film.every`
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import platform
import re
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import filelock

from ppax import config as configs
from ppax.core import untrusted
from ppax.core.options import Config
from ppax.core.types import ConfigError, printable
from ppax.loggers import last_row
from ppax.storage import safe_files
from ppax.storage.paths import absolute, quoted, relative

RUN_FILE, SWEEP_FILE, LOCK, OWNER = configs.RUN_FILE, configs.SWEEP_FILE, ".lock", ".owner"
CHECKPOINTS, BEST = "checkpoints", "best"
FOLDERS = (CHECKPOINTS, BEST)  # directories that hold checkpoints
ABOUT, ROWS, STOPPED, EVALUATION = "about.json", "metrics.jsonl", "stopped.json", "evaluation.json"
POLICY = "policy.json"
BUNDLES = LAST_BUNDLE, BEST_BUNDLE = "policy.zip", "best.zip"  # last and best policy, for loggers that store them
OF_START = (ROWS, "metrics.csv", STOPPED, EVALUATION, "mlflow.json")  # files of a start that has trained nothing yet
# Sweep directory (sweeps/directory.py): its run file, its record, and names that are written after them
RECORD, MEMBERS, RESULT = "sweep.json", "members", "result.json"
STUDY = ("study.db", "study.db-journal", "study.db-wal", "study.db-shm")
OF_SWEEP = (MEMBERS, "search.jsonl", *STUDY, "sweep.jsonl", RESULT, "best.toml")
# Files that a new run (sweep) replaces, beside its remains: FOLDERS (OF_SWEEP)
REPLACED = {FOLDERS: (ABOUT, POLICY, *OF_START, *BUNDLES), OF_SWEEP: (ABOUT, RECORD)}
OWNER_LIMIT, ABOUT_LIMIT, TABLE_LIMIT = 2**16, 2**24, 2**20  # bytes; far above the size of a valid file
FORMAT = 1  # version of a run directory, in about.json
DIGITS = 10  # of a checkpoint's name, its iteration
UNTRAINED = "0" * DIGITS  # name of a checkpoint before the first iteration
LONGEST = 100  # characters of a sweep's name in its group
STARTS = 100  # number of later starts recorded after the first


class SweepName(NamedTuple):
    """Name of a sweep, as its about.json has it: the name of its directory when it began, and a unique id."""

    name: str = ""
    id: str = ""

    @property
    def group(self) -> str:
        """Name under which loggers (Weights & Biases, MLflow) group the runs of this sweep; "" for no sweep.

        It is unique, and consists of letters, digits, points, dashes and underscores.
        """
        return f"{re.sub(r'[^A-Za-z0-9_.-]', '_', self.name)[:LONGEST]}-{self.id}" if self.id else ""

    def write(self, path: Path) -> None:
        """Write the name to about.json of the sweep directory `path`."""
        safe_files.write_text(path / ABOUT, json.dumps(self._asdict()) + "\n")


def name_of_sweep(path: Path) -> SweepName:
    """Return the recorded name of the sweep in directory `path`; an empty one where none is recorded."""
    found = untrusted.read_table(path / ABOUT, TABLE_LIMIT)
    name, sweep_id = found.get("name"), found.get("id")
    if not (isinstance(name, str) and isinstance(sweep_id, str) and re.fullmatch("[0-9a-f]{8}", sweep_id)):
        return SweepName()
    return SweepName(printable(name), sweep_id)


class RunDirectory:
    """Open run directory, locked against other processes until it is closed."""

    def __init__(self, path: Path):
        """Lock the directory `path`, which must exist; raise ConfigError if it is in use or contains links."""
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
            safe_files.remove_leftovers(path)
            owner = {"pid": os.getpid(), "host": platform.node(), "since": time.strftime("%Y-%m-%d %H:%M:%S")}
            safe_files.write_text(path / OWNER, json.dumps(owner))
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(
        cls, paths: Path | Iterable[Path], config: Config, policy: dict[str, Any], overwrite: bool = False
    ) -> RunDirectory:
        """Create the directory of a new run, write its configuration, and return it, locked.

        Of several `paths` the first that does not exist yet is used. A single path may exist: if it holds a trained
        run, `overwrite` moves the directory aside; without `overwrite`, ConfigError. `policy` is the specification of
        the run's policy, as plain data. Raises OSError where the directory cannot be written.
        """
        path = absolute(_first_free(paths))
        try:
            with tempfile.TemporaryFile(dir=path) as probe:  # fails here, not at the first checkpoint
                probe.write(b"x")
                probe.flush()
                os.fsync(probe.fileno())
        except OSError as error:  # with the directory's name, not with that of the probe
            raise OSError(error.errno, error.strerror, str(path)) from error
        directory = cls.vacant(path, overwrite, FOLDERS)
        try:
            directory._write_about({"format": FORMAT, "id": secrets.token_hex(8), "starts": []})
            directory.write_policy(policy)
            directory.write_config(config)
        except BaseException:
            directory.close()
            raise
        return directory

    @classmethod
    def vacant(cls, path: Path, overwrite: bool, remains: tuple[str, ...]) -> RunDirectory:
        """Lock the existing directory `path` for a new run or sweep, and return it without the run that it held before.

        An earlier run or sweep has trained if it has a checkpoint, a best policy or a recorded end of iteration 1 or
        later: then the directory is moved aside with `overwrite`; without `overwrite`, ConfigError. If it has not
        trained, its files are removed; but if it has log rows of iteration 1 or later, the directory is moved aside.
        Raises ConfigError, too, in a directory without a run file: for contents that would be taken for the new run's,
        which are entries named in `remains` (FOLDERS or OF_SWEEP), and for other files that it would replace.
        """
        directory = cls(path)
        try:
            earlier = require_vacant(path, overwrite, remains)
            if earlier is not None and earlier.kept:
                return directory._moved_aside(earlier)
            if earlier is not None:
                _clear(path, earlier)
            return directory
        except BaseException:
            directory.close()
            raise

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open and lock the directory of an existing run; ConfigError where there is none."""
        read_run_config(path)
        return cls(path)

    def _moved_aside(self, earlier: Earlier) -> RunDirectory:
        """Rename the directory to a name that is free, and return a new one in its place.

        A warning says what it held (`earlier`) and how it is called now.
        """
        path = self.path
        aside = next(one for one in _names_aside(path) if not os.path.lexists(one))
        if os.name != "posix":
            self.close()  # Windows renames no directory with an open file inside, such as that of the lock
        os.rename(path, aside)  # of a name taken just now, this could replace an empty directory alone
        self.path = aside
        self.close()
        path.mkdir()
        warnings.warn(
            f"{relative(path)} held {earlier.kind}: it is now {relative(aside)}, complete and unchanged", stacklevel=2
        )
        return RunDirectory(path)

    def record_start(self, start: dict[str, Any]) -> None:
        """Append one start of the run (versions, hardware, time) to about.json.

        Of all starts, the first one and the newest STARTS (100) are kept.
        """
        about = read_about(self.path)
        starts = [*about.get("starts", []), start]
        self._write_about(about | {"starts": starts[:1] + starts[1:][-STARTS:]})

    def lengthen(self, before: int, after: int) -> dict[str, Any]:
        """Write the new length `after` to the run file, and return a record of the change for about.json.

        Both lengths are values of `total_steps`. If they are the same, nothing is written, and the record is {}.
        """
        if before == after:
            return {}
        self.write_config(read_run_config(self.path) | {"total_steps": after})
        return {"total_steps": {"before": before, "after": after}}

    def write_config(self, config: Config) -> None:
        """Write the configuration of the run to its run file."""
        safe_files.write_text(self.path / RUN_FILE, configs.to_toml(config))

    def write_policy(self, policy: dict[str, Any]) -> None:
        """Write the specification of the run's policy, plain data, to policy.json."""
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
        """Path of the folder with the run's checkpoints."""
        return self.path / CHECKPOINTS

    def close(self) -> None:
        """Release the lock of the directory."""
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


def require_named(run_dir: object, overwrite: bool) -> None:
    """Raise ConfigError if `overwrite` is set and `run_dir` is None."""
    if overwrite and run_dir is None:
        raise ConfigError(
            "overwrite: a run without a named directory replaces none; leave it out, or name one: --run-dir runs/mine "
            "(run_dir='runs/mine' in Python)"
        )


def read_run_config(path: Path) -> Config:
    """Return the configuration of the run in `path`.

    Raises ConfigError where there is no run, where there are links, and for a run directory of another format.
    """
    if path.name == RUN_FILE and path.is_file():
        raise ConfigError(f"{path} is a run file, not a run directory; nearest valid value: {path.parent}")
    if not (path / RUN_FILE).is_file():
        raise ConfigError(configs.of_sweep(path) or f"{path} is not a run directory: it has no {RUN_FILE}")
    refuse_unusual(path)
    written = read_about(path).get("format", 1)  # the first runs have no entry
    if written != FORMAT:
        raise ConfigError(
            f"{path} is a run directory of format {written!r}, and this ppax reads format {FORMAT}: use the version of "
            "ppax that has written it, or a newer one"
        )
    return configs.read(path / RUN_FILE)


def read_about(path: Path) -> dict[str, Any]:
    """Return the content of about.json (id and starts) of the run in `path`; {} where it is missing or invalid."""
    about = untrusted.read_table(path / ABOUT, ABOUT_LIMIT)
    valid = isinstance(about.get("id"), str) and isinstance(about.get("starts"), list)
    return about if valid else {}


def read_policy(path: Path) -> dict[str, Any]:
    """Return the content of policy.json of the run in `path`; ConfigError where it is missing or damaged."""
    try:
        policy = untrusted.read_json(path / POLICY, ABOUT_LIMIT)
        if not isinstance(policy, dict):
            raise ValueError("no table")
        return policy
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path / POLICY} is missing or damaged: {error}; ppax.load(RUN, env=env) takes the spaces from env"
        ) from error


def refuse_unusual(path: Path) -> None:
    """Raise ConfigError, with their names, if the run directory `path` contains links, pipes, devices or sockets.

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
    """Return the directory for a new run: `paths` if it is one path, else the first of them that does not exist yet.

    The directory is created if it is missing. Raises FileExistsError if all of several paths exist.
    """
    if isinstance(paths, Path):
        paths.mkdir(parents=True, exist_ok=True)
        return paths
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            path.mkdir()
            return path
    raise FileExistsError(errno.EEXIST, "all names for the run directory are taken by other runs")


class Earlier(NamedTuple):
    """Run or sweep that a directory holds already: its kind, its run file, and whether it must be kept."""

    kind: str  # "a run" or "a sweep"
    file: str  # its run file
    kept: bool  # it has trained, or logged iterations: it is not removed


def require_vacant(path: Path, overwrite: bool, remains: tuple[str, ...]) -> Earlier | None:
    """Return the run or sweep in the directory `path` that a new one may replace; None if there is none.

    Writes nothing. Raises ConfigError where what the directory holds must stay, by the rules of `RunDirectory.vacant`.
    """
    if (path / SWEEP_FILE).exists():
        kind, file, recorded = "a sweep", SWEEP_FILE, (path / RECORD).is_file()
        runs = [one for one in (path / MEMBERS).iterdir() if one.is_dir()] if (path / MEMBERS).is_dir() else []
    elif (path / RUN_FILE).exists():
        kind, file, recorded, runs = "a run", RUN_FILE, bool(read_about(path)), [path]
    else:
        _refuse_remains(path, remains)
        return None
    trained = any(map(_trained, runs))
    if not (recorded or trained):
        raise ConfigError(
            f"{path} holds a {file} that is not of ppax's own making, and would be replaced: choose another directory"
        )
    if trained and not overwrite:
        raise ConfigError(
            f"{path} already holds {kind}{_what_next(path)}; choose another directory, or write --overwrite "
            "(overwrite=True in Python), which moves it aside"
        )
    kept = trained or any(map(_logged, runs))
    if kept:
        _require_movable(path)
    return Earlier(kind, file, kept)


def _what_next(path: Path) -> str:
    """Return the end of an error message: what a user can do with the run or sweep that `path` holds already."""
    where = quoted(path)
    if (path / RESULT).exists():
        return (
            f", which is finished: `ppax report {where}` shows it, ppax.resume_sweep({str(relative(path))!r}) is its "
            "result in Python"
        )
    kind = untrusted.read_table(path / STOPPED, TABLE_LIMIT).get("kind")
    if kind in ("done", "stopped"):
        longer = f", `ppax resume {where} --total-steps N` makes it longer" if kind == "done" else ""
        return f", which is finished: `ppax report {where}` shows it{longer}"
    return f": `ppax resume {where}` continues it"


def _trained(run: Path) -> bool:
    """Return True if the run directory `run` holds a result of training.

    That is a checkpoint or best policy of iteration 1 or later, or a record that the run ended at such an iteration.
    """
    folders = (run / name for name in FOLDERS if (run / name).is_dir())
    saved = [one.name for folder in folders for one in folder.iterdir()]
    ended = untrusted.read_table(run / STOPPED, TABLE_LIMIT).get("iteration", 0)
    return ended != 0 or any(name != UNTRAINED and not name.startswith(safe_files.PARTIAL) for name in saved)


def _logged(run: Path) -> bool:
    """Return True if the run directory `run` has a log row of iteration 1 or later."""
    rows = run / ROWS
    return rows.exists() and rows.stat().st_size > 0 and last_row(rows).get("iteration") != 0


def _clear(path: Path, earlier: Earlier) -> None:
    """Remove from `path` the files of an `earlier` start that has trained nothing, its run file first.

    Files that are not of a run or sweep stay.
    """
    (path / earlier.file).unlink()
    of_run = earlier.file == RUN_FILE
    for name in (*OF_START, *FOLDERS) if of_run else (RECORD, *OF_SWEEP):
        if (path / name).is_dir():
            shutil.rmtree(path / name)
        else:
            (path / name).unlink(missing_ok=True)


def _names_aside(path: Path) -> Iterator[Path]:
    """Yield names for a directory that is moved aside, without end: NAME-until-DATE-TIME, then with -2, -3, ..."""
    name = f"{path.name}-until-{time.strftime('%Y%m%d-%H%M%S')}"
    yield path.with_name(name)
    for copy in itertools.count(2):
        yield path.with_name(f"{name}-{copy}")


def _require_movable(path: Path) -> None:
    """Raise ConfigError for a directory that must not be renamed.

    These are links, and directories that contain the current directory, belong to another user, or hold further runs.
    """
    there = Path(os.path.realpath(path))
    inside = (one for one in path.iterdir() if one.is_dir() and one.name != MEMBERS)
    others = sorted(one.name for one in inside if (one / RUN_FILE).exists() or (one / SWEEP_FILE).exists())
    why = ""
    if path.is_symlink():
        why = f"it is a link to {there}: name that directory"
    elif there in _with_parents_of_here():
        why = "the current directory is inside of it: call ppax from another directory"
    elif hasattr(os, "geteuid") and there.stat().st_uid != os.geteuid():
        why = "it belongs to another user"
    elif others:
        why = f"it holds other runs as well: {', '.join(map(ascii, others[: safe_files.NAMED]))}"
    if why:
        raise ConfigError(f"{path} is not moved aside, as {why}, or choose another directory for the new run")


def _with_parents_of_here() -> list[Path]:
    """Return the current directory and all directories that contain it; [] if it was removed."""
    try:
        here = Path(os.path.realpath(os.curdir))
    except FileNotFoundError:
        return []
    return [here, *here.parents]


def _refuse_remains(path: Path, names: tuple[str, ...]) -> None:
    """Raise ConfigError if the directory `path`, which has no run file, holds what a new run must not meet there.

    That is one of `names`, FOLDERS or OF_SWEEP, except empty folders, and files that the new run (sweep) would replace.
    The latter are ppax's own if its record is among them: it was killed before it wrote the run file.
    """
    for name in names:
        left = path / name
        if left.is_dir() and not any(left.iterdir()):
            continue
        if left.exists():
            raise ConfigError(
                f"{path} has no run file, but it holds {name} of another run, which would be taken for this run's: "
                f"remove {left}, or choose another directory"
            )
    replaced = [name for name in REPLACED[names] if os.path.lexists(path / name)]
    if replaced and not (read_about(path) or name_of_sweep(path).id):
        raise ConfigError(
            f"{path} has no run file, but it holds {', '.join(replaced)}, which would be replaced: move them, or "
            f"choose another directory; nearest valid value: {_first_missing(path / 'run')}"
        )


def _first_missing(path: Path) -> Path:
    """Return `path`, or, if it exists, the first of path-2, path-3, ... that does not exist."""
    names = itertools.chain([path], (path.with_name(f"{path.name}-{copy}") for copy in itertools.count(2)))
    return next(one for one in names if not os.path.lexists(one))


def _owner(path: Path) -> str:
    owner = untrusted.read_table(path / OWNER, OWNER_LIMIT)
    try:
        return printable(f"process {owner['pid']} on {owner['host']} since {owner['since']}")
    except untrusted.MALFORMED:
        return "another process"


def read_end(path: Path) -> dict[str, Any]:
    """Return the content of stopped.json in a run directory; {} while the run goes on, and where it is damaged."""
    return untrusted.read_table(path / STOPPED, TABLE_LIMIT)


def read_evaluation(path: Path, iteration: int | None = None) -> dict[str, Any]:
    """Return the content of evaluation.json in a run directory; {} where it is missing, damaged, or of another policy.

    The policy must be that of this run after `iteration` iterations (None: the run's newest policy).
    """
    found = untrusted.read_table(path / EVALUATION, TABLE_LIMIT)
    if iteration is None:
        iteration = newest_iteration(path)
    other_run = "run_id" in found and found["run_id"] != read_about(path).get("id")
    return {} if other_run or (iteration is not None and found.get("iterations") != iteration) else found


def newest_iteration(path: Path) -> int | None:
    """Return the iteration of a run's newest policy: of its last checkpoint or recorded end; None without either."""
    folder, end = path / CHECKPOINTS, read_end(path).get("iteration")
    names = [one.name for one in folder.iterdir()] if folder.is_dir() and not folder.is_symlink() else []
    saved = [int(name) for name in names if name.isascii() and name.isdigit() and len(name) == DIGITS]
    return max([*saved, *([end] if type(end) is int else [])], default=None)
