"""Finished episodes and valid rows of each iteration where all episodes are equally long, with and without `stagger`.

    python benchmarks/stagger.py            # some ten minutes on two cores; results/stagger.json and .png
    python benchmarks/stagger.py --quick    # one seed, few environments and iterations, nothing written

Pendulum-v1, whose episodes are truncated after 200 steps and never end otherwise: 2,048 environments x 16 steps, the
seeds in one program (`ppax.sweep`). All environments begin together. Without `stagger` they end together: once in 12.5
iterations, in which 2,048 rows are resets and not valid, all other iterations have no finished episode, and a batch
holds 16 adjacent steps of all episodes. With `stagger = true` about as many episodes end in every iteration.

    episodes          finished episodes of an iteration that are logged
    valid             share of an iteration's rows that are learned from
    reward_mean       mean reward of a step: without `stagger` it swings with the age of the episodes in a batch
    return            of evaluations after training, 256 episodes with the mode of the policy

The spread is the standard deviation over the iterations after the first 200 steps.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import statistics
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ppax
from report import RESULTS, Report, bar, panel

ENV, NUM_ENVS, NUM_STEPS, EPISODE = "Pendulum-v1", 2048, 16, 200
SHOWN = {"episodes": "finished episodes", "valid": "share of valid rows", "episode_length": "episode length"}
SHOWN |= {"reward_mean": "mean reward of a step"}


def curves(stagger: bool, seeds: int, num_envs: int, iterations: int) -> dict[str, Any]:
    """Metrics of every iteration [iterations, seeds], and the evaluated return of each seed's last policy."""
    env = ppax.make(ENV, num_envs, stagger=stagger)
    settings: dict[str, Any] = {"gamma": 0.95, "num_epochs": 4, "normalize_obs": True, "normalize_reward": True}
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, **settings)
    states = ppax.start_sweep(agent, env, NUM_STEPS, jax.vmap(jax.random.key)(jnp.arange(seeds)))
    program = jax.jit(functools.partial(ppax.sweep, num_iterations=1, total_iterations=iterations))
    found: dict[str, Any] = {name: [] for name in SHOWN}
    steps = np.zeros(seeds)
    for _ in range(iterations):
        states, metrics = program(agent, env, states)
        now = np.asarray(states.env_steps)[:, 0]
        valid, steps = (now - steps) / (num_envs * NUM_STEPS), now
        for name, x in {name: valid if name == "valid" else metrics[name] for name in SHOWN}.items():
            found[name].append([None if np.isnan(one) else round(float(one), 4) for one in np.asarray(x)])
    one = dataclasses.replace(env, num_envs=16)
    evaluated = [
        ppax.evaluate(agent, one, jax.tree.map(lambda x, i=i: x[i], states.learner), jax.random.key(7), episodes=256)
        for i in range(seeds)
    ]
    return found | {"return": [round(result.mean_return, 1) for result in evaluated]}


def spreads(found: dict[str, Any], name: str) -> list[float]:
    """Standard deviation of a metric over the iterations after the first episode, for each seed."""
    whole = np.array(found[name], float)[EPISODE // NUM_STEPS + 1 :]
    return [float(x) for x in whole.std(axis=0)]


def draw(results: dict[str, Any]) -> None:
    """Each metric over the iterations, of the first seed, without and with `stagger`."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(SHOWN), figsize=(3.6 * len(SHOWN), 3.2), layout="constrained")
    for axis, (name, label) in zip(panels, SHOWN.items(), strict=True):
        for way, color in (("without", "#c8553d"), ("stagger", "#2a7f62")):
            values = np.array(results[way][name], float)[:, 0]
            marker = "." if name == "episode_length" else None
            axis.plot(np.arange(1, len(values) + 1), values, color=color, marker=marker, linewidth=1.2, label=way)
        axis.set_title(label, fontsize=10)
        axis.set_xlabel("iteration")
        axis.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize=9)
    figure.savefig(RESULTS / "stagger.png", dpi=110)


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=100)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    seeds, num_envs = (1, 64) if options.quick else (options.seeds, NUM_ENVS)
    iterations = 30 if options.quick else options.iterations
    task = (
        f"{ENV}, {num_envs:,} environments x {NUM_STEPS} steps: spread over the iterations with `stagger = true` over "
        "that without"
    )
    report = Report(None if options.quick else "stagger", task, {"seeds": seeds, "iterations": iterations})
    ways = {"without": False, "stagger": True}
    results = {way: curves(stagger, seeds, num_envs, iterations) for way, stagger in ways.items()}
    bars = []
    for name, target in (("episodes", 0.25), ("valid", 0.25), ("reward_mean", None)):
        pairs = zip(spreads(results["stagger"], name), spreads(results["without"], name), strict=True)
        ratios = [mine / other for mine, other in pairs]
        spread = {way: round(statistics.median(spreads(results[way], name)), 4) for way in ways}
        print(f"{name}: spread {spread}, ratio {statistics.median(ratios):.3f}", flush=True)
        own = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
        bars.append(bar(SHOWN[name], own, target))
    for way in ways:
        print(f"{way}: returns {results[way]['return']}", flush=True)
    report.save(panels=[panel("spread with `stagger` over without", bars, "lower")], results=results)
    if not options.quick:
        draw(results)


if __name__ == "__main__":
    main()
