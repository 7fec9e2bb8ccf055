"""Logger in a thread of its own, so that a slow or unreachable server never holds up training."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from ppax.core.protocols import Artifact, FailureLogger, FileLogger, Logger, Row

WAITING = 10_000  # rows and files that may wait for a slow server
PATIENCE = 120.0  # seconds that the end of a run waits for rows and files not yet logged


class Background:
    """Logger that hands all rows and files to another logger, which works in a thread of its own.

    An exception of the other logger is raised once, by the next call of a method of this one.
    """

    def __init__(self, open_logger: Callable[[], FileLogger], patience: float = PATIENCE):
        """Start the thread, which opens a logger with `open_logger`; `close` waits for it up to `patience` seconds."""
        self._patience = patience
        self._waiting: queue.Queue[Row | Artifact | BaseException | None] = queue.Queue(WAITING)
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

    def fail(self, error: BaseException) -> None:
        """Tell the other logger, if it has a method `fail`, that the run ended with an exception."""
        self._put(error)

    def close(self) -> None:
        """Wait until everything is logged and the thread has ended, also after `log` has found the queue full.

        Raises TimeoutError if that takes longer than `patience` seconds, an argument of the constructor.
        """
        deadline = time.monotonic() + self._patience
        try:
            self._waiting.put(None, timeout=self._patience)
            self._thread.join(max(0.0, deadline - time.monotonic()))
        except queue.Full:
            pass
        if self._thread.is_alive():
            raise TimeoutError(f"{self._waiting.qsize()} rows or files still waited after {self._patience:g} s")
        self._raise_error()

    def _put(self, item: Row | Artifact | BaseException) -> None:
        self._raise_error()
        try:
            self._waiting.put_nowait(item)
        except queue.Full:
            raise TimeoutError(f"{self._waiting.qsize():,} rows or files wait: they come faster than it logs") from None

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
                    elif isinstance(item, BaseException):
                        tell_failure(logger, item)
                    else:
                        logger.log(item)
            finally:
                logger.close()
        except Exception as error:
            self._error = error
            while not self._waiting.empty():  # nobody takes rows any more: `close` must find room in the queue
                self._waiting.get()


def tell_failure(logger: Logger, error: BaseException) -> None:
    """Call the method `fail` of a logger that has one: its run has ended with `error`."""
    if isinstance(logger, FailureLogger):
        logger.fail(error)
