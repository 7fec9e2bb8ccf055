"""SimBa's layers against the default MLP and the MLP with layer norm: mean and spread of 20 seeds on compiled tasks.

    python benchmarks/simba.py            # three tasks, 20 seeds; half an hour on two cores
    python benchmarks/simba.py --quick    # one task, two seeds, few steps, nothing written

Each network has the defaults of the task in all else, with observations normalised by running statistics (which SimBa
has inside). All seeds of a network train in one program (`ppax.sweep_runs`). A score is the mean return of the
final policy over its evaluation. The spread is the standard deviation of the scores of the seeds, with a 95 % bootstrap
interval, as in https://arxiv.org/abs/2606.06746, which reports that layer norm narrows it.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import numpy as np

import ppax
from report import Report, bar, panel

TASKS = {"CartPole-v1": 50_000, "Pendulum-v1": 100_000, "Acrobot-v1": 100_000}
NETWORKS: dict[str, dict[str, Any]] = {
    "MLP": {},
    "MLP, layer norm": {"layer_norm": True},
    "SimBa": {"layers": "simba"},
}
SEEDS = [1000 + i for i in range(20)]


def measured(task: str, network: dict[str, Any], steps: int, seeds: list[int]) -> dict[str, Any]:
    """Scores of the seeds, and seconds of the sweep."""
    agent = {"normalize_obs": True, "network": network}
    # as many steps for every network, and no preset of the task, which may be tuned for one of them
    run = {"env": task, "preset": "none", "total_steps": steps, "agent": agent, "log": {"console": False}}
    run |= {"eval": {"episodes": 64}}
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = ppax.sweep_runs(run, seeds=seeds, run_dir=f"{folder}/sweep")
        scores = [round(float(one.score), 3) for one in result.members]
    return {"scores": scores, "seconds": round(time.perf_counter() - begun, 1)}


def interval(scores: list[float], statistic: Any) -> dict[str, float]:
    """A statistic of the scores with its 95 % bootstrap interval."""
    draws = np.random.default_rng(0).choice(scores, (2000, len(scores)))
    low, high = np.quantile(statistic(draws, axis=1), [0.025, 0.975])
    value = float(statistic(np.array(scores)[None], axis=1)[0])
    return {"median": value, "min": min(value, float(low)), "max": max(value, float(high))}


def spread(x: np.ndarray, axis: int) -> np.ndarray:
    """Standard deviation of a sample."""
    found: np.ndarray = np.std(x, axis=axis, ddof=1)
    return found


def main() -> None:
    """Measure every network on every task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test: one task, two seeds, nothing written")
    options = parser.parse_args()
    tasks = {"CartPole-v1": 8192} if options.quick else TASKS
    seeds = SEEDS[:2] if options.quick else SEEDS
    task = "Hidden layers of the default network: final return over 20 seeds, mean and spread"
    report = Report(None if options.quick else "simba", task, {"tasks": tasks, "networks": NETWORKS, "seeds": seeds})
    results: dict[str, Any] = {}
    for name, steps in tasks.items():
        for network, table in NETWORKS.items():
            row = measured(name, table, steps, seeds)
            results.setdefault(name, {})[network] = row
            scores = row["scores"]
            deviation = spread(np.array([scores]), 1)[0]
            print(f"{name}, {network}: {np.mean(scores):.1f} +- {deviation:.1f}, {row['seconds']} s", flush=True)
            panels = [
                panel(f"{one}: {title}", [bar(k, interval(v["scores"], f), None) for k, v in found.items()], better)
                | {"parity": False}
                for title, f, better in (("mean of seeds", np.mean, "higher"), ("spread of seeds", spread, "lower"))
                for one, found in results.items()
            ]
            report.save(results=results, panels=panels)
    report.finish()


if __name__ == "__main__":
    main()
