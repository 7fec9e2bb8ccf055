"""Exponential backoff for writes that fail, as on a full disk or where too many files are open."""

from __future__ import annotations

import time

FIRST_DELAY, LONGEST_DELAY = 0.1, 30.0  # seconds until the next attempt: doubled each time, up to a bound


class Backoff:
    """Schedule of attempts to write: after each failure the delay doubles, for at most `patience` seconds in all."""

    def __init__(self, patience: float):
        self._patience, self._failures = patience, 0
        self._failing_since, self._next = 0.0, 0.0

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    @property
    def due(self) -> bool:
        """Whether the next attempt may be made now, because none has failed or its delay is over."""
        return not self.failing or time.monotonic() >= self._next

    @property
    def hopeless(self) -> bool:
        """Whether attempts to write have failed for `patience` seconds, without one that succeeded."""
        return self.failing and time.monotonic() - self._failing_since >= self._patience

    def succeeded(self) -> None:
        """Record a successful attempt, after which there is no delay."""
        self._failures = 0

    def failed(self) -> float:
        """Record a failed attempt, and return the seconds until the next one."""
        now = time.monotonic()
        if not self.failing:
            self._failing_since = now
        self._failures += 1
        delay = min(FIRST_DELAY * 2.0 ** min(self._failures - 1, 60), LONGEST_DELAY)
        self._next = now + delay
        return delay
