"""From the start of a process to a solved CartPole-v1, imports and compilation included: ppax against PureJaxRL.

    export PUREJAXRL=...                      # a folder with purejaxrl/ppo.py in it
    python benchmarks/startup.py              # five seeds, about ten minutes
    python benchmarks/startup.py --quick      # one seed, nothing written

Solved means here: the last 100 episodes that ended in training had a mean return of at least 475, which is Gymnasium's
threshold. The clock runs in this process, from starting the child to reading its line that says so.

* ppax runs `ppax.build` (startup_ppax.py) and looks at every log row: the newest with at least 100 episodes in them.
* PureJaxRL runs the settings of its own main program (startup_purejaxrl.py): 4 environments, 500 000 steps, learning
  rate annealed. It shows results only at the end of the run. Two times are taken: of that whole run, and of the
  shortest in a grid of lengths that solves the task with this seed (its annealing follows the length). That length is
  found beforehand, by runs that are not timed, as if a user knew it. The targets are for this shorter
  time with the same kind of cache; "its cold" is the ratio to PureJaxRL's shorter time with an empty cache.

cold: JAX's persistent compilation cache is on and empty; warm: the same program once more, with the cache that the cold
one has filled. Every process of the cold kind begins with a cache folder of its own. Bytecode of the imported packages
exists in both cases. Processes take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from goal import GRID, SOLVED, WHOLE, WINDOW
from interleave import spread
from peers import FOLDER, purejaxrl_folder
from report import Report, bar, panel

TARGETS = {"cold": 0.35, "warm": 0.25}
SYSTEMS = ("ppax", "purejaxrl", "purejaxrl_whole")


def launch(script: str, *words: Any, cache: Path | None = None) -> dict[str, Any]:
    """What the child said, and the seconds from its start until it said so."""
    environment = dict(os.environ)
    if cache is not None:
        environment |= {"JAX_COMPILATION_CACHE_DIR": str(cache), "JAX_ENABLE_COMPILATION_CACHE": "true"}
        environment |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
        environment |= {"JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    command = [sys.executable, str(Path(__file__).parent / script), *map(str, words)]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - begin
    if process.returncode:
        raise SystemExit(f"{script} ended with code {process.returncode}")
    if not line:
        raise SystemExit(f"{script} {' '.join(map(str, words))}: the task was not solved")
    return {"seconds": seconds} | json.loads(line)


def start(system: str, seed: int, shortest: dict[int, int], cache: Path) -> dict[str, Any]:
    """One system in a fresh process."""
    if system == "ppax":
        return launch("startup_ppax.py", seed, cache=cache)
    total = WHOLE if system == "purejaxrl_whole" else shortest[seed]
    return launch("startup_purejaxrl.py", seed, total, cache=cache)


def take_turn(number: int, seed: int, shortest: dict[int, int]) -> dict[str, Any]:
    """Every system with an empty cache, then every system again; none always goes first."""
    first = number % len(SYSTEMS)
    order = (*SYSTEMS[first:], *SYSTEMS[:first])
    turn: dict[str, Any] = {"seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        for cache in TARGETS:  # cold fills what warm finds
            turn[cache] = {system: start(system, seed, shortest, Path(folder) / system) for system in order}
    return turn


def summary(turns: list[dict[str, Any]], cache: str) -> dict[str, Any]:
    """Medians, and the ratio of ppax to each of PureJaxRL's times in the same turn."""
    seconds = [{system: turn[cache][system]["seconds"] for system in SYSTEMS} for turn in turns]
    found: dict[str, Any] = {system: statistics.median(turn[system] for turn in seconds) for system in SYSTEMS}
    for system in SYSTEMS[1:]:
        found[f"ratio to {system}"] = spread([turn["ppax"] / turn[system] for turn in seconds])
    cold = [turn["cold"]["purejaxrl"]["seconds"] for turn in turns]
    found["ratio to purejaxrl cold"] = spread(
        [mine["ppax"] / theirs for mine, theirs in zip(seconds, cold, strict=True)]
    )
    return found


def find_shortest(seeds: list[int]) -> dict[int, int]:
    """PureJaxRL's shortest run that solves the task, for each seed; the whole run where none does."""
    found = launch("startup_purejaxrl.py", "--search", *seeds)
    return {seed: found[str(seed)] or WHOLE for seed in seeds}


def brief(turn: dict[str, Any]) -> str:
    """One turn's seconds."""
    return " / ".join(f"{turn[system]['seconds']:.2f}" for system in SYSTEMS)


def print_table(results: dict[str, Any]) -> None:
    """Medians and ratios."""
    line = "{:>6} {:>10} {:>12} {:>12} {:>6} {:>14} {:>9} {:>9} {:>7}".format
    heads = ("ratio", "min .. max", "to whole", "its cold", "target")
    print(line("cache", "ppax s", "purejaxrl s", "whole run s", *heads))
    for cache, target in TARGETS.items():
        result = results[cache]
        ratio, whole = (result[f"ratio to {system}"] for system in SYSTEMS[1:])
        seconds = (f"{result[system]:.2f}" for system in SYSTEMS)
        limits = f"{ratio['min']:.2f} .. {ratio['max']:.2f}"
        cold = result["ratio to purejaxrl cold"]
        medians = (f"{x['median']:.2f}" for x in (whole, cold))
        print(line(cache, *seconds, f"{ratio['median']:.2f}", limits, *medians, target))


def main() -> None:
    """Measure, print the table, write the results."""
    parser = argparse.ArgumentParser(description="From the start of a process to a solved CartPole-v1.")
    parser.add_argument("--seeds", type=int, default=5, help="fresh processes of each system, each with its own seed")
    parser.add_argument("--quick", action="store_true", help="a smoke test: one seed, nothing written")
    options = parser.parse_args()
    if purejaxrl_folder() is None:
        raise SystemExit(f"the peer is PureJaxRL: set {FOLDER} to a folder with purejaxrl/ppo.py in it")
    seeds = [0] if options.quick else list(range(options.seeds))
    settings = {"solved": SOLVED, "window": WINDOW, "lengths": GRID, "seeds": seeds}
    task = "From process start to a mean return of 475 on CartPole-v1: ppax over PureJaxRL"
    report = Report(None if options.quick else "startup", task, settings)
    shortest = find_shortest(seeds)
    report.save(shortest_timesteps=shortest)
    print("PureJaxRL's shortest TOTAL_TIMESTEPS by seed: " + ", ".join(f"{s}: {n:,}" for s, n in shortest.items()))
    turns: list[dict[str, Any]] = []
    for number, seed in enumerate(seeds):
        turns.append(take_turn(number, seed, shortest))
        results = {cache: summary(turns, cache) for cache in TARGETS}
        bars = [bar(cache, results[cache]["ratio to purejaxrl"], target) for cache, target in TARGETS.items()]
        bars.append(bar("warm,\nits cold", results["warm"]["ratio to purejaxrl cold"], None))
        bars += [bar(f"{cache},\nwhole run", results[cache]["ratio to purejaxrl_whole"], None) for cache in TARGETS]
        report.save(**results, turns=turns, panels=[panel("seconds over PureJaxRL's", bars, "lower")])
        print(f"seed {seed}: " + ", ".join(f"{cache} {brief(turns[-1][cache])}" for cache in TARGETS), flush=True)
    print_table(results)
    report.finish()


if __name__ == "__main__":
    main()
