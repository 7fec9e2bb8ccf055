"""Console logger: a live progress line on a terminal, plain lines at intervals elsewhere."""

from __future__ import annotations

import contextlib
import math
import time
from typing import TYPE_CHECKING, TextIO

from ppax.protocols import Row

if TYPE_CHECKING:
    from rich.progress import Progress

PLAIN_SECONDS = 5.0  # minimum seconds between lines without a terminal
COMPILING = "compiling ..."


class Console:
    """Progress with env-steps, steps/s, episode return and time left; "compiling ..." until `begin`."""

    def __init__(self, total_iterations: int, stream: TextIO | None = None):
        """Show progress up to `total_iterations` on `stream` (standard error by default)."""
        self._total = total_iterations
        from ppax.loggers import terminal  # Rich takes a tenth of a second to import

        self._console = terminal.Lines(file=stream, stderr=stream is None, force_jupyter=terminal.IN_NOTEBOOKS)
        self._progress: Progress | None = None
        self._last = 0.0
        self._evaluated = math.nan  # return of the latest evaluation
        if not self._console.is_terminal:
            self._print(COMPILING)
            return
        self._progress = terminal.progress_line(self._console)
        self._task = self._progress.add_task("", total=total_iterations, text=COMPILING)
        self._progress.start()

    def begin(self, done: int) -> None:
        """Start the progress line after compilation, at `done` iterations."""
        if self._progress is not None:
            self._progress.reset(self._task, completed=done, text="first iterations")

    def log(self, row: Row) -> None:
        """Show one row, with the latest evaluation."""
        evaluated = row.get("eval_return", math.nan)
        self._evaluated = self._evaluated if math.isnan(evaluated) else evaluated
        text = describe(row | {"eval_return": self._evaluated})
        if self._progress is not None:
            self._progress.update(self._task, completed=row["iteration"], text=text)
            return
        now = time.monotonic()
        if row["iteration"] == 0:
            self._console.print(f"  0%  {text}", highlight=False)
        elif now - self._last >= PLAIN_SECONDS or row["iteration"] >= self._total:
            self._last = now
            share = row["iteration"] / self._total
            left = row["seconds"] * (1.0 - share) / max(share, 1e-9)
            self._console.print(f"{share:4.0%}  {text}  ETA {left:.0f} s", highlight=False)

    def close(self) -> None:
        """Restore the terminal."""
        if self._progress is not None:
            with contextlib.suppress(OSError):  # the terminal is closed
                self._progress.stop()

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):  # broken pipe: the next `log` raises, and the logger is removed
            self._console.print(text, highlight=False)


def describe(row: Row) -> str:
    """Steps, speed, episode return and evaluation of a row, in one line."""
    value, evaluated = row["episode_return"], row.get("eval_return", math.nan)
    if row["iteration"] == 0:
        return f"untrained policy: evaluation {evaluated:.1f}"
    episode = "no episode ended meanwhile" if value != value else f"return {value:.1f}"
    evaluation = "" if math.isnan(evaluated) else f"  evaluation {evaluated:.1f}"
    return f"{row['env_steps']:,} env-steps  {row['steps_per_second']:,.0f} steps/s  {episode}{evaluation}"
