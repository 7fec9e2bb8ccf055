"""One command for a machine with an accelerator: is ppax correct on it, how fast is it, and which layout is best.

    python benchmarks/accelerator.py --minutes 9          # writes accelerator.json, .md and .png to benchmarks/results
    python benchmarks/accelerator.py --stages core w1     # some of the stages
    python benchmarks/accelerator.py --quick              # a smoke test on any machine, about a minute; nothing written

It installs nothing: other libraries are measured if they are installed (rejax, Brax, MuJoCo Playground; PureJaxRL if
PUREJAXRL names its folder). Each stage runs in a separate process (accelerator_stages.py) with a share of the time; a
stage that would not fit is left out, with a note. Results are written after every row, so that a kill loses none.

* core: the reference update, every memory, ratio 1, bfloat16, sharding, resume bit for bit (device_checks.py)
* w1: training speed from 2,048 to 1 M environments, with whole minibatches and with gradient accumulation
* arms: training speed with other options of XLA, dtypes and keys
* layout: share of each stage of an iteration, and the fastest layout that `ppax bench --tune` finds
* w3: training speed with memories, and with other options of their loops
* rules: training speed with the alternative to each rule of the platform (src/ppax/devices/platforms.py)
* ant, playground: training speed on physics environments, compared with Brax's PPO

The exit code is 1 if a check of the stage `core` failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import accelerator_tables as tables
import w1
from report import RESULTS, Report

Row = dict[str, Any]
SCRIPT = Path(__file__).parent / "accelerator_stages.py"
RESERVE = 10.0  # seconds for the picture
PARTS = 6  # processes of the stage core, on a machine with two cores for each
GRACE = 5.0  # seconds that a stage has to end by itself


class Stage(NamedTuple):
    """A stage and its time."""

    name: str
    least: float  # seconds: with less left it is not begun, since programs compile for that long
    share: float  # of the whole time, at most; more if those of the stages that run are less than 1 together


STAGES = (
    Stage("device", 5, 0.2),
    Stage("core", 45, 0.28),
    Stage("w1", 45, 0.3),
    Stage("arms", 60, 0.3),
    Stage("layout", 30, 0.1),
    Stage("w3", 45, 0.12),
    Stage("ant", 75, 0.3),
    Stage("rules", 30, 0.1),
    Stage("playground", 75, 0.3),
)
QUICK = ("device", "core", "w1", "arms", "rules")  # of these --quick has small sizes; `--stages` names others
ENVIRONMENT = {
    "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # systems share the device, one process each
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


def rows_of(command: Sequence[str], seconds: float, errors: Any) -> Iterator[Row]:
    """Rows that a process prints; after `seconds` it is killed, with all processes that it has started."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**ENVIRONMENT, **os.environ},
        start_new_session=True,
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()  # "" at the end
    reader = threading.Thread(target=_forward, args=(process.stdout, lines), daemon=True)
    reader.start()
    deadline = time.monotonic() + seconds
    try:
        while line := lines.get(timeout=max(0.0, deadline - time.monotonic())):
            yield json.loads(line)
        if process.wait(GRACE):
            yield {"failed": f"ended with code {process.returncode}: {last_line(errors)}"}
    except (queue.Empty, subprocess.TimeoutExpired):
        yield {"note": f"killed after {seconds:.0f} s"}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
        process.wait()
        reader.join()


def rows_at_once(commands: Sequence[Sequence[str]], seconds: float, errors: Any) -> Iterator[Row]:
    """Rows of several processes that run at the same time."""
    if len(commands) == 1:
        yield from rows_of(commands[0], seconds, errors)
        return
    rows: queue.SimpleQueue[Row | None] = queue.SimpleQueue()  # None: a process has ended

    def read(command: Sequence[str]) -> None:
        try:
            for row in rows_of(command, seconds, errors):
                rows.put(row)
        finally:
            rows.put(None)

    for command in commands:
        threading.Thread(target=read, args=(command,), daemon=True).start()
    running = len(commands)
    while running:
        row = rows.get()
        if row is None:
            running -= 1
        else:
            yield row


