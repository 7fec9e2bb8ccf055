"""Scaling of one run over processes: speed of two processes relative to one, and the data that they communicate.

    python benchmarks/scale.py            # one and two processes, a core each; some eight minutes on two cores
    python benchmarks/scale.py --quick    # a short run of the smallest size, nothing written

W1 (CartPole-v1, separate 2x64 tanh actor and critic). Strong scaling: the same environments on twice the cores; weak
scaling: twice the environments. A process has one CPU device and, on Linux, one core of its own. Layouts take turns; a
ratio is the median over turns of the speed relative to one process on one core in that turn. Collectives: operations of
the compiled program that communicate, from XLA's own dump of it, with the bytes of their results.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from interleave import spread
from report import Report, bar, panel

SIZES, TURNS, ITERATIONS = (256, 2_048, 8_192), 3, {256: 96, 2_048: 24, 8_192: 8}
COLLECTIVE = re.compile(r" = (.+?) (all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute)(?:-start)?\(")
ARRAY = re.compile(r"(pred|[subf]f?\d+)\[([\d,]*)\]")


class Layout(NamedTuple):
    """How one run is laid out."""

    processes: int
    devices: int  # of each process
    times: int = 1  # environments, as a multiple of those of one process


LAYOUTS = {
    "one core": Layout(1, 1),
    "one process, two cores": Layout(1, 2),
    "two processes, strong": Layout(2, 1),
    "two processes, weak": Layout(2, 1, 2),
}


def train(layout: Layout, num_envs: int, iterations: int, flags: str = "") -> float:
    """Environment steps a second of a run in this layout, compilation and start excluded."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        shared = [layout.processes, layout.devices, num_envs * layout.times, iterations, port, f"{folder}/run"]
        environment = os.environ | {"XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip()}
        running = [
            subprocess.Popen(
                [sys.executable, __file__, "--worker", *map(str, [process, *shared])],
                stdout=subprocess.PIPE,
                text=True,
                env=environment,
            )
            for process in range(layout.processes)
        ]
        answers = [process.communicate()[0] for process in running]
    if any(process.returncode for process in running):
        raise SystemExit(f"a process of {layout} has failed")
    return float(json.loads(answers[0].splitlines()[-1]))


def work(words: list[str]) -> None:
    """One process of a run: prints the speed."""
    process, processes, devices, num_envs, iterations, port = map(int, words[:-1])
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if cores:
        os.sched_setaffinity(0, {cores[(process * devices + i) % len(cores)] for i in range(devices)})
    import jax

    jax.config.update("jax_num_cpu_devices", devices)
    import ppax
    import w1
    from ours import ppax_parts
    from ppax.config import Log

    if processes > 1:
        ppax.join(f"127.0.0.1:{port}", process, processes)
    agent, env = ppax_parts(w1.Work(num_envs, 1, 0, 0))
    log = Log(console=False, every=max(1, iterations // 8))
    total = iterations * w1.NUM_STEPS * num_envs
    run = ppax.fit(agent, env, total, 0, words[-1], num_steps=w1.NUM_STEPS, log=log)
    first, last = run.history[0], run.history[-1]
    print(json.dumps((last["env_steps"] - first["env_steps"]) / (last["seconds"] - first["seconds"])), flush=True)


def collectives(num_envs: int) -> list[dict[str, Any]]:
    """Collective operations in the programs of the leader of two processes, by XLA's dump after optimisation."""
    with tempfile.TemporaryDirectory() as dump:
        train(LAYOUTS["two processes, strong"], num_envs, 2, f"--xla_dump_to={dump} --xla_dump_hlo_as_text")
        texts = [path.read_text() for path in sorted(Path(dump).glob("*after_optimizations.txt"))]
    training = max(texts, key=len)
    found = [(kind, bytes_of(shapes)) for shapes, kind in COLLECTIVE.findall(training)]
    return [{"operation": kind, "bytes": size, "count": found.count((kind, size))} for kind, size in sorted(set(found))]


def bytes_of(shapes: str) -> int:
    """Bytes of the arrays in the type of an HLO operation, as `(f32[64,2]{1,0}, f32[])`."""
    widths = {"pred": 1}
    return sum(
        math.prod(int(n) for n in sizes.split(",") if n) * widths.get(kind, int(re.sub(r"\D", "", kind) or 8) // 8)
        for kind, sizes in ARRAY.findall(shapes)
    )


def main() -> None:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of environments of one process")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--quick", action="store_true", help="a short run of the smallest size; nothing written")
    options = parser.parse_args()
    sizes, turns = (options.sizes[:1], 1) if options.quick else (options.sizes, options.turns)
    about = "one run over two processes, speed beside one process on one core"
    report = Report(None if options.quick else "scale", about, {"turns": turns})
    results: list[dict[str, Any]] = []
    for num_envs in sizes:
        iterations = 8 if options.quick else ITERATIONS.get(num_envs, 8)
        speeds = [{name: train(layout, num_envs, iterations) for name, layout in LAYOUTS.items()} for _ in range(turns)]
        ratios = {name: spread([turn[name] / turn["one core"] for turn in speeds]) for name in LAYOUTS}
        results.append({"num_envs": num_envs, "steps_per_second": speeds, "ratio": ratios})
        results[-1]["collectives"] = collectives(num_envs)
        shown = ", ".join(f"{name} {ratio['median']:.2f}" for name, ratio in ratios.items())
        print(f"{num_envs} environments: {shown}; {results[-1]['collectives']}", flush=True)
        panels = [
            panel(name, [bar(r["num_envs"], r["ratio"][name], None) for r in results], "higher")
            for name in list(LAYOUTS)[1:]
        ]
        report.save(results=results, panels=panels)
    report.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--worker"]:
        work(sys.argv[2:])
    else:
        main()
