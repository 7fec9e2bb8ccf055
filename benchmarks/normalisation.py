"""Why CartPole's return may fall again after 500 with `normalize_obs`: learning curves of six kinds of normalisation.

    pip install "ppax[bench]"
    python benchmarks/normalisation.py            # some ten minutes on two cores; results/normalisation.json and .png
    python benchmarks/normalisation.py --quick    # two seeds, a tenth of the steps, nothing written
    python benchmarks/normalisation.py --only normalize_obs   # measure one again, keep the other results

64 environments x 32 steps, learning rate 1e-3, all else default; twenty seeds in one program (`ppax.sweep`).

    raw                             observations as they are
    normalize_obs                   running statistics, frozen during a rollout and its update
    every step                      running statistics as Stable-Baselines3's VecNormalize and PureJaxRL's
                                    NormalizeVecObservation have them: all environments' observations are merged at
                                    every step, before they are normalised and acted on
    constant                        observations divided by constants, the standard deviations under a trained policy:
                                    no running statistics
    normalize_obs, normalize_reward running statistics, and rewards divided by the std of the discounted return
    normalize_obs, popart           running statistics, and a critic whose targets have mean 0 and std 1

Also plotted: the fraction of the critic's last hidden units that are saturated, |tanh| > 0.99.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ppax
import report
from ppax.core.types import number, part
from ppax.envs import VectorEnv
from ppax.ppo.critics import PopArt
from ppax.ppo.normalization import init_stats, normalize_obs, update_stats

NUM_ENVS, NUM_STEPS = 64, 32
ITERATIONS, POINTS = 10, 49  # of one point, and points of a curve: a million steps
PLANNED = 490  # iterations; nothing is annealed
RESULTS = Path(__file__).parent / "results"
TRAINED_STD = (1.0, 0.65, 0.05, 0.26)


@part
class EveryStep(VectorEnv):
    """Observations normalised by statistics that have just met them."""

    def reset(self, key: Any) -> Any:
        state, obs, mask = super().reset(key)
        stats = update_stats(init_stats((4,)), obs, jnp.ones(len(obs), bool))
        return (state, stats), normalize_obs(stats, obs), mask

    def step(self, state: Any, action: Any, key: Any) -> Any:
        inner, stats = state
        out = super().step(inner, action, key)
        stats = update_stats(stats, out.obs, jnp.ones(len(out.obs), bool))
        return out._replace(state=(out.state, stats), obs=normalize_obs(stats, out.obs))


@part
class Scaled(VectorEnv):
    """Observations over constants."""

    scale: Any = number(default=TRAINED_STD)

    def reset(self, key: Any) -> Any:
        state, obs, mask = super().reset(key)
        return state, obs / jnp.stack(self.scale), mask

    def step(self, state: Any, action: Any, key: Any) -> Any:
        out = super().step(state, action, key)
        return out._replace(obs=out.obs / jnp.stack(self.scale))


WAYS: dict[str, tuple[type, dict[str, Any]]] = {
    "raw": (VectorEnv, {}),
    "normalize_obs": (VectorEnv, {"normalize_obs": True}),
    "every step": (EveryStep, {}),
    "constant": (Scaled, {}),
    "normalize_obs, normalize_reward": (VectorEnv, {"normalize_obs": True, "normalize_reward": True}),
    "normalize_obs, popart": (VectorEnv, {"normalize_obs": True, "critic": PopArt()}),
}


def saturated(learner: Any, obs: Any) -> Any:
    """Share of the critic's last hidden units with |tanh| > 0.99, over observations [B, 4]."""
    x = obs if learner.obs_stats is None else normalize_obs(learner.obs_stats, obs)
    for layer in sorted(learner.params["critic"], key=int):
        x = jnp.tanh(x @ learner.params["critic"][layer]["kernel"] + learner.params["critic"][layer]["bias"])
    return (jnp.abs(x) > 0.99).mean()


def curves(name: str, seeds: int, points: int) -> dict[str, Any]:
    """Return, explained variance and saturation at every point, [points, seeds]."""
    kind, options = WAYS[name]
    env = kind(ppax.make("CartPole-v1").env, NUM_ENVS)
    agent = ppax.PPO(ppax.networks.mlp(env), learning_rate=1e-3, **options)
    states = ppax.start_sweep(agent, env, NUM_STEPS, jax.vmap(jax.random.key)(jnp.arange(seeds)))
    program = jax.jit(partial(ppax.sweep, num_iterations=ITERATIONS, total_iterations=PLANNED))
    look = jax.jit(jax.vmap(saturated))
    found: dict[str, Any] = {"episode_return": [], "explained_variance": [], "saturated": []}
    for _ in range(points):
        states, metrics = program(agent, env, states)
        now = {"saturated": look(states.learner, states.actor.obs)} | {k: metrics[k] for k in list(found)[:2]}
        for key, x in now.items():
            found[key].append([round(float(one), 3) for one in np.asarray(x)])
    last = np.sort(np.array(found["episode_return"])[min(points, 25) - 1])
    print(f"{name}: after {min(points, 25) * ITERATIONS * NUM_ENVS * NUM_STEPS:,} steps", last.round(), flush=True)
    return found


def draw(results: dict[str, Any], path: Path) -> None:
    """Return of every seed and the median, and saturation below; a column for each way."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        2, len(results), figsize=(3.4 * len(results), 5), sharex=True, sharey="row", squeeze=False
    )
    for i, (name, found) in enumerate(results.items()):
        for row, (what, label) in enumerate(
            (("episode_return", "episode return"), ("saturated", "saturated critic units"))
        ):
            if what not in found:
                continue
            values = np.array(found[what])
            steps = np.arange(1, len(values) + 1) * ITERATIONS * NUM_ENVS * NUM_STEPS / 1e3
            panels[row, i].plot(steps, values, color="tab:blue", alpha=0.25, linewidth=1)
            panels[row, i].plot(steps, np.median(values, axis=1), color="black", linewidth=2)
            panels[row, 0].set_ylabel(label)
        panels[0, i].set_title(name, fontsize=10)
        panels[1, i].set_xlabel("thousand steps")
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--points", type=int, default=POINTS, help=f"of {ITERATIONS} iterations each")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    path = RESULTS / "normalisation.json"
    for name in options.only:
        found = curves(name, 2 if options.quick else options.seeds, 3 if options.quick else options.points)
        if options.quick:
            continue
        known = json.loads(path.read_text())["results"] if path.exists() else {}
        known[name] = found
        known = {name: known[name] for name in WAYS if name in known}
        about = {"hardware": report.hardware(), "versions": report.versions()}
        path.write_text(json.dumps(about | {"seeds": options.seeds, "results": known}) + "\n")
        draw(known, RESULTS / "normalisation.png")


if __name__ == "__main__":
    main()
