"""Normalised observations of which some entries are constant, or narrow, for a while: what each option does then.

    python benchmarks/obs_statistics.py            # two tasks, five seeds; some ten minutes on two cores
    python benchmarks/obs_statistics.py --quick    # one seed, few steps, nothing written

The point of `changed_spaces.py` flies in three dimensions; it observes position, velocity and its goal, and its reward
is minus its distance to the goal. Each policy has two runs of 200,000 steps, the second with `init_from` the first.

    constant at first   the goal is at the origin in the first run, and drawn in the second: as a curriculum begins
                        with one command, or with flat ground. A running standard deviation of the goal is 0 until then
    narrow later        goals are drawn from all of the cube in the first run, and from a twentieth of it in the second,
                        as where a robot is trained on with the commands of one task

All evaluations have goals from the whole cube. `skip` leaves the goal's entries out; `given` has the true means and
standard deviations; `frozen` has the statistics of the first run in the second.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import ppax
from changed_spaces import LENGTH, QUIET, Point, spread
from report import Report, bar, panel

STEPS = 200_000
STD = (0.8, 0.8, 0.8, 0.35, 0.35, 0.35, 0.577, 0.577, 0.577)  # of place, velocity and goal, roughly; the goal's exactly
SKIP = {"skip": ("6:9",)}
GIVEN = {"mean": (0.0,) * 9, "std": STD}
# largest coordinate of a goal in both runs, and the options of normalisation of each method in both runs
METHODS: dict[str, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "constant at first": {
        "running": ({}, {}),
        "skip": (SKIP, SKIP),
        "given": (GIVEN, GIVEN),
        "frozen": ({}, {"freeze_obs": 1}),
    },
    "narrow later": {"running": ({}, {}), "skip": (SKIP, SKIP), "frozen": ({}, {"freeze_obs": 1})},
}
FAR = {"constant at first": (0.0, 1.0), "narrow later": (1.0, 0.05)}


def run(far: float, chosen: dict[str, Any], steps: int, seed: int, first: ppax.TrainedRun | None) -> ppax.TrainedRun:
    """Train on goals at most `far` from the origin, with evaluations on goals of the whole cube."""
    env = ppax.envs.VectorEnv(ppax.envs.TimeLimit(Point(far=far), LENGTH), 64)
    agent = {"normalize_obs": True, "normalization": chosen}
    built, env, settings = ppax.build(env, total_steps=steps, seed=seed, agent=agent, num_steps=32, log=QUIET)
    evaluation = ppax.EvalSettings(every=max(1, steps // (20 * 64 * 32)), episodes=256, env_params={"far": 1.0})
    start = None if first is None else ppax.InitFrom(first)
    options = {"num_steps": settings.num_steps, "log": settings.log, "evaluation": evaluation, "init_from": start}
    return ppax.fit(built, env, steps, seed, **options)


def curve(done: ppax.TrainedRun) -> dict[str, list[float]]:
    """Steps and returns of the evaluations; the first one is before training."""
    rows = [(row["env_steps"], row["eval_return"]) for row in done.history if np.isfinite(row["eval_return"])]
    return {"steps": [int(x) for x, _ in rows], "returns": [round(float(y), 3) for _, y in rows]}


def main() -> None:
    """Measure, print, write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="a smoke test: one seed, few steps, nothing written")
    options = parser.parse_args()
    seeds = [1000] if options.quick else [1000 + i for i in range(options.seeds)]
    steps = 16_384 if options.quick else STEPS
    task = "Goals that are constant at first, or narrow later: mean return over goals of the whole cube"
    settings = {"seeds": seeds, "steps": steps, "methods": METHODS, "far": FAR}
    report = Report(None if options.quick else "obs_statistics", task, settings)
    results: dict[str, dict[str, list[Any]]] = {}
    for name, methods in METHODS.items():
        for method, (before, after) in methods.items():
            rows = results.setdefault(name, {}).setdefault(method, [])
            for seed in seeds:
                first = run(FAR[name][0], before, steps, seed, None)
                second = curve(run(FAR[name][1], after, steps, seed + 100, first))
                rows.append({"seed": seed, "first": curve(first), **second})
                print(name, method, seed, *second["returns"][:3], second["returns"][-1], flush=True)
        panels = []
        for one, by_method in results.items():
            tenth = max(1, len(next(iter(by_method.values()))[0]["returns"]) // 10)
            for title, place in (("before the second run", 0), ("after a tenth of it", tenth), ("after it", -1)):
                bars = [bar(m, spread([row["returns"][place] for row in rows]), None) for m, rows in by_method.items()]
                panels.append(panel(f"{one}: {title}", bars, "higher") | {"parity": False})
        report.save(results=results, panels=panels)
    report.finish()


if __name__ == "__main__":
    main()
