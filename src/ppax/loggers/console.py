"""Console logger: a live progress line on a terminal, plain lines at intervals elsewhere."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from typing import TYPE_CHECKING, TextIO

from ppax.core.protocols import Row

if TYPE_CHECKING:
    from rich.progress import Progress

PLAIN_SECONDS = 5.0  # minimum seconds between lines without a terminal
COMPILING = "compiling ..."
NO_DISPLAY = ("dumb", "unknown")  # terminals, as TERM names them, that can only append lines


class Console:
    """Logger that shows progress on the console: steps, steps/s, episode return and time left.

    It shows "compiling ..." until `begin` is called.
    """

    def __init__(self, total_iterations: int, stream: TextIO | None = None, steps: int | None = None):
        """Show "compiling ..." on `stream`, by default standard error; the run has `total_iterations` iterations.

        `steps` is the number of steps in an iteration, including steps in which an environment only resets, as in
        `total_steps`. The console then shows the number of iterations times `steps`. If `steps` is None, it shows the
        `env_steps` of the log rows, which exclude resets.
        """
        self._total, self._stream, self._steps = total_iterations, stream, steps
        self._progress: Progress | None = None
        self._last = 0.0
        self._evaluated = math.nan  # return of the latest evaluation
        self._returned = math.nan  # episode return of the latest row in which an episode ended
        if appends_lines(stream):
            with contextlib.suppress(OSError):  # broken pipe: the next `log` raises, and the logger is removed
                write_line(COMPILING, self._stream)
            return
        from ppax.loggers import terminal  # Rich takes a tenth of a second to import

        self._progress = terminal.progress_line(terminal.console(stream))
        self._task = self._progress.add_task("", total=total_iterations, texts=[COMPILING], since=time.monotonic())
        self._progress.start()

    def begin(self, done: int) -> None:
        """Start the progress line when compilation is over; `done` iterations of the run are done already."""
        if self._progress is not None:
            self._progress.reset(self._task, completed=done, texts=["first iterations"], since=time.monotonic())

    def note(self, text: str) -> None:
        """Show a message on what the run is doing now, in place of the newest log row.

        On a terminal, the time since the message appeared is shown after it.
        """
        if self._progress is not None:
            self._progress.update(self._task, texts=[text], since=time.monotonic())
        else:
            write_line(text, self._stream)

    def log(self, row: Row) -> None:
        """Show one row, with the return of the latest evaluation and of the latest episodes.

        On a terminal it replaces the row before. Elsewhere a line is written at most every PLAIN_SECONDS seconds, and
        rows in between are not shown.
        """
        evaluated = row.get("eval_return", math.nan)
        self._evaluated = self._evaluated if math.isnan(evaluated) else evaluated
        done = None if self._steps is None else int(row["iteration"]) * self._steps
        texts = row_texts(row | {"eval_return": self._evaluated}, self._returned, done)
        self._returned = self._returned if math.isnan(row["episode_return"]) else row["episode_return"]
        if self._progress is not None:
            self._progress.update(self._task, completed=row["iteration"], texts=texts, since=None)
            return
        now, text = time.monotonic(), "  ".join(texts)
        if row["iteration"] == 0:
            write_line(f"  0%  {text}", self._stream)
        elif now - self._last >= PLAIN_SECONDS or row["iteration"] >= self._total:
            self._last = now
            share = row["iteration"] / self._total
            left = row["seconds"] * (1.0 - share) / max(share, 1e-9)
            write_line(f"{share:4.0%}  {text}  ETA {left:.0f} s", self._stream)

    def close(self) -> None:
        """End the progress line and restore the terminal."""
        if self._progress is not None:
            with contextlib.suppress(OSError):  # the terminal is closed
                self._progress.stop()


def write_line(line: str, stream: TextIO | None) -> None:
    """Write a line to `stream`, by default standard error, in one call, so that lines of several threads do not mix."""
    stream = stream or sys.stderr
    stream.write(f"{line}\n")
    stream.flush()


def appends_lines(stream: TextIO | None) -> bool:
    """Return whether lines on `stream` (None: standard error) cannot be overwritten, as in a file or dumb terminal."""
    return not (stream or sys.stderr).isatty() or os.environ.get("TERM", "").lower() in NO_DISPLAY


def row_texts(row: Row, earlier: float = math.nan, done: int | None = None) -> list[str]:
    """Return texts for a log row, the most important first: episode return, evaluation, steps and speed.

    If no episode ended in the row, `earlier` is shown and marked as earlier: the return in the latest row in which an
    episode ended. If `earlier` is NaN, the mean reward of a step is shown. The row before training (iteration 0) is
    called "untrained policy". `done` is the number of steps so far, including steps in which an environment only
    resets; if None, the row's `env_steps` are shown, which exclude resets.
    """
    value, evaluated = row["episode_return"], row.get("eval_return", math.nan)
    evaluation = [] if math.isnan(evaluated) else [f"evaluation {evaluated:.1f}"]
    if row["iteration"] == 0:
        return [*evaluation, "untrained policy"]
    count = f"{row['env_steps']:,} env-steps" if done is None else f"{done:,} steps"
    steps = [count, f"{row['steps_per_second']:,.0f} steps/s"]
    if not math.isnan(value):
        return [f"return {value:.1f}", *evaluation, *steps]
    if not math.isnan(earlier):
        return [f"return {earlier:.1f} (earlier: no episode ended)", *evaluation, *steps]
    reward = row.get("reward_mean", math.nan)
    running = [] if math.isnan(reward) else [f"reward {reward:.3g} a step"]
    return [*running, *evaluation, *steps, "no episode ended"]
