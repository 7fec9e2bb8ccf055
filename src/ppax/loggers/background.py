"""Logger in a thread of its own, so that a slow or unreachable server never holds up training."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from ppax.core.protocols import Artifact, FileLogger, Row

WAITING = 10_000  # rows and files that may wait for a slow server
PATIENCE = 120.0  # seconds that the end of a run waits for rows and files not yet logged


class Background:
    """Logger that hands all rows and files to another logger, which works in a thread of its own.

    An exception of the other logger is raised once, by the next call of a method of this one.
    """

    def __init__(self, open_logger: Callable[[], FileLogger], patience: float = PATIENCE):
        """Start the thread, which opens a logger with `open_logger`; `close` waits for it up to `patience` seconds."""
        self._patience = patience
        self._waiting: queue.Queue[Row | Artifact | None] = queue.Queue(WAITING)
        self._error: Exception | None = None
        self._removed = False  # the exception was raised
        # a daemon: a server that does not answer must not keep the process alive
        self._thread = threading.Thread(target=self._work, args=(open_logger,), name="ppax logger", daemon=True)
        self._thread.start()

    def log(self, row: Row) -> None:
        """Put one row into the queue of the thread, which logs it later; TimeoutError if the queue is full."""
        self._put(row)

    def store(self, artifact: Artifact) -> None:
        """Put files into the queue of the thread, which stores them later; they must not move until the run ends."""
        self._put(artifact)

    def close(self) -> None:
        """Wait until everything is logged and the thread has ended.

        Raises TimeoutError if that takes longer than `patience` seconds, an argument of the constructor.
        """
        if self._removed:
            return
        self._put(None)
        self._thread.join(self._patience)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._waiting.qsize()} rows or files still waited after {self._patience:g} s")
        self._raise_error()

    def _put(self, item: Row | Artifact | None) -> None:
        self._raise_error()
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            self._removed = True
            raise TimeoutError(f"{WAITING:,} rows or files wait, and none is taken") from None

    def _raise_error(self) -> None:
        if self._error is not None and not self._removed:
            self._removed = True
            raise self._error

    def _work(self, open_logger: Callable[[], FileLogger]) -> None:
        try:
            logger = open_logger()
            try:
                while (item := self._waiting.get()) is not None:
                    if isinstance(item, Artifact):
                        logger.store(item)
                    else:
                        logger.log(item)
            finally:
                logger.close()
        except Exception as error:
            self._error = error
