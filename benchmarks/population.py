"""Population-based training against random search: equal members, draws and environment steps.

    python benchmarks/population.py            # two tasks, five seeds, populations of 8; some 15 minutes on one core
    python benchmarks/population.py --quick    # a few iterations, nothing written

Both methods train the same eight drawn settings from the same seeds. Random search trains them to the end; the
population copies and perturbs after every twentieth of the training. Reported are the score of the best member (mean
return of its final policy over 128 episodes) and the mean score of all members. An interrupted sweep continues from
--work.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np

import ppax
from report import RESULTS, Report, bar, panel

TASKS = {"Acrobot-v1": 150_000, "Pendulum-v1": 200_000}  # environment steps of a member
MEMBERS, SEEDS, HELD = 8, 5, 1000
VALUES = {
    "agent.learning_rate": ppax.sweeps.LogUniform(1e-5, 1e-2),
    "agent.ent_coef": ppax.sweeps.LogUniform(1e-4, 1e-1),
    "agent.loss.clip_eps": ppax.sweeps.Uniform(0.05, 0.4),
}
SEARCHES = {"random": ppax.sweeps.Grid(), "pbt": ppax.sweeps.PBT()}
COLOURS = {"random": "#7a7a7a", "pbt": "#1f6f8b"}
POINTS = 50


def measured(task: str, steps: int, method: str, seed: int, work: Path) -> dict[str, Any]:
    """Scores and curve of one sweep, continued where it was interrupted."""
    path = work / f"{task}-{steps}-{method}-{seed}"
    if (path / "sweep.toml").is_file():
        result = ppax.resume_sweep(path)
    else:
        target = ppax.build(task, total_steps=steps, seed=HELD + seed, log={"console": False})
        options = {"draws": MEMBERS, "draw_seed": seed, "search": SEARCHES[method]}
        result = ppax.sweep_runs(target, VALUES, **options, run_dir=path)
    scores = [member.score for member in result.members if np.isfinite(member.score)]
    copies = len((path / "search.jsonl").read_text().split('"decision": "copy"')) - 1 if method == "pbt" else 0
    found = {"best": max(scores), "mean": statistics.fmean(scores), "copies": copies, "curve": curve(result, steps)}
    print(task, method, seed, {name: x for name, x in found.items() if name != "curve"}, flush=True)
    return found


def curve(result: ppax.SweepResult, steps: int) -> list[float | None]:
    """Highest episode return of the members at POINTS equal parts of the training; None before an episode ended."""
    at, values = np.linspace(steps / POINTS, steps, POINTS), []
    for member in result.members:
        rows = map(json.loads, (member.run_dir / "metrics.jsonl").read_text().splitlines())
        known = [(row["env_steps"], row["episode_return"]) for row in rows if row["episode_return"] is not None]
        values += [np.interp(at, *np.array(known).T, left=np.nan)] if known else []
    best = np.fmax.reduce(values) if values else np.full(POINTS, np.nan)
    return [None if np.isnan(x) else round(float(x), 4) for x in best]


def draw(results: dict[str, Any], path: Path) -> None:
    """Draw the best member's return over steps: median and range over seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0 * len(results), 3.8), dpi=130, layout="constrained")
    for axes, (task, own) in zip(np.atleast_1d(figure.subplots(1, len(results))), results.items(), strict=True):
        for method, rows in own["methods"].items():
            values = np.array([row["curve"] for row in rows], float)
            at = np.linspace(own["steps"] / POINTS, own["steps"], POINTS)
            axes.fill_between(at, values.min(axis=0), values.max(axis=0), color=COLOURS[method], alpha=0.18, lw=0)
            axes.plot(at, np.median(values, axis=0), color=COLOURS[method], label=f"{method}, {len(rows)} seeds", lw=2)
        axes.set_title(task, loc="left", fontsize=10)
        axes.set_xlabel(f"environment steps of each of {MEMBERS} members")
        axes.set_ylabel("episode return of the best member")
        axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e3:g}k" if x else "0")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=8, frameon=False)
    figure.savefig(path)


def main() -> None:
    """Measure task by task and seed by seed, print a line for each sweep, write the results."""
    parser = argparse.ArgumentParser(description="Population-based training beside random search at equal steps.")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--work", type=Path, default=Path("sweeps/population"), help="directory of the sweeps")
    parser.add_argument("--quick", action="store_true", help="a smoke test: one seed, short, nothing written")
    options = parser.parse_args()
    tasks = dict.fromkeys(TASKS, 50_000) if options.quick else TASKS
    seeds = 1 if options.quick else options.seeds
    values = {path: ppax.sweeps.plan.to_table(x) for path, x in VALUES.items()}
    settings = {"members": MEMBERS, "seeds": seeds, "held": HELD, "values": values, "tasks": tasks}
    title = "Population-based training beside random search: score of the best of 8 members at equal environment steps"
    report = Report(None if options.quick else "population", title, settings)
    results: dict[str, Any] = {task: {"steps": steps, "methods": {}} for task, steps in tasks.items()}
    for task, steps in tasks.items():
        for seed in range(seeds):
            for method in SEARCHES:
                row = measured(task, steps, method, seed, options.work)
                results[task]["methods"].setdefault(method, []).append(row)
            report.save(results=results, panels=panels(results))
    if not options.quick:
        draw(results, RESULTS / "population_curves.png")
    report.finish()


def panels(results: dict[str, Any]) -> list[dict[str, Any]]:
    """Panels of the page of benchmarks: for each task the best member's score, of both methods."""
    made = []
    for task, own in results.items():
        bars = []
        for method, rows in own["methods"].items():
            best = [row["best"] for row in rows]
            spread = {"median": statistics.median(best), "min": min(best), "max": max(best)}
            bars.append(bar(method, spread, None))
        if bars:
            made.append(panel(f"{task}: score of the best member", bars, "higher") | {"parity": False})
    return made


if __name__ == "__main__":
    main()
