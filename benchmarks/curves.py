"""Learning curves of the fast program beside those of the plain one, and of bfloat16: what is fast must learn the same.

    python benchmarks/curves.py            # some ten minutes on two cores; writes results/curves.json and .png

The plain program is one device, whole minibatches at once, and permutations by sorting random keys. The fast one is
what a user gets; `bfloat16` is that with `compute_dtype = "bfloat16"`. Two presets, and W3 (memory.py) with a GRU and a
minGRU on 64 environments for half a million steps. Same seeds; 95 % confidence intervals of the mean over seeds
(Student's t).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import jax

import ours
import ppax
import report
import w1
from ppax import config
from ppax.minibatches import shuffle

TASKS = ("CartPole-v1", "Pendulum-v1", "W3-gru", "W3-mingru")
PROGRAMS = {"plain": "tab:orange", "fast": "tab:blue", "bfloat16": "tab:green"}
POINTS = 20
T_95 = {1: 12.71, 2: 4.30, 4: 2.78, 9: 2.26, 19: 2.09}  # two-sided quantiles by degrees of freedom
RESULTS = Path(__file__).parent / "results"


def build(task: str) -> tuple[Any, Any, int, int]:
    """Agent, environments, steps of a rollout and of the whole training."""
    if not task.startswith("W3-"):
        agent, env, run = config.build(config.find(task))
        return agent, env, run.num_steps, run.total_steps
    env = ppax.make("CartPole-v1", 64)
    return ours.agent_for(env, task.removeprefix("W3-")), env, w1.NUM_STEPS, 500_000


def curves(task: str, name: str, seeds: int) -> list[list[float]]:
    """Mean training return at `POINTS` times of every seed."""
    agent, env, num_steps, total_steps = build(task)
    if name == "plain":
        agent = dataclasses.replace(agent, program=ppax.Program(devices=1, chunk_rows=2**31 - 1))
    if name == "bfloat16":
        agent = dataclasses.replace(agent, compute_dtype="bfloat16")
    shuffle.SORT_BELOW = 2**31 if name == "plain" else 2048
    start = jax.jit(ppax.start, static_argnames="num_steps")
    total = -(-total_steps // (num_steps * env.num_streams) // POINTS) * POINTS
    program, found = None, []
    for seed in range(seeds):
        state, curve = start(agent, env, num_steps, jax.random.key(seed)), []
        program = program or ppax.compile(agent, env, state)
        for _ in range(POINTS):
            state, metrics = program(agent, env, state, total // POINTS, total)
            curve.append(float(metrics["episode_return"]))
        found.append(curve)
    return found


def interval(values: list[float]) -> tuple[float, float]:
    """Mean, and half the width of its confidence interval."""
    half = T_95[len(values) - 1] * statistics.stdev(values) / len(values) ** 0.5
    return statistics.mean(values), half


def compare(task: str, seeds: int) -> dict[str, Any]:
    """All programs on one task: final returns, areas under the curve, and whether the intervals meet the fast one's."""
    result: dict[str, Any] = {"task": task}
    for name in PROGRAMS:
        found = curves(task, name, seeds)
        result[name] = {"curves": found}
        for what, values in (
            ("final", [statistics.mean(c[-POINTS // 4 :]) for c in found]),
            ("area", [statistics.mean(x for x in c if x == x) for c in found]),
        ):
            result[name][what] = interval(values)
    for what in ("final", "area"):
        centre, half = result["fast"][what]
        agrees = {name: abs(result[name][what][0] - centre) <= result[name][what][1] + half for name in PROGRAMS}
        result[f"{what}_agrees"] = agrees
        told = (f"{name} {result[name][what][0]:8.1f} +- {result[name][what][1]:5.1f}" for name in PROGRAMS)
        print(f"{task:12} {what:6}", *told, "" if all(agrees.values()) else "DIFFER", sep="   ", flush=True)
    return result


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """All curves, a panel for each task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(results), figsize=(5 * len(results), 3.6), squeeze=False)
    for panel, result in zip(panels[0], results, strict=True):
        for name, colour in PROGRAMS.items():
            found = result[name]["curves"]
            for curve in found:
                panel.plot(range(1, POINTS + 1), curve, color=colour, alpha=0.25, linewidth=1)
            means = [statistics.mean(column) for column in zip(*found, strict=True)]
            panel.plot(range(1, POINTS + 1), means, color=colour, linewidth=2, label=f"{name}, mean of {len(found)}")
        panel.set_title(result["task"])
        panel.set_xlabel("training, in twentieths")
        panel.set_ylabel("episode return")
        panel.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, choices=[n + 1 for n in T_95])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help="presets, W3-gru, W3-mingru, ...")
    parser.add_argument("--quick", action="store_true", help="two seeds of the first task, nothing written")
    options = parser.parse_args()
    tasks, seeds = (options.tasks[:1], 2) if options.quick else (options.tasks, options.seeds)
    results = [compare(task, seeds) for task in tasks]
    if not options.quick:
        about = {"hardware": report.hardware(), "versions": report.versions()}
        (RESULTS / "curves.json").write_text(json.dumps(about | {"seeds": seeds, "results": results}, indent=1) + "\n")
        draw(results, RESULTS / "curves.png")


if __name__ == "__main__":
    main()
