"""Training speed of ppax on several versions of JAX side by side (workload W1): CartPole-v1, few environments.

    python benchmarks/jax_versions.py old/bin/python new/bin/python   # interpreters of environments with ppax in them
    python benchmarks/jax_versions.py ... --sizes 4 16 64 --repeats 7 --seconds 2

The first interpreter is the one to which the others are compared. One process for each takes turns with the others
(interleave.py), on one device with one thread, and its CPU time is measured: other programs on the machine then matter
little, where they would decide about seconds of a clock. Beside training, each version's time for one loop step that
writes a row of 16 numbers into a stacked output of 1,024 rows is measured: with XLA of jaxlib 0.11.1 such a write
copies the whole output (jax issue 40101).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from typing import Any

import w1
from interleave import Worker, cpu_seconds, spread
from report import Report, bar, panel
from w1 import Work

ITERATIONS = 7_000  # times one environment, in a second of one core, about
PROBE = """
import json, time, jax, jax.numpy as jnp, jaxlib
write = jax.jit(lambda x: jax.lax.scan(lambda c, _: (c * 0.999 + 1.0, c), x, None, length=1024))
x, seconds = jnp.ones(16), []
for _ in range(10):
    start = time.perf_counter()
    jax.block_until_ready(write(x))
    seconds.append(time.perf_counter() - start)
print(json.dumps({"version": jax.__version__, "write_us": min(seconds[1:]) / 1024 * 1e6}))
"""


def cpu_of(worker: Worker, iterations: int) -> float:
    """CPU seconds of a run."""
    before = cpu_seconds(worker.process.pid)
    worker.run(iterations)
    return cpu_seconds(worker.process.pid) - before


def main() -> None:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pythons", nargs="+", help="interpreters; the first is the one to compare with")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4, 16, 64], help="numbers of environments")
    parser.add_argument("--repeats", type=int, default=7, help="turns of timed runs for each size")
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a timed run, about")
    options = parser.parse_args()
    probes: dict[str, dict[str, Any]] = {}
    for python in options.pythons:
        found = json.loads(subprocess.run([python, "-c", PROBE], capture_output=True, text=True, check=True).stdout)
        probes[found["version"]] = found | {"python": python}
    versions = list(probes)
    pythons = {version: probes[version].pop("python") for version in versions}
    for version in versions:
        print(f"jax {version}: {probes[version]['write_us']:.3f} us for each small write in a loop")
    report = Report("jax_versions", f"CartPole-v1, separate 2x64 networks: over jax {versions[0]}", w1.SETTINGS)
    results: list[dict[str, Any]] = []
    line = ("{:>8} {:>9}" + " {:>18}" * len(versions)).format
    print(line("num_envs", "iters", *versions))
    for size in options.sizes:
        iterations = max(4, round(ITERATIONS / (8 + size) * options.seconds))
        work = Work(size, 1, iterations, 0)
        one_thread = {"NPROC": "1"}
        workers = {v: Worker("ppax", work, one_thread, pythons[v]).prepare() for v in versions}
        for worker in workers.values():
            worker.run(2)  # the first run pays for what is set up once
        turns = [{v: cpu_of(workers[v], iterations) for v in versions} for _ in range(options.repeats)]
        for worker in workers.values():
            with worker:
                pass
        over = {v: spread([turn[versions[0]] / turn[v] for turn in turns]) for v in versions[1:]}
        results.append({"num_envs": size, "iterations": iterations, "cpu_seconds": turns, "over": over})
        millis = (f"{statistics.median(t[v] for t in turns) / iterations * 1000:.2f} ms" for v in versions)
        print(line(size, iterations, *millis))
        texts = [f"{x['median']:.2f} ({x['min']:.2f}-{x['max']:.2f})" for x in over.values()]
        print(line("", "faster", "", *texts), flush=True)
        bars = {v: [bar(r["num_envs"], r["over"][v], None) for r in results] for v in versions[1:]}
        panels = [panel(f"jax {v}: speed over {versions[0]}, by environments", bars[v], "higher") for v in bars]
        report.save(results=results, writes=probes, panels=panels)
    report.finish()


if __name__ == "__main__":
    main()
