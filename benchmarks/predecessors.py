"""Training speed on the predecessors' environments: rl8's CartPole against rl8, navigators against JaxDEM's trainer.

    pip install "ppax[bench]" rl8 vtk h5py orbax flax tqdm scipy
    export RL8=...                                # a checkout of rl8, for examples/cartpole; rl8 is a package
    export JAXDEM=...                             # a checkout of JaxDEM
    python benchmarks/predecessors.py             # whichever of the two is given; about nine minutes
    python benchmarks/predecessors.py --quick     # a smoke test: short runs, nothing written

How each system is called, and what differs between them: predecessor_peers.py. Every system runs in a process of its
own; the processes take turns, and only runs of the same turn are compared (interleave.py). Speed is steps of all agents
a second of whole training, compilation excluded.
"""

from __future__ import annotations

import argparse
from typing import Any

from interleave import measure, ratios, speed
from ours import DTYPES
from predecessor_peers import FOLDERS, JAXDEM, RL8, folder
from report import Report, bar, panel
from speed import as_text
from w1 import Work

CASES = {"rl8": RL8, "jaxdem": JAXDEM}
TARGETS = {"rl8": 5.0, "jaxdem": 1.5}


def main() -> None:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description="Training speed of ppax on its predecessors' own worlds.")
    parser.add_argument("--repeats", type=int, default=5, help="turns of timed runs")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a timed run, about")
    parser.add_argument("--quick", action="store_true", help="a smoke test: short runs, nothing written")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.seconds = 3, 1.0
    named = [system for system in CASES if folder(system)]
    if not named:
        raise SystemExit(f"name a checkout of at least one of them: {', '.join(FOLDERS.values())}")
    task = "rl8's CartPole, JaxDEM's crowd of 64 navigators: ppax over each, the same sizes and gradient steps"
    settings = {"repeats": options.repeats, "seconds": options.seconds, **CASES}
    report = Report(None if options.quick else "predecessors", task, settings)
    results: list[dict[str, Any]] = []
    line = "{:>15} {:>6} {:>12} {:>12} {:>6} {:>14}".format
    print(line("against", "iters", "ppax/s", "theirs/s", "ratio", "min .. max"))
    for system in named:
        names, work = (
            [f"ppax-{system}{DTYPES[dtype]}" for dtype in ("float32", "bfloat16")],
            Work(CASES[system]["num_envs"], 1, 0, 0),
        )
        result = measure([*names, system], work, options.repeats, options.seconds)
        result["ratio"] = {name: ratios(result, name, [system], speed, max)["best"] for name in names}
        results.append(result | {"against": system})
        bars = [bar(name[5:], x, TARGETS[r["against"]]) for r in results for name, x in r["ratio"].items()]
        report.save(results=results, panels=[panel("agent-steps/s over the predecessor's", bars, "higher")])
        for name in names:
            speeds = (f"{result[each]['steps_per_second']:,.0f}" for each in (name, system))
            print(line(name[5:], result["iterations"], *speeds, *as_text(result["ratio"][name])), flush=True)
    report.finish()


if __name__ == "__main__":
    main()
