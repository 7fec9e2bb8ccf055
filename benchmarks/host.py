"""Training speed on host environments: ppax against Stable-Baselines3 and a CleanRL-style PPO, beside raw stepping.

    pip install "ppax[bench]" stable-baselines3
    python benchmarks/host.py                     # the table: 8 and 64 environments; about five minutes
    python benchmarks/host.py --quick             # a smoke test: short runs, nothing written
    python benchmarks/host.py --systems sb3 raw   # against some of them only

CartPole-v1 on Gymnasium, the network and sizes of speed.py. Every system runs in a process of its own; the processes
take turns, and only runs of the same turn are compared (interleave.py). How each is called, and what differs between
them: host_peers.py. Speed is environment steps a second of whole training, compilation excluded.
"""

from __future__ import annotations

import argparse
import importlib.util

import w1
from interleave import measure, ratios, speed
from report import Report, bar, panel
from w1 import Work

SIZES = (8, 64)
SYSTEMS = ("sb3", "cleanrl", "raw")
NEEDS = {"sb3": "stable_baselines3", "cleanrl": "torch", "raw": "gymnasium"}
TARGETS = {("sb3", 8): 5.0, ("raw", 64): 0.6}


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="Training speed of ppax on host environments against its peers.")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of environments")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS, help="what to compare with")
    parser.add_argument("--repeats", type=int, default=5, help="turns of timed runs for each size")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a timed run, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smoke test: short runs, nothing written")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.seconds = 3, 1.0
    return options


def main() -> None:
    """Measure, print the table, write the results."""
    options = parse()
    there = [system for system in options.systems if importlib.util.find_spec(NEEDS[system])]
    for system in set(options.systems) - set(there):
        print(f"{system} is left out: {NEEDS[system]} is not installed")
    own = {"repeats": options.repeats, "seconds": options.seconds, "seed": options.seed}
    task = "CartPole-v1 on Gymnasium, separate 2x64 tanh actor and critic: ppax over each peer"
    report = Report(None if options.quick else "host", task, w1.SETTINGS | own)
    systems, results = ["host", *there], []
    line = ("{:>8} {:>6}" + " {:>11}" * len(systems) + " {:>22}" * len(there)).format
    print(line("num_envs", "iters", *(f"{s}/s" for s in ("ppax", *there)), *(f"ppax / {s}" for s in there)))
    for num_envs in options.sizes:
        result = measure(systems, Work(num_envs, 1, 0, options.seed), options.repeats, options.seconds)
        result["ratio"] = ratios(result, "host", there, speed, max)
        results.append(result)
        panels = [
            panel(
                f"steps/s over those of {system}",
                [bar(r["num_envs"], r["ratio"][system], TARGETS.get((system, r["num_envs"]))) for r in results],
                "higher",
            )
            for system in there
        ]
        report.save(results=results, panels=panels)
        speeds = (f"{result[system]['steps_per_second']:,.0f}" for system in systems)
        found = (result["ratio"][system] for system in there)
        texts = (f"{x['median']:.2f} ({x['min']:.2f} .. {x['max']:.2f})" for x in found)
        print(line(num_envs, result["iterations"], *speeds, *texts), flush=True)
    report.finish()


if __name__ == "__main__":
    main()
