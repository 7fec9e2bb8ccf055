"""Storage of a study: a database by URL, a SQLite file by default."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import optuna
import sqlalchemy

from ppax.sweeps.search.optuna import Optuna
from ppax.sweeps.studies.samplers import PRUNERS, sampler_of
from ppax.types import ConfigError

ATTEMPTS = 5  # attempts to open a database whose tables another worker creates meanwhile
FAULTS = (sqlalchemy.exc.SQLAlchemyError, optuna.exceptions.StorageInternalError)  # errors of a database
AT_ONCE = (  # others create the tables at the same time
    sqlalchemy.exc.IntegrityError,
    sqlalchemy.exc.ProgrammingError,
    optuna.exceptions.StorageInternalError,
)


def sqlite_file(path: Path) -> str:
    """Return the URL of a SQLite file."""
    return sqlalchemy.engine.URL.create("sqlite", database=str(path.resolve())).render_as_string()


def one_at_a_time(url: str) -> contextlib.AbstractContextManager[Any]:
    """Return a reentrant lock between workers: of a file for SQLite, which cannot lock rows; else none."""
    made = sqlalchemy.engine.make_url(url)
    if made.get_backend_name() == "sqlite" and made.database:
        return filelock.FileLock(f"{made.database}.lock")
    return contextlib.nullcontext()


def opened(settings: Optuna, url: str, every: int | None, repeat: Callable[[Any, Any], None]) -> tuple[Any, Any]:
    """Return a study that exists or is created, and its storage; ConfigError where there is no such database.

    A worker records a heartbeat each `every` seconds; None: it shares the study with no other. `repeat` gets the
    study and a trial of a worker that was lost.
    """
    life = {} if every is None else {"heartbeat_interval": every, "grace_period": settings.patience}
    with quiet():
        sampler = sampler_of(settings)
    for attempt in range(ATTEMPTS):
        try:
            with quiet():
                storage = optuna.storages.RDBStorage(url, heartbeat_stale_trial_callback=repeat, **life)
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
                raise ConfigError(f"search.storage = {shown(url)}: {first_line(error)}") from error
            time.sleep(0.5)
    raise AssertionError("unreachable: the last attempt returns or raises")


def shown(url: str) -> str:
    """Return a URL without its password."""
    try:
        return sqlalchemy.engine.make_url(url).render_as_string(hide_password=True)
    except sqlalchemy.exc.ArgumentError:
        return "(no URL of a database, as postgresql+psycopg://host/name)"


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Context without Optuna's messages about every trial and about what it calls experimental."""
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
    """Return the first line of an error's message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
