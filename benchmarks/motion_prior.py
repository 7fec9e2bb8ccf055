"""Adversarial motion prior: a commanded speed is learned with and without the style of recorded motions.

    python benchmarks/motion_prior.py            # some ten minutes on two cores; results/motion_prior.json and .png
    python benchmarks/motion_prior.py --quick    # one seed, few iterations, nothing written

The world of examples/motion_prior.py: a swimmer is rewarded for a commanded speed along a lane, by whichever motion.
The recordings are 50 swimmers who go in waves at different speeds, as positions and velocities without commands and
actions. Each seed trains without the motion prior, with it at its defaults, and with the discriminator's gradient
penalty of the paper.

    reward      of the task, mean of the last 100 steps of 64 episodes, with the mode of the policy; at most 1
    distance    from the recorded motion: 0 on its path, 1 straight ahead in the middle of the lane
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ppax
from report import RESULTS, Report, bar, panel

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import motion_prior as world

WAYS: dict[str, dict[str, Any] | None] = {"without": None, "with": {}, "penalty 5": {"gradient_penalty": 5.0}}
SHOWN = {"without": "#c8553d", "with": "#2a7f62"}


def path_of(run: Any, steps: int = 120) -> np.ndarray:
    """Places [steps, 2] of one swimmer of a trained policy."""
    env = ppax.envs.VectorEnv(ppax.envs.TimeLimit(world.Swimmer(), 200), 1)
    policy = run.policy()
    obs = np.asarray(ppax.trajectory(policy.agent, env, policy.learner, steps, jax.random.key(5)).obs)[:, 0]
    return np.stack([np.cumsum(obs[:, 1]) * world.DT, obs[:, 0]], axis=-1)


def draw(paths: dict[str, np.ndarray]) -> None:
    """The lane from above: a recorded swimmer, and those of the first seed without and with the motion prior."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    recorded = world.recorded()["observations"][:100]
    shown = {"recorded": np.stack([np.cumsum(recorded[:, 1]) * world.DT, recorded[:, 0]], axis=-1), **paths}
    figure, panels = plt.subplots(len(shown), 1, figsize=(7.2, 4.2), layout="constrained", sharex=True, sharey=True)
    for axis, (name, path) in zip(panels, shown.items(), strict=True):
        axis.plot(*path.T, color=SHOWN.get(name, "#444444"), linewidth=1.6)
        axis.set_title(name if name == "recorded" else f"{name} motion prior", fontsize=9, loc="left")
        axis.set_ylim(-1.1, 1.1)
        axis.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("along the lane")
    figure.supylabel("across", fontsize=9)
    figure.savefig(RESULTS / "motion_prior.png", dpi=110)


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=world.ITERATIONS)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    seeds, iterations = (1, 10) if options.quick else (options.seeds, options.iterations)
    task = "A commanded speed, learned with and without the style of recorded motions"
    report = Report(None if options.quick else "motion_prior", task, {"seeds": seeds, "iterations": iterations})
    env = ppax.envs.VectorEnv(ppax.envs.TimeLimit(world.Swimmer(), 200), 64)
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
    paths = {}
    for seed in range(seeds):
        for way, settings in WAYS.items():
            prior = () if settings is None else (motion_prior(env, settings),)
            run = world.train(prior, seed, iterations)
            found[way].append(world.motion(run))
            print(f"seed {seed}, {way}: reward {found[way][-1][0]:.3f}, distance {found[way][-1][1]:.3f}", flush=True)
            if seed == 0 and way in SHOWN:
                paths[way] = path_of(run)
    panels = []
    for place, (title, better) in enumerate((("reward of the task", "higher"), ("distance from the motion", "lower"))):
        bars = []
        for way in WAYS:
            values = [pair[place] for pair in found[way]]
            target = {("with", 0): 0.95, ("with", 1): 0.3}.get((way, place))
            own = {"median": statistics.median(values), "min": min(values), "max": max(values)}
            bars.append(bar(way, own, target))
        panels.append(panel(title, bars, better))
    report.save(panels=panels, results=found)
    if not options.quick:
        draw(paths)


def motion_prior(env: Any, settings: dict[str, Any]) -> Any:
    """The motion prior from the recordings, which reads all of an observation but the command."""
    return ppax.imitation.motion_prior(env, world.recorded(), entries=("0:3",), **settings)


if __name__ == "__main__":
    main()
