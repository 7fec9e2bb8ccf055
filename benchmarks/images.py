"""Training speed on images: ppax with convolutions against Stable-Baselines3, and against an earlier ppax.

    pip install "ppax[bench,atari,gymnax]" stable-baselines3
    python benchmarks/images.py                          # Atari, against Stable-Baselines3: some ten minutes
    PPAX_BEFORE=checkout python benchmarks/images.py     # and MinAtar, against the ppax of that checkout
    python benchmarks/images.py --quick                  # a smoke test: two short turns, nothing written

Every system runs in a process of its own; the processes take turns, and only runs of the same turn are compared
(interleave.py). How each is called, and what differs between them: image_peers.py. Speed is environment steps a second
of whole training, compilation excluded.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from typing import Any

import w1
from image_peers import ATARI, MINATAR
from interleave import compile_seconds, measure, ratios, speed
from peers import BEFORE, FOLDER_BEFORE
from report import Report, bar, panel
from w1 import Work

CASES = {ATARI: (8, "sb3"), MINATAR: (64, BEFORE)}  # environments, and beside what
TARGETS = {ATARI: 1.0, MINATAR: 5.0}


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="Training speed of ppax on images against its peers.")
    parser.add_argument("--envs", nargs="+", choices=CASES, default=tuple(CASES), help="which environments")
    parser.add_argument("--repeats", type=int, default=5, help="turns of timed runs")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="length of a timed run, about; at least 2 iterations"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smoke test: short runs, nothing written")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.seconds = 2, 1.0
    return options


def there(peer: str) -> bool:
    """Whether a peer can be measured; says so where not."""
    if peer == BEFORE and FOLDER_BEFORE not in os.environ:
        print(f"{BEFORE} is left out: {FOLDER_BEFORE} names no checkout")
        return False
    if peer == "sb3" and importlib.util.find_spec("stable_baselines3") is None:
        print("sb3 is left out: stable_baselines3 is not installed")
        return False
    return True


def main() -> None:
    """Measure, print the table, write the results."""
    options = parse()
    own = {"repeats": options.repeats, "seconds": options.seconds, "seed": options.seed}
    task = "Atari and MinAtar with convolutions, in float32: ppax over a peer"
    report = Report(None if options.quick else "images", task, w1.SETTINGS | own)
    results: list[dict[str, Any]] = []
    line = "{:>24} {:>8} {:>6} {:>10} {:>10} {:>7} {:>22}".format
    print(line("", "num_envs", "iters", "ppax/s", "peer/s", "peer", "ratio"))
    for env_id in options.envs:
        num_envs, peer = CASES[env_id]
        if not there(peer):
            continue
        systems = [f"{name}/{env_id}" for name in ("images", peer)]
        result = measure(systems, Work(num_envs, 1, 0, options.seed), options.repeats, options.seconds)
        result |= {"env": env_id, "peer": peer, "ratio": ratios(result, systems[0], systems[1:], speed, max)}
        if peer == BEFORE:
            result["compile_ratio"] = compile_seconds(result[systems[0]]) / compile_seconds(result[systems[1]])
        results.append(result)
        found = [
            bar(f"{r['env']}, {r['num_envs']}, {r['peer']}", r["ratio"]["best"], TARGETS[r["env"]]) for r in results
        ]
        report.save(results=results, panels=[panel("steps/s over those of the peer", found, "higher")])
        x, speeds = result["ratio"]["best"], [result[system]["steps_per_second"] for system in systems]
        text = f"{x['median']:.2f} ({x['min']:.2f} .. {x['max']:.2f})"
        print(line(env_id, num_envs, result["iterations"], *(f"{s:,.0f}" for s in speeds), peer, text), flush=True)
    report.finish()


if __name__ == "__main__":
    main()
