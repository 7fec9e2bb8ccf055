"""Rich's console and progress line, as the console logger uses them."""

from __future__ import annotations

from rich.console import Console as RichConsole
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

IN_NOTEBOOKS = False  # plain lines there: a live display in a notebook needs ipywidgets


class Lines(RichConsole):
    """Rich console that raises at a broken pipe, where Rich would exit the program."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, so that only this logger is removed."""
        self.quiet = True
        raise BrokenPipeError


def progress_line(console: RichConsole) -> Progress:
    """Return the live line: bar, share done, the row's text, time left."""
    return Progress(
        TextColumn("training"),
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TextColumn("{task.fields[text]}"),
        TextColumn("ETA"),
        TimeRemainingColumn(),
        console=console,
    )
