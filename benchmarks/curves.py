"""Learning curves of the fast, the plain and the bfloat16 program: the optimisations must not change learning.

    python benchmarks/curves.py                               # six tasks, 20 seeds: an hour on two cores
    python benchmarks/curves.py --programs fast bfloat16      # fast and bfloat16 only

The plain program is one device, whole minibatches at once, and permutations by sorting random keys. The fast one is
what a user gets with products in float32; `bfloat16` is that with `compute_dtype = "bfloat16"`. Presets, and W3
(memory.py) with a GRU, a minGRU and an LSTM on 64 environments for half a million steps. Each program is compared with
the fast one by the difference of the means over seeds: its 95 % confidence interval, and the p value of Welch's test.
Writes results/curves.json and .png.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import jax
from scipy import stats

import ours
import ppax
import report
import w1
from ppax import config
from ppax.ppo import minibatches

TASKS = ("CartPole-v1", "Pendulum-v1", "gymnax/Acrobot-v1", "W3-gru", "W3-mingru", "W3-lstm")
PROGRAMS = {"plain": "tab:orange", "fast": "tab:blue", "bfloat16": "tab:green"}
SORT_BELOW = minibatches.SORT_BELOW  # as it is shipped
POINTS = 20
SIGNIFICANT = 0.05  # p value below which two programs are said to differ; of 20 such comparisons one does by chance
RESULTS = Path(__file__).parent / "results"
COMMIT = "ppax commit"  # in a report's versions
PROCESSOR = "processor"  # of a task, as its commit


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
    agent = dataclasses.replace(agent, compute_dtype="bfloat16" if name == "bfloat16" else "float32")
    if name == "plain":
        agent = dataclasses.replace(agent, program=ppax.Program(devices=1, chunk_rows=2**31 - 1))
    minibatches.SORT_BELOW = 2**31 if name == "plain" else SORT_BELOW
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


def difference(values: list[float], reference: list[float]) -> dict[str, float]:
    """Difference of the means, its 95 % confidence interval, and the p value of Welch's test."""
    if len({*values, *reference}) == 1:
        return {"difference": 0.0, "low": 0.0, "high": 0.0, "p": 1.0}  # all the same number: the test divides by zero
    test = stats.ttest_ind(values, reference, equal_var=False)
    low, high = test.confidence_interval(0.95)
    centre = statistics.mean(values) - statistics.mean(reference)
    return {"difference": centre, "low": float(low), "high": float(high), "p": float(test.pvalue)}


def compare(task: str, seeds: int, programs: list[str]) -> dict[str, Any]:
    """All programs on one task: final returns and areas under the curve, each beside those of the fast one."""
    result: dict[str, Any] = {"task": task}
    for name in programs:
        found = curves(task, name, seeds)
        final = [statistics.mean(curve[-POINTS // 4 :]) for curve in found]
        area = [statistics.mean(x for x in curve if x == x) for curve in found]
        result[name] = {"curves": found, "final": final, "area": area}
    for what in ("final", "area"):
        reference = result["fast"][what]
        told = [f"fast {statistics.mean(reference):8.1f}"]
        for name in (name for name in programs if name != "fast"):
            found = result[name][f"{what}_difference"] = difference(result[name][what], reference)
            differs = " DIFFERS" if found["p"] < SIGNIFICANT else ""
            interval = f"{found['difference']:+7.1f} ({found['low']:+.1f} .. {found['high']:+.1f})"
            told.append(f"{name} {interval} p {found['p']:.2f}{differs}")
        print(f"{task:18} {what:6}", *told, sep="   ", flush=True)
    return result


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """All curves, a panel for each task."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(results), figsize=(5 * len(results), 3.6), squeeze=False)
    for panel, result in zip(panels[0], results, strict=True):
        for name, colour in PROGRAMS.items():
            found = result.get(name, {}).get("curves")
            if not found:
                continue
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


def measured_before(versions: dict[str, str], seeds: int) -> dict[str, dict[str, Any]]:
    """Tasks in the file of results that the same libraries measured with as many seeds: an interrupted run goes on.

    Each says by itself which commit of ppax it ran, and on which processor.
    """
    path = RESULTS / "curves.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    earlier = before.get("versions", {}) | {COMMIT: versions[COMMIT]}
    shared = earlier.keys() & versions.keys()  # PureJaxRL, which has no part in this, may be there in one of them
    same = all(earlier[name] == versions[name] for name in shared) and before.get("seeds") == seeds
    return {result["task"]: result for result in before["results"]} if same else {}


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), help="presets, W3-gru, W3-mingru, ...")
    parser.add_argument("--programs", nargs="+", default=list(PROGRAMS), choices=PROGRAMS, help="fast is always run")
    parser.add_argument("--quick", action="store_true", help="two seeds of the first task, nothing written")
    options = parser.parse_args()
    tasks, seeds = (options.tasks[:1], 2) if options.quick else (options.tasks, options.seeds)
    programs = [name for name in PROGRAMS if name == "fast" or name in options.programs]
    about = {"hardware": report.hardware(), "versions": report.versions(), "seeds": seeds}
    results = {} if options.quick else measured_before(about["versions"], seeds)
    for task in tasks:
        origin = {COMMIT: about["versions"][COMMIT], PROCESSOR: about["hardware"]["cpu"]}
        results[task] = compare(task, seeds, programs) | origin
        if not options.quick:  # after each task: what is measured is kept
            known = [results[task] for task in (*TASKS, *results) if task in results]
            ordered = list({result["task"]: result for result in known}.values())
            (RESULTS / "curves.json").write_text(json.dumps(about | {"results": ordered}, indent=1) + "\n")
            draw(ordered, RESULTS / "curves.png")


if __name__ == "__main__":
    main()
