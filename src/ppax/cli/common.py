"""What the commands share: lines for the reader, commands that there are not, and how an interrupted run goes on."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from ppax import config
from ppax.envs import BUILTIN, HOST_SUITES, SUITES
from ppax.run.directory import RUN_FILE
from ppax.types import ConfigError

VERBS = ("train", "resume", "evaluate", "play", "selftest", "check-env", "bench", "presets", "envs")


def printed(text: str, stream: TextIO) -> None:
    """A line for whoever reads; where nobody does any more (`ppax train ... | head`), the command goes on."""
    try:
        print(text, file=stream, flush=True)
    except OSError:
        # Python writes what is left at the end, and would fail again
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def require_verb(arguments: list[str]) -> None:
    """ConfigError for a command that there is not: which one it most likely means."""
    first = arguments[0]
    if first.startswith("-") or first in VERBS:
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
        likely = f"ppax {difflib.get_close_matches(first, VERBS, n=1, cutoff=0.0)[0]}"
    raise ConfigError(f"no command {first!r}; did you mean `{likely}`? The commands: {', '.join(VERBS)}")


@contextmanager
def resumable(run_dir: Callable[[], Path]) -> Iterator[None]:
    """A second Ctrl-C says how the run goes on, if it has begun in the directory that `run_dir` returns by then."""
    try:
        yield
    except KeyboardInterrupt:
        path = run_dir()
        known = (path / RUN_FILE).exists()
        how = f"; `ppax resume {path}` continues from the last checkpoint" if known else ""
        raise KeyboardInterrupt(how) from None