def _forward(source: Any, lines: queue.SimpleQueue[str]) -> None:
    with source:
        for line in source:
            lines.put(line)
    lines.put("")


def last_line(errors: Any) -> str:
    """The last line that processes have written to the log."""
    errors.flush()
    lines = Path(errors.name).read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "no message"


def measure_all(options: argparse.Namespace, report: Report, errors: Any) -> dict[str, list[Row]]:
    """Run the stages, one after the other, as long as there is time; rows by stage."""
    end = time.monotonic() + 60.0 * options.minutes - RESERVE
    results: dict[str, list[Row]] = {}
    chosen = [stage for stage in STAGES if stage.name in options.stages]
    whole = 60.0 * options.minutes / min(1.0, sum(stage.share for stage in chosen))
    for stage in chosen:
        left, rows = end - time.monotonic(), results.setdefault(stage.name, [])
        print(f"\n{tables.TITLES[stage.name]}", flush=True)
        seconds = left if options.quick else min(left, whole * stage.share)
        if left < (GRACE if options.quick else stage.least):
            note = f"left out: {max(0.0, left):.0f} s are left, it takes {stage.least:.0f}"
            found: Iterator[Row] = iter([{"note": note}])
        else:
            command = [sys.executable, str(SCRIPT), stage.name, str(seconds - GRACE)]
            command += ["--quick"] if options.quick else []
            parts = 1 if options.quick or stage.name != "core" else max(1, min(PARTS, (os.cpu_count() or 1) // 2))
            commands = [command] if parts == 1 else [[*command, "--part", str(i), str(parts)] for i in range(parts)]
            found = rows_at_once(commands, seconds, errors)
        for row in found:
            rows.append(row)
            print(f"  {tables.line(stage.name, row)}", flush=True)
            save(report, results)
    return results


def save(report: Report, results: dict[str, list[Row]]) -> None:
    """Write results and table."""
    if results.get("device") and "devices" in results["device"][0]:
        report.content["hardware"]["devices"] = results["device"][0]["devices"]
    report.save(results=results, panels=tables.panels(results))
    if report.path is not None:
        report.path.with_suffix(".md").write_text(tables.page(report.content), encoding="utf-8")


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(
        description="Correctness, speed and best layout of ppax on this machine's devices."
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="time for everything (default 9)")
    parser.add_argument("--stages", nargs="+", choices=[stage.name for stage in STAGES], help="default: all")
    parser.add_argument("--output", type=Path, help="folder of the results (default benchmarks/results)")
    parser.add_argument(
        "--quick", action="store_true", help="a smoke test: small sizes, nothing written without --output"
    )
    options = parser.parse_args()
    options.stages = options.stages or (QUICK if options.quick else [stage.name for stage in STAGES])
    if not options.minutes > 0:
        parser.error(f"--minutes {options.minutes}: must be above 0; nearest valid value: 1")
    return options


def stop(*_: Any) -> None:
    """End as after Ctrl-C, so that no process stays."""
    raise KeyboardInterrupt


def main() -> int:
    """Measure, print, write; 1 if a check failed."""
    options = parse()
    signal.signal(signal.SIGTERM, stop)
    name = None if options.quick and options.output is None else "accelerator"
    settings = w1.SETTINGS | {"minutes": options.minutes, "quick": options.quick}
    report = Report(name, "ppax on an accelerator: correctness, speed, layout", settings, options.output or RESULTS)
    try:
        with tempfile.NamedTemporaryFile("w", suffix=".log") as errors:
            results = measure_all(options, report, errors)
    except KeyboardInterrupt:
        print(f"\nstopped; {report.path} has what was measured" if report.path else "\nstopped")
        return 130
    try:
        if report.content["panels"]:
            report.finish()
    except ImportError:
        print(f"\nwritten: {report.path}; no picture without matplotlib: python benchmarks/plots.py {report.path}")
    failed = [row for rows in results.values() for row in rows if row.get("passed") is False or "failed" in row]
    print(f"\n{len(failed)} failed" if failed else "\nno check failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
