"""Steps to solve a changed CartPole-v1, from random weights and from weights trained on the original CartPole-v1.

    python benchmarks/fine_tuning.py            # five seeds, four changes; some six minutes
    python benchmarks/fine_tuning.py --quick    # one seed, one change, nothing written

Every run has the same settings, SETTINGS. The original run has its whole budget; its policy is then the start of a run
on the changed environment (`init_from`: weights and statistics of normalisation, a new optimiser), which has another
seed. The run from random weights has that seed too. Both are evaluated before training and after every iteration: 64
episodes with the mode of the policy. The result is the number of
steps until the mean return of an evaluation first is 475 or more.

Four changes, from near to far: gravity doubled, which the trained policy masters without training; doubled gravity and
a shorter pole, of two lengths; and pushes in the opposite direction, for which its policy is wrong. A run that does not
reach 475 counts with its whole budget.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import ppax
from report import Report, bar, panel

ENV, SOLVED = "CartPole-v1", 475.0
SETTINGS: dict[str, Any] = {"normalize_obs": False, "ent_coef": 0.0}  # else the defaults by the kind of environment
CHANGES: dict[str, dict[str, float]] = {
    "gravity x 2": {"gravity": 19.6},
    "gravity x 2, pole x 0.4": {"gravity": 19.6, "half_length": 0.2},
    "gravity x 2, pole x 0.2": {"gravity": 19.6, "half_length": 0.1},
    "pushes reversed": {"force": -10.0},
}
TARGETS = {"gravity x 2": 0.25}
HELD = 1000  # first seed; settings are tuned on seeds below 100
EVALUATION = {"every": 1, "episodes": 64}
QUIET = {"console": False}


def steps_to_solve(seed: int, change: dict[str, float], source: ppax.TrainedRun | None) -> dict[str, Any]:
    """Steps until the evaluation first is SOLVED or more, from `source` or from random weights (None)."""
    options = {"env_params": change, "eval": EVALUATION, "stop": f"eval_return >= {SOLVED:g}", "log": QUIET}
    plan = ppax.build(ENV, seed=seed, agent=SETTINGS, **options)
    agent, env, run = plan
    settings = {"num_steps": run.num_steps, "log": run.log, "stop": run.stop, "evaluation": run.eval}
    done = ppax.fit(agent, env, run.total_steps, seed, init_from=source, **settings)
    first, last = done.history[0], done.history[-1]
    evaluations = {"first": round(first["eval_return"], 2), "last": round(last["eval_return"], 2)}
    return {"steps": int(last["env_steps"]), "solved": last["eval_return"] >= SOLVED} | evaluations


def measured(seed: int, names: list[str]) -> dict[str, Any]:
    """Result of one seed: the original run's score, and for each change both numbers of steps."""
    source = ppax.build(ENV, seed=seed, agent=SETTINGS, log=QUIET).fit()
    score = source.evaluate(episodes=128).mean_return
    result: dict[str, Any] = {"seed": seed, "source_return": round(score, 2), "source_steps": source.env_steps}
    for name in names:
        own = {who: steps_to_solve(seed + 100, CHANGES[name], start) for who, start in starts(source).items()}
        result[name] = own | {"ratio": own["warm"]["steps"] / own["scratch"]["steps"]}
        print(seed, f"source {score:.0f}", name, result[name], flush=True)
    return result


def starts(source: ppax.TrainedRun) -> dict[str, ppax.TrainedRun | None]:
    """Starts that are compared."""
    return {"scratch": None, "warm": source}


def main() -> None:
    """Measure, print a line for each pair of runs, write the results."""
    parser = argparse.ArgumentParser(description="Steps to solve a changed CartPole-v1: warm start over scratch.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a smoke test: one seed and change, nothing written")
    options = parser.parse_args()
    names = list(CHANGES)[:1] if options.quick else list(CHANGES)
    seeds = [HELD] if options.quick else [HELD + i for i in range(options.seeds)]
    settings = {
        "env": ENV,
        "agent": SETTINGS,
        "solved": SOLVED,
        "seeds": seeds,
        "changes": CHANGES,
        "evaluation": EVALUATION,
    }
    task = "A changed CartPole-v1: steps until an evaluation reaches 475, warm start over random weights"
    report = Report(None if options.quick else "fine_tuning", task, settings)
    results: list[dict[str, Any]] = []
    for seed in seeds:
        results.append(measured(seed, names))
        bars = [bar(name, spread([row[name]["ratio"] for row in results]), TARGETS.get(name)) for name in names]
        report.save(results=results, panels=[panel("steps of the warm start over those from scratch", bars, "lower")])
    report.finish()


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


if __name__ == "__main__":
    main()
