"""Progress line of the console logger on a terminal, by Rich: always one line, whatever the terminal's width."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console as RichConsole
from rich.progress import Progress, ProgressColumn, Task
from rich.table import Column
from rich.text import Text

BAR, LEAST_BAR = 30, 8  # columns of the bar
DONE, LEFT = "━", "─"  # its two parts
ASCII = str.maketrans({DONE: "=", LEFT: "-"})
GAP = "  "


class RaisingConsole(RichConsole):
    """Console of Rich that raises an exception at a broken pipe, where Rich would exit the program."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, so that the run goes on without its console logger."""
        self.quiet = True
        raise BrokenPipeError


class WholeLine(ProgressColumn):
    """Column of Rich that is the whole progress line: share done, bar, texts of the row, time left."""

    def __init__(self, console: RichConsole):
        super().__init__(Column(no_wrap=True))
        self._console = console

    def render(self, task: Task) -> Text:
        """Return the line for the terminal's present width; what does not fit is left out."""
        texts, width = list(task.fields["texts"]), self._console.width - 1
        since = task.fields.get("since")
        if since is not None and time.monotonic() - since >= 1.0:  # nothing else moves in the line
            texts[0] += f" {_clock(time.monotonic() - since)}"
        text = line(task.percentage, texts, task.time_remaining, width, self._console.options.ascii_only)
        shown = Text(text, no_wrap=True)
        shown.highlight_regex(f"{DONE}+", "bar.complete")
        return shown


class WaitingLine(ProgressColumn):
    """Column of Rich that shows a task of unknown duration as a whole line: its text, and the time since it began."""

    def __init__(self, console: RichConsole):
        super().__init__(Column(no_wrap=True))
        self._console = console

    def render(self, task: Task) -> Text:
        """Return the line, cut to the terminal's present width."""
        texts = GAP.join([*task.fields["texts"], _clock(task.elapsed)])
        return Text(texts[: max(self._console.width - 1, 0)], no_wrap=True)


def console(stream: TextIO | None) -> RichConsole:
    """Return the console of Rich for a terminal: `stream`, or standard error for None."""
    return RaisingConsole(file=stream, stderr=stream is None, force_terminal=True, force_jupyter=False)


def progress_line(console: RichConsole) -> Progress:
    """Return the live progress line on `console`, not yet started."""
    return Progress(WholeLine(console), console=console)


def waiting_line(console: RichConsole) -> Progress:
    """Return a live line on `console` for a task of unknown duration, not yet started; it disappears when stopped."""
    return Progress(WaitingLine(console), console=console, transient=True)


def line(percentage: float, texts: Sequence[str], seconds: float | None, width: int, ascii_only: bool = False) -> str:
    """Return a progress line of at most `width` characters; texts that do not fit are left out whole.

    `seconds` is the time left, None if unknown. In a narrow terminal the bar is left out first, then the texts from the
    last to the second, the time left, and the first text.
    """
    words = [f"{percentage:3.0f}%", *texts, f"ETA {_clock(seconds)}"]
    while len(GAP.join(words)) > width and len(words) > 1:
        words.pop(-2 if len(words) > 3 else -1)
    room = width - len(GAP.join(words)) - len(GAP)
    if room >= LEAST_BAR:
        bar = min(room, BAR)
        done = round(bar * percentage / 100)
        words.insert(1, DONE * done + LEFT * (bar - done))
    found = GAP.join(words)
    return found.translate(ASCII) if ascii_only else found


def _clock(seconds: float | None) -> str:
    """Return a time as hours, minutes and seconds, "0:05:10"; "-:--:--" for None, which is not known yet."""
    if seconds is None:
        return "-:--:--"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
