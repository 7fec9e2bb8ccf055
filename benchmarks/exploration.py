"""Random network distillation against no intrinsic reward on a sparse maze, with the same budget of steps.

    python benchmarks/exploration.py            # five seeds of each in one program; a few minutes on two cores
    python benchmarks/exploration.py --quick    # a few iterations, nothing written

Maze-9 is a winding corridor of 48 steps with a reward of 1 at its end and a time limit of 150: random actions hardly
ever get there, so that PPO alone has nothing to learn from. Reported is the fraction of episodes that reach the
goal, for each seed and each eighth of training.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np

import ppax
from report import Report, bar, panel

ENV, NUM_ENVS, NUM_STEPS, ITERATIONS, SEEDS = "Maze-9", 32, 128, 80, 5
AGENT = {"learning_rate": 2.5e-3, "ent_coef": 0.02}
RND = {"coef": 0.2}
ROWS = 8


def curves(extensions: tuple[ppax.Extension, ...], iterations: int) -> dict[str, Any]:
    """Mean return of each seed (share of episodes that reach the goal) in each of ROWS equal parts of training."""
    env = ppax.make(ENV, NUM_ENVS)
    agent = ppax.PPO(ppax.networks.mlp(env), extensions=extensions, **AGENT)
    states = ppax.start_sweep(agent, env, NUM_STEPS, jax.random.split(jax.random.key(7), SEEDS))
    train, shares, steps = jax.jit(ppax.sweep), [], []
    for _ in range(ROWS):
        states, metrics = train(agent, env, states, iterations // ROWS, iterations)
        shares.append(np.nan_to_num(np.asarray(metrics["episode_return"])).round(3).tolist())
        steps.append(int(states.iteration[0]) * NUM_ENVS * NUM_STEPS)
        print([type(one).__name__ for one in extensions], steps[-1], shares[-1], flush=True)
    return {"steps": steps, "share_at_goal": shares}


def main() -> None:
    """Measure both, print rows, write the results."""
    parser = argparse.ArgumentParser(description="RND beside no intrinsic reward on a sparse maze.")
    parser.add_argument("--quick", action="store_true", help="a smoke test: nothing written")
    quick = parser.parse_args().quick
    sizes = {"env": ENV, "num_envs": NUM_ENVS, "num_steps": NUM_STEPS, "iterations": ITERATIONS, "seeds": SEEDS}
    task = "A maze with one reward at its end: share of episodes that reach it, RND beside no intrinsic reward"
    report = Report(None if quick else "exploration", task, sizes | {"agent": AGENT, "rnd": RND})
    extensions = {"rnd": (ppax.extensions.RND(**RND),), "none": ()}
    results: dict[str, Any] = {}
    for name, chosen in extensions.items():
        results[name] = curves(chosen, 2 * ROWS if quick else ITERATIONS)
        report.save(results=results)
    last = {name: result["share_at_goal"][-1] for name, result in results.items()}
    bars = [
        bar(name, {"median": float(np.median(x)), "min": min(x), "max": max(x)}, 0.9 if name == "rnd" else None)
        for name, x in last.items()
    ]
    report.save(results=results, panels=[panel("share of episodes at the goal", bars, "higher")])
    report.finish()


if __name__ == "__main__":
    main()
