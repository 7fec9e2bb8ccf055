"""SIGTERM, SIGHUP and Ctrl-C as a request to finish the iteration, save and stop."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_on_signals(enabled: bool) -> Iterator[threading.Event]:
    """SIGTERM, SIGHUP (a closed terminal) and Ctrl-C set the event; a second one acts as it would have without us."""
    stop = threading.Event()
    if not enabled or threading.current_thread() is not threading.main_thread():
        yield stop
        return
    names = [signal.SIGTERM, signal.SIGINT]
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:  # as nohup does
        names.append(hangup)
    earlier = {name: signal.getsignal(name) for name in names}

    def restore() -> None:
        for name, handler in earlier.items():
            signal.signal(name, handler)

    def handle(number: int, frame: Any) -> None:
        stop.set()
        restore()
        with contextlib.suppress(OSError):  # the terminal may be closed
            print("stopping: finishing this chunk and saving; once more to stop at once", file=sys.stderr, flush=True)

    for name in names:
        signal.signal(name, handle)
    try:
        yield stop
    finally:
        restore()
