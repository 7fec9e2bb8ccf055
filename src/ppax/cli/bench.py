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
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from ppax import config
from ppax.config import Built
from ppax.core import untrusted
from ppax.core.types import ConfigError
from ppax.devices.layout import Program
from ppax.envs import require_native
from ppax.ppo import PPO
from ppax.storage import safe_files
from ppax.training import bench

TABLE = "agent.program"  # table of the run file that holds the program layout
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
    if options.tune:
        require_native(env, "--tune", "leave it out")
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
            target = config.file_of(options.target)
            text = ", ".join(f"{name} = {value}" for name, value in table.items() if value is not None)
            say(f"{choice.speedup:.2f} times as fast: {text}")
            if target is not None:
                write_program(target, choice.program)
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


def write_program(path: Path, program: Program) -> None:
    """Write `program` into a run file as its table [agent.program].

    The rest of a TOML file, comments included, stays as it is.
    """
    table = {name: value for name, value in config.describe(program).items() if value is not None}
    if path.suffix == ".json":
        plan = config.read(path)
        plan.setdefault("agent", {})["program"] = table
        text = json.dumps(plan, indent=2) + "\n"
    else:
        old = untrusted.read_text(Path(os.path.realpath(path)), untrusted.RUN_FILE_LIMIT)
        lines = [f"[{TABLE}]", *(f"{name} = {value}" for name, value in table.items())]
        rest = re.sub(rf"(?m)^\[{re.escape(TABLE)}\]\n(?:(?!\[).*\n?)*", "", old).rstrip()
        text = rest + "\n\n" + "\n".join(lines) + "\n"
    config.resolve(config.parse(text, path))  # raises before an invalid file is written
    safe_files.write_text(path, text)
