"""Storage of a study of Optuna: a database by URL, a SQLite file by default."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import optuna
import sqlalchemy

from ppax.core import untrusted
from ppax.core.types import ConfigError
from ppax.sweeps.search import Optuna
from ppax.sweeps.studies.space import PRUNERS, sampler_of

LOCK = ".ppax-lock"  # ending of the name of a lock: NAME.lock is often a file of others, as uv.lock
JOURNAL = bytes.fromhex("d9d505f920a163d7")  # end of a journal that names a super-journal
ATTEMPTS = 5  # attempts to open a database whose tables another worker creates meanwhile
FAULTS = (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError)  # errors of a database
# errors of what Optuna parses without a check, in a database that is damaged or a stranger's
DAMAGE = (*FAULTS, LookupError, ValueError, TypeError, AttributeError, RuntimeError, AssertionError, OverflowError)
AT_ONCE = (  # others create the tables at the same time
    sqlalchemy.exc.IntegrityError,
    sqlalchemy.exc.ProgrammingError,
    optuna.exceptions.StorageInternalError,
)


def sqlite_file(path: Path) -> str:
    """Return the URL of the SQLite file at `path`."""
    return sqlalchemy.engine.URL.create("sqlite", database=str(path.resolve())).render_as_string()


def one_at_a_time(url: str) -> contextlib.AbstractContextManager[Any]:
    """Return a reentrant lock with which the workers of a study take turns in its database.

    For SQLite, which cannot lock rows, it is a lock file; other databases need none, and it does nothing.
    """
    file = _file_of(url)
    return contextlib.nullcontext() if file is None else filelock.FileLock(f"{file}{LOCK}")


def _file_of(url: str) -> str | None:
    """Return the path of the SQLite database at a URL; None for other databases, and for what is no URL."""
    try:
        made = sqlalchemy.engine.make_url(url)
    except sqlalchemy.exc.ArgumentError:
        return None
    return made.database if made.get_backend_name() == "sqlite" and made.database else None


def require_sound_files(url: str) -> None:
    """Raise ConfigError where files of a SQLite database could let a stranger change or remove other files.

    The files must not be symbolic links or have more than one hard link, as writing to them would change another file.
    A lock file must be empty, because some versions of filelock truncate it. A journal must not end with the name of a
    super-journal, which SQLite would remove (https://sqlite.org/fileformat.html#the_rollback_journal); the journal of a
    study has none.
    """
    file = _file_of(url)
    for ending in () if file is None else ("", "-journal", "-wal", "-shm", LOCK):
        path = f"{os.path.realpath(str(file))}{ending}"  # beside the file itself, as SQLite looks for them
        if not os.path.lexists(path):
            continue
        found = os.lstat(path)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise ConfigError(f"{path}: a link, or another name of a file; must be a file of its own: copy it")
        if ending == LOCK and found.st_size:
            raise ConfigError(f"{path}: must be a study's lock, an empty file; remove it, or take another database")
        if ending == "-journal" and _end_of(Path(path), len(JOURNAL)) == JOURNAL:
            raise ConfigError(f"{path}: a journal of several databases; SQLite would remove a file: remove the journal")


def _end_of(path: Path, size: int) -> bytes:
    with os.fdopen(untrusted.open_to_read(path), "rb") as file:
        file.seek(-min(size, os.fstat(file.fileno()).st_size), os.SEEK_END)
        return file.read()


def opened(settings: Optuna, url: str, every: int | None, repeat: Callable[[Any, Any], None]) -> tuple[Any, Any]:
    """Return (study, its storage), opened or created in the database at `url`; ConfigError where that fails.

    A worker records a heartbeat each `every` seconds; `every` is None if the study is shared with no other worker.
    `repeat` is called with the study and each trial of a worker that was lost.
    """
    require_sound_files(url)
    life = {} if every is None else {"heartbeat_interval": every, "grace_period": settings.patience}
    # a SQLite file is open while it is used, and not until the study is collected as garbage: Python 3.13 warns of that
    pool = {"poolclass": sqlalchemy.pool.NullPool} if _file_of(url) is not None else None
    with quiet():
        sampler = sampler_of(settings)
    for attempt in range(ATTEMPTS):
        try:
            with quiet():
                storage = optuna.storages.RDBStorage(url, pool, heartbeat_stale_trial_callback=repeat, **life)
                study = optuna.create_study(
                    study_name=settings.study,
                    storage=storage,
                    sampler=sampler,
                    pruner=PRUNERS[settings.pruner](),
                    direction="maximize",
                    load_if_exists=True,
                )
            return study, storage
        except (ImportError, *FAULTS) as error:
            if attempt + 1 == ATTEMPTS or not isinstance(error, AT_ONCE):
                raise ConfigError(f"search.storage = {shown_url(url)}: {first_line(error)}") from error
            time.sleep(0.5)
    raise AssertionError("unreachable: the last attempt returns or raises")


def shown_url(url: str) -> str:
    """Return a database's URL with its password hidden, for messages; if `url` is no URL, a text that says so."""
    try:
        return sqlalchemy.engine.make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return "(no URL of a database, as postgresql+psycopg://host/name)"


def reading(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a method of a study: errors of the database at `self._url` become a ConfigError."""

    @functools.wraps(method)
    def checked(self: Any, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except ConfigError:
            raise
        except DAMAGE as error:
            why = f"{type(error).__name__}: {first_line(error)}"
            raise ConfigError(
                f"search.storage = {shown_url(self._url)}: its study cannot be read or written: {why}"
            ) from error

    return checked


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Context in which Optuna prints no messages about trials and no warnings about experimental features."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            warnings.filterwarnings("ignore", "Heartbeat of storage")  # a study gives its heartbeats itself
            yield
    finally:
        optuna.logging.set_verbosity(before)


def first_line(error: Exception) -> str:
    """Return the first line of an error's message; the name of the error's type if it has no message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
