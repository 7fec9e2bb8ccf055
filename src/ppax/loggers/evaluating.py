"""Progress of an evaluation on the console: a live line on a terminal, plain lines at growing intervals elsewhere."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, TextIO

from ppax.loggers.console import PLAIN_SECONDS, appends_lines, write_line

if TYPE_CHECKING:
    from rich.progress import Progress


class EvaluationLine:
    """Context manager that shows the progress of an evaluation of `episodes` episodes on `stream`.

    `stream` None is standard error. The object is called with the number of episodes that have ended and of steps so
    far. On a terminal it shows a live line; elsewhere a line is written when it begins, and others after 5, 10, 20, ...
    seconds.
    """

    def __init__(self, episodes: int, stream: TextIO | None = None):
        self._episodes, self._stream = episodes, stream
        self._progress: Progress | None = None
        self._begin, self._next = time.monotonic(), PLAIN_SECONDS

    def __enter__(self) -> EvaluationLine:
        title = f"evaluation of {self._episodes:,} episode{'s' if self._episodes > 1 else ''}"
        if appends_lines(self._stream):
            with contextlib.suppress(OSError):  # a broken pipe ends no evaluation
                write_line(f"{title} ...", self._stream)
            return self
        from ppax.loggers import terminal  # Rich takes a tenth of a second to import

        self._progress = terminal.waiting_line(terminal.console(self._stream))
        self._task = self._progress.add_task("", total=None, texts=[title])
        self._progress.start()
        return self

    def __call__(self, ended: int, steps: int) -> None:
        """Show that `ended` episodes have ended, after `steps` steps of all environments."""
        now = time.monotonic() - self._begin
        if self._progress is None and now < self._next:
            return
        text = f"evaluation: {ended:,} of {self._episodes:,} episodes have ended, {steps:,} steps"
        if self._progress is not None:
            self._progress.update(self._task, texts=[text])
            return
        while self._next <= now:
            self._next *= 2.0
        with contextlib.suppress(OSError):
            write_line(f"{text}, {now:.0f} s", self._stream)

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            with contextlib.suppress(OSError):  # the terminal is closed
                self._progress.stop()
