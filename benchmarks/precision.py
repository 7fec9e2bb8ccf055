"""Speed of training with matrix products in bfloat16 over float32, on this processor (workloads W1 and W3).

    python benchmarks/precision.py           # W1, a GRU and a minGRU (W3), 64 to 2,048 environments; about ten minutes
    python benchmarks/precision.py --quick   # short runs, nothing written

Both are ppax, in processes that take turns (interleave.py); a ratio above 1 says that `compute_dtype = "bfloat16"` is
faster. The results list the processor's bfloat16 units.
"""

from __future__ import annotations

import argparse
from typing import Any

import w1
from interleave import measure, ratios, speed
from ours import DTYPES
from report import Report, bar, panel
from speed import as_text
from w1 import Work

SYSTEMS = {"W1": "ppax", "W3, GRU": "ppax-gru", "W3, minGRU": "ppax-mingru"}
SIZES = {"W1": (64, 512, 2048), "W3, GRU": (64, 2048), "W3, minGRU": (64, 2048)}


def main() -> None:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description="Speed of bfloat16 products over float32.")
    parser.add_argument("--repeats", type=int, default=5, help="turns of timed runs for each size (default 5)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of a timed run, about (default 3)")
    parser.add_argument("--quick", action="store_true", help="a smoke test: short runs, nothing written")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.seconds = 2, 0.5
    own = {"repeats": options.repeats, "seconds": options.seconds}
    task = "bfloat16 products over float32, whole training of ppax"
    report = Report(None if options.quick else "precision", task, w1.SETTINGS | own)
    results: list[dict[str, Any]] = []
    line = ("{:>12} {:>8}" + " {:>11}" * 2 + " {:>6} {:>14}").format
    print(line("work", "num_envs", "float32/s", "bfloat16/s", "ratio", "min .. max"))
    for work, system in SYSTEMS.items():
        for num_envs in SIZES[work]:
            slow, fast = (f"{system}{DTYPES[dtype]}" for dtype in ("float32", "bfloat16"))
            result = measure([slow, fast], Work(num_envs, 1, 0, 0), options.repeats, options.seconds)
            result |= {"work": work, "ratio": ratios(result, fast, [slow], speed, max)["best"]}
            results.append(result)
            report.save(results=results, panels=panels(results))
            speeds = (f"{result[name]['steps_per_second']:,.0f}" for name in (slow, fast))
            print(line(work, num_envs, *speeds, *as_text(result["ratio"])), flush=True)
    report.finish()


def panels(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One panel for each work, bars by number of environments."""
    of = {work: [r for r in results if r["work"] == work] for work in SYSTEMS}
    return [
        panel(f"{work}: steps/s over float32", [bar(r["num_envs"], r["ratio"], None) for r in own], "higher")
        for work, own in of.items()
        if own
    ]


if __name__ == "__main__":
    main()
