"""Back-off: when to try again what a full disk, or a lack of handles, has made fail."""

from __future__ import annotations

import time

FIRST_DELAY, LONGEST_DELAY = 0.1, 30.0  # seconds until the next attempt: doubled each time, up to a bound


class Backoff:
    """Attempts with growing delays between them, for at most `patience` seconds."""

    def __init__(self, patience: float):
        self._patience, self._failures = patience, 0
        self._failing_since, self._next = 0.0, 0.0

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failures > 0

    @property
    def due(self) -> bool:
        """Whether to try now."""
        return not self.failing or time.monotonic() >= self._next

    @property
    def hopeless(self) -> bool:
        """Whether it has failed for as long as it may."""
        return self.failing and time.monotonic() - self._failing_since >= self._patience

    def worked(self) -> None:
        """Note an attempt that did not fail."""
        self._failures = 0

    def failed(self) -> float:
        """Note an attempt that failed; seconds until the next one."""
        now = time.monotonic()
        if not self.failing:
            self._failing_since = now
        self._failures += 1
        delay = min(FIRST_DELAY * 2.0 ** min(self._failures - 1, 60), LONGEST_DELAY)
        self._next = now + delay
        return delay
