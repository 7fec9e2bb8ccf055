"""Progress of a whole sweep: a line on the console, and a row for each step in sweep.jsonl."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Protocol

from ppax.loggers import Console, JsonLines, last_row
from ppax.protocols import Row

ROWS = "sweep.jsonl"


class Counting(Protocol):
    """Progress of members that train, as it is counted."""

    def skip(self, iterations: int) -> None:
        """Count iterations that need no training: those before a resume, and those after the end of a member."""

    def add(self, iterations: int, env_steps: int, seconds: float, returns: list[float], members: int) -> None:
        """Add what `members` members, all those that still train in a program, have done together."""


class Progress:
    """Progress over the iterations of all members together; a context manager."""

    def __init__(self, path: Path, total: int, console: bool):
        """Continue the rows of the sweep directory `path`; `total` iterations of all members are planned."""
        self._rows = JsonLines(path / ROWS, 2**63)
        before = last_row(path / ROWS)
        self._done, self._total = 0, total
        self._env_steps, self._seconds = int(before.get("env_steps") or 0), float(before.get("seconds") or 0.0)
        self._console = Console(total) if console else None
        if self._console is not None:
            self._console.begin(0)

    def skip(self, iterations: int) -> None:
        """Count iterations that need no training: those before a resume, and those after the end of a member."""
        self._done += iterations

    def add(self, iterations: int, env_steps: int, seconds: float, returns: list[float], members: int) -> None:
        """Add what `members` members, all those that still train in a program, have done together."""
        self._done, self._env_steps = self._done + iterations, self._env_steps + env_steps
        self._seconds += seconds
        known = [x for x in returns if not math.isnan(x)]
        row: Row = {
            "iteration": self._done,
            "env_steps": self._env_steps,
            "episode_return": math.fsum(known) / len(known) if known else math.nan,
            "steps_per_second": env_steps / max(seconds, 1e-9),
            "seconds": self._seconds,
            "members": members,
        }
        self._rows.log(row)
        if self._console is not None:
            self._console.log(row)

    def take_back(self, iterations: int, env_steps: int) -> None:
        """Take back what is done again, because the machine that did it was lost."""
        self._done, self._env_steps = self._done - iterations, self._env_steps - env_steps

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._rows.close()
        if self._console is not None:
            self._console.close()


class Merged:
    """Progress of programs that train at the same time, as that of one."""

    def __init__(self, progress: Progress):
        self._progress, self._since = progress, time.monotonic()
        self._iterations, self._env_steps, self._returns = 0, 0, list[float]()

    def add(self, iterations: int, env_steps: int, returns: list[float]) -> None:
        """Add what one program has done."""
        self._iterations, self._env_steps = self._iterations + iterations, self._env_steps + env_steps
        self._returns += returns

    def show(self, members: int) -> None:
        """Count as progress what was added since the last call, by `members` members that still train."""
        if self._iterations:
            now = time.monotonic()
            self._progress.add(self._iterations, self._env_steps, now - self._since, self._returns, members)
            self._since, self._iterations, self._env_steps, self._returns = now, 0, 0, []
