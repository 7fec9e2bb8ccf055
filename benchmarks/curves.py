"""Learning curves of the fast program beside those of the plain one: what is fast must learn the same.

    python benchmarks/curves.py            # a few minutes on two cores; writes results/curves.json and .png

The plain program is one device, whole minibatches at once, and permutations by sorting random keys. The fast one is
what a user gets. Same presets and seeds; 95 % confidence intervals of the mean over seeds (Student's t).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
from pathlib import Path
from typing import Any

import jax

import ppax
import report
from ppax import config
from ppax.minibatches import shuffle

PRESETS = ("CartPole-v1", "Pendulum-v1")
POINTS = 20
T_95 = {1: 12.71, 2: 4.30, 4: 2.78, 9: 2.26, 19: 2.09}  # two-sided quantiles by degrees of freedom
RESULTS = Path(__file__).parent / "results"


def curves(preset: str, fast: bool, seeds: int) -> list[list[float]]:
    """Mean training return at `POINTS` times of every seed."""
    agent, env, run = config.build(config.find(preset))
    if not fast:
        agent = dataclasses.replace(agent, program=ppax.Program(devices=1, chunk_rows=2**31 - 1))
    shuffle.SORT_BELOW = 2048 if fast else 2**31
    start = jax.jit(ppax.start, static_argnames="num_steps")
    total = -(-run.total_steps // (run.num_steps * env.num_streams) // POINTS) * POINTS
    program, found = None, []
    for seed in range(seeds):
        state, curve = start(agent, env, run.num_steps, jax.random.key(seed)), []
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


def compare(preset: str, seeds: int) -> dict[str, Any]:
    """Both programs on one preset: final returns, areas under the curve, and whether the intervals meet."""
    result: dict[str, Any] = {"preset": preset}
    for name in ("fast", "plain"):
        found = curves(preset, name == "fast", seeds)
        result[name] = {"curves": found}
        for what, values in (
            ("final", [statistics.mean(c[-POINTS // 4 :]) for c in found]),
            ("area", [statistics.mean(x for x in c if x == x) for c in found]),
        ):
            result[name][what] = interval(values)
    for what in ("final", "area"):
        (a, da), (b, db) = result["fast"][what], result["plain"][what]
        result[f"{what}_agrees"] = abs(a - b) <= da + db
        print(f"{preset:12} {what:6} fast {a:8.1f} +- {da:5.1f}   plain {b:8.1f} +- {db:5.1f}")
    return result


def draw(results: list[dict[str, Any]], path: Path) -> None:
    """All curves, a panel for each preset."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(results), figsize=(5 * len(results), 3.6), squeeze=False)
    for panel, result in zip(panels[0], results, strict=True):
        for name, colour in (("plain", "tab:orange"), ("fast", "tab:blue")):
            found = result[name]["curves"]
            for curve in found:
                panel.plot(range(1, POINTS + 1), curve, color=colour, alpha=0.25, linewidth=1)
            means = [statistics.mean(column) for column in zip(*found, strict=True)]
            panel.plot(range(1, POINTS + 1), means, color=colour, linewidth=2, label=f"{name}, mean of {len(found)}")
        panel.set_title(result["preset"])
        panel.set_xlabel("training, in twentieths")
        panel.set_ylabel("episode return")
        panel.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """Compare, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5, choices=[n + 1 for n in T_95])
    parser.add_argument("--presets", nargs="+", default=list(PRESETS))
    parser.add_argument("--quick", action="store_true", help="two seeds of the first preset, nothing written")
    options = parser.parse_args()
    presets, seeds = (options.presets[:1], 2) if options.quick else (options.presets, options.seeds)
    results = [compare(preset, seeds) for preset in presets]
    if not options.quick:
        about = {"hardware": report.hardware(), "versions": report.versions()}
        (RESULTS / "curves.json").write_text(json.dumps(about | {"seeds": seeds, "results": results}, indent=1) + "\n")
        draw(results, RESULTS / "curves.png")


if __name__ == "__main__":
    main()
