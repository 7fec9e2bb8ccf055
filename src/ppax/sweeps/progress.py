"""Progress of a whole sweep: a line on the console, and rows in sweep.jsonl."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from ppax.core.protocols import Row
from ppax.loggers import Console, JsonLines, last_row
from ppax.sweeps.directory import PROGRESS

MEANS = ("episode_return", "reward_mean")  # columns that are means over members
EVALUATING = "trained; evaluating the final policies ..."
NO_STEPS: Mapping[int, int] = MappingProxyType({})


class Counting(Protocol):
    """Protocol of objects that count the progress of a sweep's members (runs) while they train."""

    def skip(self, reached: Mapping[int, int], env_steps: Mapping[int, int] = NO_STEPS) -> None:
        """Count iterations of members (runs) as done without training: up to those in `reached`, by member number.

        This is for iterations that were trained before a resume, and for those that are left when a member ends early.
        `env_steps` are the members' environment steps before the resume, by number; a second call with steps of the
        same member does not add them again.
        """

    def add(self, reached: Mapping[int, int], env_steps: int, seconds: float, rows: Sequence[Row]) -> None:
        """Count what members (runs) of one program have trained together since the last call.

        `reached` has the iteration that each member has reached, by number, without those that have ended. `env_steps`
        are the environment steps and `seconds` the time of that training, `rows` the members' newest log rows.
        """


class Progress:
    """Progress over the iterations of all members (runs) of a sweep together, shown and logged; a context manager."""

    def __init__(self, path: Path, total: int, console: bool):
        """Continue sweep.jsonl in the sweep directory `path`; all members (runs) together have `total` iterations."""
        self._rows = JsonLines(path / PROGRESS, 2**63)
        self._done, self._total = 0, total
        self._reached: dict[int, int] = {}  # iteration of each member, by number
        self._earlier: dict[int, int] = {}  # env-steps of each member in earlier processes, by number
        self._env_steps, self._seconds = 0, float(last_row(path / PROGRESS).get("seconds") or 0.0)
        self._console = Console(total) if console else None
        if self._console is not None:
            self._console.begin(0)

    def skip(self, reached: Mapping[int, int], env_steps: Mapping[int, int] = NO_STEPS) -> None:
        """Count iterations of members (runs) as done without training: up to those in `reached`, by member number.

        This is for iterations that were trained before a resume, and for those that are left when a member ends early.
        `env_steps` are the members' environment steps before the resume, by number; a second call with steps of the
        same member does not add them again.
        """
        for member, iteration in reached.items():
            self._done += max(0, iteration - self._reached.get(member, 0))
            self._reached[member] = max(iteration, self._reached.get(member, 0))
        for member in env_steps.keys() - self._earlier.keys():
            self._earlier[member] = env_steps[member]
            self._env_steps += env_steps[member]

    def add(self, reached: Mapping[int, int], env_steps: int, seconds: float, rows: Sequence[Row]) -> None:
        """Count and log what members (runs) of one program have trained together since the last call.

        `reached` has the iteration that each member has reached, by number, without those that have ended. `env_steps`
        are the environment steps and `seconds` the time of that training, `rows` the members' newest log rows.
        """
        self.skip(reached, dict.fromkeys(reached, 0))
        self._env_steps += env_steps
        self._seconds += seconds
        row: Row = {
            "iteration": self._done,
            "env_steps": self._env_steps,
            **{name: _mean([one[name] for one in rows if name in one]) for name in MEANS},
            "steps_per_second": env_steps / max(seconds, 1e-9),
            "seconds": self._seconds,
            "members": len(reached),
        }
        self._rows.log(row)
        if self._console is not None:
            self._console.log(row)
            if self._done >= self._total:
                self._console.note(EVALUATING)

    def take_back(self, env_steps: int) -> None:
        """Subtract `env_steps` from the count of environment steps, because the machine that did them was lost.

        They will be done again, and counted then.
        """
        self._env_steps -= env_steps

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        self._rows.close()
        if self._console is not None:
            self._console.close()


def _mean(values: Sequence[float]) -> float:
    """Return the mean of the values that are not NaN; NaN if there are none."""
    known = [x for x in values if not math.isnan(x)]
    return math.fsum(known) / len(known) if known else math.nan
