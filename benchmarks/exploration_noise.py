"""State-dependent exploration noise (gSDE) against independent noise: returns and jitter of actions, several seeds.

    python benchmarks/exploration_noise.py                      # two MuJoCo tasks, three seeds; an hour on one core
    python benchmarks/exploration_noise.py --steps 4096 --seeds 1 --tasks Pendulum-v1    # a short check

Writes results/exploration_noise.json, unless --dry. Jitter is the mean absolute change of the sampled
action from one step to the next in the last rollout, which gSDE is meant to reduce.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ppax
from ppax.training.backends import backend_of

RESULT = Path(__file__).parent / "results" / "exploration_noise.json"
TASKS = ("gymnasium/Hopper-v5", "gymnasium/HalfCheetah-v5")
GSDE = {"gsde": True, "log_std_init": -2.0}
AGENTS: dict[str, dict[str, Any]] = {
    "independent": {},
    "gSDE, 4 steps": {"network": GSDE, "extensions": {"held_noise": {"steps": 4}}},
    "gSDE, 16 steps": {"network": GSDE, "extensions": {"held_noise": {"steps": 16}}},
}


def measure(task: str, options: dict[str, Any], steps: int, seed: int) -> dict[str, float]:
    """Train one seed; return the mean return of its evaluation and the jitter of its sampled actions."""
    plan = ppax.build(task, total_steps=steps, seed=seed, agent=options, log={"console": False})
    agent, env = plan.agent, plan.env
    with env:
        run = plan.fit()
        gathered = backend_of(env).rollouts(agent, run.state)(run.state.learner, run.state.actor, jax.random.key(seed))
        steps_ = gathered.collected.rollout.steps
        change = np.abs(np.diff(np.asarray(steps_.action), axis=0)).mean(axis=-1)
        within = ~np.asarray(steps_.first)[1:]
        return {"return": run.evaluate(32).mean_return, "jitter": float(change[within].mean())}


def main() -> None:
    """Measure every agent on every task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--dry", action="store_true", help="write nothing")
    options = parser.parse_args()
    found: dict[str, Any] = {}
    for task in options.tasks:
        for name, agent in AGENTS.items():
            rows = [measure(task, agent, options.steps, seed) for seed in range(options.seeds)]
            means = {key: [round(row[key], 4) for row in rows] for key in rows[0]}
            found.setdefault(task, {})[name] = means
            print(f"{task}, {name}: {means}", flush=True)
            if not options.dry:
                RESULT.write_text(json.dumps({"steps": options.steps, "tasks": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
