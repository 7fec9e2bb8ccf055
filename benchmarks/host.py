"""Training speed on host environments: ppax against Stable-Baselines3, SBX and a CleanRL-style PPO, and raw stepping.

    pip install "ppax[bench,mujoco]" stable-baselines3 sbx-rl
    python benchmarks/host.py                     # CartPole with 8 and 64 environments, HalfCheetah with 8: ten minutes
    python benchmarks/host.py --quick             # a smoke test: short runs, nothing written
    python benchmarks/host.py --systems sb3 raw   # only some of the systems

The network and sizes of speed.py; ppax also with `overlap = 1`, where updates run while environments are stepped.
Every system runs in a process of its own; the processes take turns, and only runs of the same turn are compared
(interleave.py). How each is called, and what differs between them: host_peers.py. Speed is environment steps a second
of whole training, compilation excluded.
"""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

import w1
from host_peers import ENVS
from interleave import measure, present, ratios, speed
from report import Report, bar, panel
from w1 import Work

SYSTEMS = ("sb3", "sbx", "cleanrl", "raw")
NEEDS = {"sb3": "stable_baselines3", "sbx": "sbx", "cleanrl": "torch", "raw": "gymnasium"}
OWN = {"host": "ppax", "overlap": "overlap = 1"}  # systems of ppax, by their names in tables
CASES = (("CartPole-v1", 8), ("CartPole-v1", 64), ("HalfCheetah-v5", 8))
TARGETS = {
    ("sb3", "CartPole-v1", 8): 6.0,
    ("sb3", "CartPole-v1", 64): 3.0,
    ("raw", "CartPole-v1", 8): 0.65,
    ("raw", "CartPole-v1", 64): 0.8,
    ("raw", "HalfCheetah-v5", 8): 0.9,
}


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(description="Training speed of ppax on host environments against its peers.")
    parser.add_argument("--envs", nargs="+", choices=ENVS, default=ENVS, help="which environments")
    parser.add_argument("--sizes", type=int, nargs="+", default=(8, 64), help="which numbers of environments")
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS, help="what to compare with")
    parser.add_argument("--repeats", type=int, default=5, help="turns of timed runs for each size")
    parser.add_argument("--seconds", type=float, default=5.0, help="length of a timed run, about")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="a smoke test: short runs, nothing written")
    options = parser.parse_args()
    if options.quick:
        options.repeats, options.seconds = 3, 1.0
    return options


def over(system: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """ppax over one peer, in all cases, and with overlap."""
    bars = []
    for result in results:
        case, peer = (result["env"], result["num_envs"]), f"{system}/{result['env']}"
        target = TARGETS.get((system, *case))
        bars.append(bar(f"{case[0]}, {case[1]}", result["ratio"][peer], target))
        bars.append(bar("overlap = 1", result["overlap_ratio"][peer], target))
    return panel(f"steps/s over those of {system}", bars, "higher")


def main() -> None:
    """Measure, print the table, write the results."""
    options = parse()
    there = [system for system in options.systems if importlib.util.find_spec(NEEDS[system])]
    for system in set(options.systems) - set(there):
        print(f"{system} is left out: {NEEDS[system]} is not installed")
    runs = present([f"{system}/{ENVS[0]}" for system in there], num_envs=8)
    there = [system for system in there if f"{system}/{ENVS[0]}" in runs]
    settings = {"repeats": options.repeats, "seconds": options.seconds, "seed": options.seed}
    task = "Gymnasium's CartPole-v1 and HalfCheetah-v5, separate 2x64 tanh actor and critic: ppax over each peer"
    report = Report(None if options.quick else "host", task, w1.SETTINGS | settings)
    results: list[dict[str, Any]] = []
    line = ("{:>15} {:>8} {:>6} {:>12}" + " {:>11}" * (1 + len(there)) + " {:>22}" * len(there)).format
    names = *(f"{s}/s" for s in ("ppax", *there)), *(f"ppax / {s}" for s in there)
    print(line("", "num_envs", "iters", "", *names))
    for env_id, num_envs in CASES:
        if env_id not in options.envs or num_envs not in options.sizes:
            continue
        own, peers = ([f"{system}/{env_id}" for system in chosen] for chosen in (OWN, there))
        systems = [*own, *peers]
        result = measure(systems, Work(num_envs, 1, 0, options.seed), options.repeats, options.seconds)
        for system, name in zip(own, ("ratio", "overlap_ratio"), strict=True):
            result[name] = ratios(result, system, peers, speed, max)
        result["env"] = env_id
        results.append(result)
        report.save(results=results, panels=[over(system, results) for system in there])
        for system, name, title in zip(own, ("ratio", "overlap_ratio"), OWN.values(), strict=True):
            speeds = (f"{result[one]['steps_per_second']:,.0f}" for one in (system, *peers))
            found = (result[name][peer] for peer in peers)
            texts = (f"{x['median']:.2f} ({x['min']:.2f} .. {x['max']:.2f})" for x in found)
            print(line(env_id, num_envs, result["iterations"], title, *speeds, *texts), flush=True)
    report.finish()


if __name__ == "__main__":
    main()
