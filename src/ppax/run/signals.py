"""Signal handlers: SIGTERM, SIGHUP and Ctrl-C ask the run to finish its chunk of iterations, save and stop."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_HANGUP = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # a closed terminal; Windows has none
ON_DISK = (signal.SIGTERM, signal.SIGINT, *_HANGUP)  # of a run that can be resumed
IN_MEMORY = (signal.SIGINT,)  # of a run without directory: after SIGTERM its result would be lost

_request: ContextVar[threading.Event | None] = ContextVar("request", default=None)


@contextmanager
def stopped_by(request: threading.Event) -> Iterator[None]:
    """Context in which setting the event `request` stops the runs of this thread as a signal would.

    It is for threads other than the main one, which get no signals.
    """
    token = _request.set(request)
    try:
        yield
    finally:
        _request.reset(token)


def _handlers(names: Sequence[signal.Signals]) -> dict[signal.Signals, Any]:
    """Return the present handler of each signal in `names` by signal, without signals that are ignored."""
    return {name: handler for name in names if (handler := signal.getsignal(name)) is not signal.SIG_IGN}


@contextmanager
def interrupted_by_signals(names: Sequence[signal.Signals] = ON_DISK) -> Iterator[None]:
    """Context in which each of the signals `names` raises KeyboardInterrupt, as Ctrl-C does.

    Ignored signals stay ignored. Outside of the main thread, the only one that gets signals, nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = _handlers(names)
    for name in earlier:
        signal.signal(name, signal.default_int_handler)
    try:
        yield
    finally:
        for name, handler in earlier.items():
            signal.signal(name, handler)


@contextmanager
def stop_on_signals(names: Sequence[signal.Signals]) -> Iterator[threading.Event]:
    """Context with an event that is set when any of the signals `names` arrives; the next one has its usual effect.

    Ignored signals stay ignored, as under `nohup` and in background jobs of scripts. Other threads than the main one
    get no signals: there the event is the one passed to `stopped_by`.
    """
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield _request.get() or stop
        return
    earlier = _handlers(names)

    def restore() -> None:
        for name, handler in earlier.items():
            signal.signal(name, handler)

    def handle(number: int, frame: Any) -> None:
        stop.set()
        restore()
        with contextlib.suppress(OSError):  # the terminal is closed
            print("stopping: finishing this chunk; once more to stop at once", file=sys.stderr, flush=True)

    for name in earlier:
        signal.signal(name, handle)
    try:
        yield stop
    finally:
        restore()
