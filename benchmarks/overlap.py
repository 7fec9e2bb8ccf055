"""Returns with `overlap = 1` against `overlap = 0` on host environments, over seeds.

    pip install "ppax[bench,mujoco]"
    python benchmarks/overlap.py                                 # two tasks, 20 seeds of each
    python benchmarks/overlap.py --tasks gymnasium/CartPole-v1   # one of them: five minutes on two cores
    python benchmarks/overlap.py --quick                         # two seeds of the first task, nothing written

With `overlap = 1` rollouts are collected by a policy that is one update old (docs/python_environments.md). The presets
are trained for 100,000 steps. Two scores: the return of the last policy over 32 episodes, and the mean return over the
whole training. Each is compared by the difference of its means over seeds: 95 % confidence interval and p value of
Welch's test.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import ppax
from curves import SIGNIFICANT, difference
from ppax import config
from report import Report

TASKS = {"gymnasium/CartPole-v1": 100_000, "gymnasium/InvertedPendulum-v5": 100_000}  # steps of a training
EPISODES = 32
SCORES = ("final", "training")


def train(task: str, overlap: int, seed: int) -> dict[str, float]:
    """Scores of one training, and its seconds."""
    agent, env, run = config.build({**config.find(task), "total_steps": TASKS[task]})
    with env:
        begin = time.perf_counter()
        sizes = {"num_steps": run.num_steps, "overlap": overlap}
        trained = ppax.fit(agent, env, run.total_steps, seed, **sizes, log=config.Log(console=False))
        seconds = time.perf_counter() - begin
        final = trained.evaluate(EPISODES).mean_return
    returns = [row["episode_return"] for row in trained.history]
    training = statistics.mean(x for x in returns if x == x)
    return {"final": final, "training": training, "seconds": seconds}


def compare(task: str, seeds: int) -> dict[str, Any]:
    """Both settings on one task, in turns; prints a line for each score."""
    result: dict[str, Any] = {"task": task, "0": [], "1": []}
    for seed in range(seeds):
        for overlap in (0, 1):
            result[str(overlap)].append(train(task, overlap, seed))
    for what in SCORES:
        of = [[run[what] for run in result[overlap]] for overlap in ("0", "1")]
        found = result[f"{what}_difference"] = difference(of[1], of[0])
        interval = f"{found['difference']:+.1f} ({found['low']:+.1f} .. {found['high']:+.1f})"
        differs = " DIFFERS" if found["p"] < SIGNIFICANT else ""
        mean = f"{statistics.mean(of[0]):8.1f}"
        print(f"{task:30} {what:8}   {mean}   {interval}   p {found['p']:.2f}{differs}", flush=True)
    return result


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=TASKS)
    parser.add_argument("--quick", action="store_true", help="two seeds of the first task, nothing written")
    options = parser.parse_args()
    tasks, seeds = (options.tasks[:1], 2) if options.quick else (options.tasks, options.seeds)
    settings = {"seeds": seeds, "steps": {task: TASKS[task] for task in tasks}, "episodes": EPISODES}
    report = Report(None if options.quick else "overlap", "overlap = 1 beside 0 on host environments", settings)
    print(f"{'':30} {'score':8}   {'overlap 0':>8}   overlap 1 minus 0 (95 % interval)")
    results = []
    for task in tasks:
        results.append(compare(task, seeds))
        report.save(results=results)


if __name__ == "__main__":
    main()
