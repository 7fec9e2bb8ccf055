"""Command `ppax bench`: measure steps per second and the time of each stage of a run.

With `--tune`, find the settings of [agent.program], the layout of the compiled program, that are fastest.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax

from ppax import config
from ppax.config import Built
from ppax.core import untrusted
from ppax.core.options import flatten, unflatten
from ppax.core.types import ConfigError
from ppax.devices.layout import Program
from ppax.envs import require_native
from ppax.ppo import PPO
from ppax.storage import safe_files
from ppax.training import bench

TABLE = "agent.program"  # table of the run file that holds the program layout
HEADER = re.compile(r"\s*\[\s*agent\s*\.\s*program\s*\]\s*(#.*)?")  # line with which the table begins
VALUE = re.compile(r"\s*[\w-]+\s*=")  # begin of a line with a value
EVERY = 10.0  # seconds between progress messages of a long stage


def add_bench(parser: argparse.ArgumentParser) -> None:
    """Add the options that only `ppax bench` has."""
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="seconds to measure, after compilation and a first iteration; a longer one is the whole measurement "
        "(default: 5)",
    )
    parser.add_argument(
        "--tune",
        action="store_true",
        help="try other program layouts (devices, chunk_rows, unroll) and write the fastest into the run file",
    )


class StageProgress:
    """Progress messages on stages of a benchmark: each at its start, then its elapsed time every EVERY seconds."""

    def __init__(self, say: Callable[[str], None]):
        self._say, self._ended = say, threading.Event()
        self._stage, self._started = "", 0.0
        self._thread = threading.Thread(target=self._repeat, daemon=True)

    def __enter__(self) -> StageProgress:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def begin(self, stage: str) -> None:
        """Print that `stage` starts, which also ends the previous stage."""
        self._stage, self._started = stage, time.monotonic()
        self._say(f"{stage} ...")

    def _repeat(self) -> None:
        while not self._ended.wait(EVERY):
            if self._stage:
                self._say(f"{self._stage}: {time.monotonic() - self._started:.0f} s so far")


def run_bench(options: argparse.Namespace, built: Built, say: Any) -> dict[str, Any]:
    """Measure the speed of a run and print the report; return the results for JSON.

    With `--tune`, several settings of [agent.program] are tried, and the fastest are written into the run file. `say`
    prints a message.
    """
    if not options.seconds > 0:
        raise ConfigError(f"--seconds {options.seconds}: must be above 0; nearest valid value: 1")
    agent, env, run = built
    if not isinstance(agent, PPO):
        raise ConfigError(f"ppax bench works with one policy for all agents; this run has {type(agent).__name__}")
    target = config.file_of(options.target)
    if options.tune:
        require_native(env, "--tune", "leave it out")
        if target is not None and with_program(target, Program(devices=1)) is None:
            say(f"{target}: [{TABLE}] cannot be written into a file of this form, and is printed instead")
    devices = jax.local_devices()
    say(f"{run.env}: {run.num_envs} environments, rollouts of {run.num_steps * env.num_streams:,} steps")
    with StageProgress(say) as progress:
        report = bench.measure(agent, env, run.num_steps, options.seconds, progress.begin, run.overlap)
    shares = ", ".join(f"{name} {_share(name, share)}" for name, share in report.shares.items())
    say(f"{report.steps_per_second:,.0f} steps/s on {report.devices} of {len(devices)} {devices[0].platform} devices")
    say(f"time: {shares}")
    say(f"compilation {report.compile_seconds:.1f} s, peak memory {report.peak_memory_mb:,.0f} MB")
    say(report.advice)
    result: dict[str, Any] = report._asdict()
    if options.tune:
        with StageProgress(say) as progress:
            choice = bench.tune(agent, env, run.num_steps, say=progress.begin)
        table = config.describe(choice.program)
        result["program"], result["speedup"] = table, choice.speedup
        if choice.program == agent.program:
            say("no other layout of the program was faster: the run file stays as it is")
        else:
            text = ", ".join(f"{name} = {json.dumps(value)}" for name, value in table.items() if value is not None)
            say(f"{choice.speedup:.2f} times as fast: {text}")
            if target is not None and write_program(target, choice.program):
                say(f"written to {target}, [{TABLE}]")
            else:
                say(f"put it into a run file as [{TABLE}], or give --agent.program.NAME on the command line")
    return result


def _share(stage: str, share: float) -> str:
    """Return a stage's share of the time as text, such as "12%"; "not measurable" for gradient steps with the share 0.

    The time of the gradient steps is the time of an iteration minus that of all other stages, and a busy machine can
    make it 0.
    """
    return "not measurable" if stage == "gradient steps" and share == 0 else f"{share:.0%}"


def write_program(path: Path, program: Program) -> bool:
    """Write `program` into a run file as its table [agent.program]; return False where `with_program` cannot."""
    text = with_program(path, program)
    if text is not None:
        safe_files.write_text(Path(os.path.realpath(path)), text)  # a link stays one
    return text is not None


def with_program(path: Path, program: Program) -> str | None:
    """Return the text of a run file with `program` as its table [agent.program].

    The rest of a TOML file, comments included, stays as it is. The result is None for forms in which the table cannot
    be replaced without changing the rest: YAML, and TOML with dotted keys or inline tables for the agent.
    """
    table = {name: value for name, value in config.describe(program).items() if value is not None}
    old = untrusted.read_text(Path(os.path.realpath(path)), untrusted.RUN_FILE_LIMIT)
    before = dict(flatten(config.parse(old, path)))
    wanted = {name: value for name, value in before.items() if not f"{name}.".startswith(f"{TABLE}.")}
    wanted |= {f"{TABLE}.{name}": value for name, value in table.items()} or {TABLE: {}}
    if path.suffix == ".json":
        return json.dumps(unflatten(wanted), indent=2) + "\n"
    if path.suffix != ".toml":
        return None
    text = _with_table(old, [f"{name} = {json.dumps(value)}" for name, value in table.items()])
    try:
        return text if dict(flatten(config.parse(text, path))) == wanted else None
    except ConfigError:
        return None


def _with_table(text: str, entries: Sequence[str]) -> str:
    """Return the text of a TOML file in which the lines `entries` replace those of the table [agent.program].

    Only lines with a value are replaced. If there is no such table yet, it is added at the end.
    """
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines()
    place = next((place for place, line in enumerate(lines) if HEADER.fullmatch(line)), None)
    if place is None:
        return end.join([*text.rstrip().splitlines(), "", f"[{TABLE}]", *entries, ""])
    following = lines[place + 1 :]
    size = next((size for size, line in enumerate(following) if line.lstrip().startswith("[")), len(following))
    kept = [line for line in following[:size] if not VALUE.match(line)]
    return end.join([*lines[: place + 1], *entries, *kept, *following[size:], ""])
