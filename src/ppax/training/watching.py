"""Progress of a running evaluation, for a function that shows it: episodes that have ended, and steps so far."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Watcher = Callable[[int, int], None]  # gets the number of ended episodes and of steps, often: it must be quick

_watcher: ContextVar[Watcher | None] = ContextVar("watcher", default=None)


@contextmanager
def watched_by(watcher: Watcher) -> Iterator[None]:
    """Context in which evaluations on the host call `watcher(ended, steps)` after every step of all environments.

    `ended` is the number of episodes that have ended, `steps` the number of steps so far, of all streams (one agent in
    one environment each). Evaluations in compiled environments do not call it, because each is one program that reports
    nothing before its end.
    """
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def watcher_of_evaluations() -> Watcher | None:
    """Return the function to which evaluations report their progress; None outside of the context `watched_by`."""
    return _watcher.get()
