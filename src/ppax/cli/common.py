"""Shared by the commands: exit codes, printing, unknown commands, and the message of an interrupted run."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ppax import config, imports
from ppax.envs import BUILTIN, HOST_SUITES, SUITES
from ppax.run.directory import RUN_FILE
from ppax.types import ConfigError

COMMANDS = (
    *("train", "sweep", "resume", "evaluate", "play", "export", "report", "compare", "doctor"),
    *("selftest", "check-env", "bench", "score", "presets", "envs"),
)
DONE, FAILED, USAGE, ENVIRONMENT, NUMERICAL, DISK, STOPPED = 0, 1, 2, 3, 4, 5, 75  # exit codes


def print_line(text: str, stream: TextIO) -> None:
    """Print one line; a closed pipe (`ppax train ... | head`) does not end the command."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # Python flushes the stream again at exit, and would fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def fail(error: object, code: int) -> int:
    """Print an error to standard error; return its exit code."""
    print_line(f"ppax: {error}", sys.stderr)
    return code


def require_command(arguments: list[str]) -> None:
    """Raise ConfigError for an unknown command, with the most likely one."""
    first = arguments[0]
    if first.startswith("-") or first in COMMANDS:
        return
    path = Path(first)
    if (
        first in config.presets()
        or first in BUILTIN
        or first.partition("/")[0] in (*SUITES, *HOST_SUITES)
        or path.suffix in (".toml", ".json")
    ):
        likely = f"ppax train {first}"
    else:
        likely = f"ppax {difflib.get_close_matches(first, COMMANDS, n=1, cutoff=0.0)[0]}"
    raise ConfigError(f"no command {first!r}; did you mean `{likely}`? The commands: {', '.join(COMMANDS)}")


@contextmanager
def resumable(run_dir: Callable[[], Path]) -> Iterator[None]:
    """Add to a KeyboardInterrupt the command that resumes the run, if its run file is already in `run_dir()`."""
    try:
        yield
    except KeyboardInterrupt:
        path = run_dir()
        known = (path / RUN_FILE).exists()
        remedy = f"; `ppax resume {path}{imports.flags()}` continues from the last checkpoint" if known else ""
        raise KeyboardInterrupt(remedy) from None
