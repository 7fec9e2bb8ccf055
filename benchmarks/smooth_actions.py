"""Return against change of the action from step to step: CAPS, L2C2, the filter of actions, and none of them.

    python benchmarks/smooth_actions.py            # half an hour on two cores; results/smooth_actions.json and .png
    python benchmarks/smooth_actions.py --quick    # two seeds, few iterations, nothing written
    python benchmarks/smooth_actions.py --task gymnasium/Hopper-v5 --iterations 150 --seeds 3    # an hour
    python benchmarks/smooth_actions.py --task brax/hopper --iterations 100    # hours on a CPU

Pendulum-v1 by default: 16 environments x 128 steps x 60 iterations, the coefficients and seeds of a method in one
program (`ppax.sweep`). The sensors are exact in training; afterwards the policies, without exploration noise, play 32
episodes with exact sensors and 32 with normal noise of standard deviation 0.05 on each number, as policies meet it on a
robot.

    return     mean over episodes
    change     mean |a_t - a_(t-1)| of the actions that the environment gets, behind the filter if there is one
    jerk       mean second difference |a_t - 2 a_(t-1) + a_(t-2)| of the same

CAPS has the same number as temporal and as spatial coefficient. On a host environment (Hopper) each seed is a run by
its preset, of as many steps, and every other value is taken.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import ppax
from ppax.extensions import CAPS, L2C2
from report import RESULTS, Report, bar, panel

SENSOR_NOISE, EPISODES = 0.05, 32
COEFS = (0.01, 0.03, 0.1, 0.3, 1.0)
METHODS: dict[str, tuple[float, ...]] = {
    "without": (0.0,),
    "CAPS": COEFS,
    "L2C2": tuple(10 * x for x in COEFS),
    "filter": (0.7, 0.5, 0.35, 0.25, 0.15),
}
COLORS = {"without": "#333333", "CAPS": "#c8553d", "L2C2": "#2a7f62", "filter": "#3b6fb6"}
# task: length of an episode, options of the agent
TASKS: dict[str, tuple[int, dict[str, Any]]] = {
    "Pendulum-v1": (200, {"learning_rate": 1e-3, "gamma": 0.95, "num_epochs": 10}),
    "brax/hopper": (1000, {"learning_rate": 3e-4, "gamma": 0.99, "num_epochs": 10}),
}
HOST = ("gymnasium/Hopper-v5",)


@ppax.part
class NoisySensors(ppax.envs.Wrapper):
    """Wrapper whose observations have normal noise of standard deviation `std` on each number."""

    std: float = ppax.number("standard deviation of the noise", default=SENSOR_NOISE, low=0.0)

    def reset(self, key: Any) -> Any:
        """Start an episode, with a noisy observation."""
        key, own = jax.random.split(key)
        start = self.env.reset(key)
        return start._replace(obs=start.obs + self.std * jax.random.normal(own, start.obs.shape))

    def step(self, state: Any, action: Any, key: Any) -> Any:
        """Step, with a noisy observation."""
        key, own = jax.random.split(key)
        step = self.env.step(state, action, key)
        return step._replace(obs=step.obs + self.std * jax.random.normal(own, step.obs.shape))


def played(agent: Any, env: Any, learner: Any, key: Any, steps: int) -> dict[str, Any]:
    """Return, change of the action and jerk of the policy's mean actions, means over episodes; `env` is one."""
    filtered = isinstance(env, ppax.envs.ActionFilter)
    size = env.action_space.shape[0]

    def step(carry: Any, key: Any) -> Any:
        state, obs, memory, over = carry
        policy = agent.policy(learner, memory, obs, jnp.zeros(EPISODES, bool), None)
        action = policy.distribution.env_action(policy.distribution.mode())
        out = jax.vmap(env.step)(state, action, jax.random.split(key, EPISODES))
        got = out.obs[:, -size:] if filtered else action
        return (out.state, out.obs, policy.carry, over | out.terminated | out.truncated), (out.reward, got, over)

    begin, own = jax.random.split(key)
    start = jax.vmap(env.reset)(jax.random.split(begin, EPISODES))
    first = (start.state, start.obs, agent.initial_carry(EPISODES), jnp.zeros(EPISODES, bool))
    _, (reward, action, over) = jax.lax.scan(step, first, jax.random.split(own, steps))
    counts = ~over  # [T, episodes]
    once = jnp.diff(action, axis=0)
    twice = jnp.diff(once, axis=0)

    def mean(x: Any, counts: Any) -> Any:
        return jnp.where(counts, jnp.abs(x).mean(axis=-1), 0.0).sum() / counts.sum()

    total = jnp.where(counts, reward, 0.0).sum() / EPISODES
    return {"return": total, "change": mean(once, counts[1:]), "jerk": mean(twice, counts[2:])}


def measure(task: str, method: str, seeds: int, iterations: int) -> dict[str, Any]:
    """Return the results of each value of a method [values, seeds], with noisy and with exact sensors."""
    length, options = TASKS[task]
    values = METHODS[method]
    env = ppax.make(task, 16, env_params={"action_filter": 1.0} if method == "filter" else {})
    each = jnp.repeat(jnp.array(values, jnp.float32), seeds)
    agent = ppax.PPO(
        ppax.networks.mlp(env),
        minibatch=ppax.minibatches.Shuffle(num_minibatches=8),
        normalize_obs=True,
        normalize_reward=True,
        **options,
    )
    if method == "filter":
        env = dataclasses.replace(env, env=dataclasses.replace(env.env, action_filter=each))
    elif method != "without":
        extension: Any = CAPS(each, each) if method == "CAPS" else L2C2(each)
        agent = dataclasses.replace(agent, extensions=(extension,))
    keys = jnp.tile(jax.random.split(jax.random.key(0), seeds), len(values))
    states = ppax.start_sweep(agent, env, 128, keys)
    states, _ = jax.jit(ppax.sweep, static_argnums=3)(agent, env, states, iterations)
    found: dict[str, Any] = {"values": list(values)}
    for sensors, std in (("noisy", SENSOR_NOISE), ("exact", 0.0)):

        @jax.jit
        def play(learner: Any, value: Any, std: float = std) -> Any:
            one = env.env
            if method == "filter":
                one = dataclasses.replace(one, env=NoisySensors(one.env, std), action_filter=value)
            else:
                one = NoisySensors(one, std)
            # the losses do not act
            return played(dataclasses.replace(agent, extensions=()), one, learner, jax.random.key(7), length)

        out = jax.lax.map(lambda both, play=play: play(*both), (states.learner, each))
        found[sensors] = {name: np.asarray(x).reshape(len(values), seeds).round(4).tolist() for name, x in out.items()}
    return found


def measure_host(task: str, method: str, seeds: int, iterations: int) -> dict[str, Any]:
    """Return the results of every other value of a method [values, seeds], with noisy and with exact sensors."""
    values = METHODS[method][::2]
    found: dict[str, Any] = {"values": list(values)}
    found |= {sensors: {name: [] for name in ("return", "change", "jerk")} for sensors in ("noisy", "exact")}
    for value in values:
        extensions = {
            "CAPS": {"caps": {"temporal_coef": value, "spatial_coef": value}},
            "L2C2": {"l2c2": {"policy_coef": value}},
        }.get(method, {})
        env_params = {"action_filter": value} if method == "filter" else {}
        runs = [
            ppax.build(
                task,
                total_steps=iterations * 16 * 128,
                seed=seed,
                agent={"extensions": extensions},
                env_params=env_params,
                log={"console": False},
            ).fit()
            for seed in range(seeds)
        ]
        for sensors, std in (("noisy", SENSOR_NOISE), ("exact", 0.0)):
            rows = [played_host(run.policy(), task, value if method == "filter" else None, std) for run in runs]
            for name, numbers in found[sensors].items():
                numbers.append([round(row[name], 4) for row in rows])
    return found


def played_host(policy: Any, task: str, share: float | None, std: float) -> dict[str, float]:
    """Return, change of the action and jerk of the policy's mean actions, means over episodes; `share` is a filter's.

    The loop is that of a robot: sensors with noise, the policy, the filter, and the environment as Gymnasium has it.
    """
    envs = [gymnasium.make(task.partition("/")[2]) for _ in range(EPISODES)]
    obs = np.stack([env.reset(seed=i)[0] for i, env in enumerate(envs)]).astype(np.float32)
    filtered = np.zeros((EPISODES, *envs[0].action_space.shape), np.float32)
    rng, over = np.random.default_rng(7), np.zeros(EPISODES, bool)
    total, actions, counts = 0.0, [], []
    while not over.all():
        seen = (obs + std * rng.normal(size=obs.shape)).astype(np.float32)
        action = policy.act(seen if share is None else np.concatenate([seen, filtered], axis=1))
        if share is not None:
            action = filtered = filtered + share * (action - filtered)
        actions.append(action)
        counts.append(~over)
        for i in np.flatnonzero(~over):
            obs[i], reward, terminated, truncated, _ = envs[i].step(action[i])
            total += float(reward)
            over[i] = terminated or truncated
    once = np.diff(np.stack(actions), axis=0)
    twice = np.diff(once, axis=0)
    lived = np.stack(counts)
    change, jerk = (float(np.abs(x).mean(axis=-1)[lived[n:]].mean()) for n, x in ((1, once), (2, twice)))
    return {"return": total / EPISODES, "change": change, "jerk": jerk}


def draw(results: dict[str, Any], task: str, name: str) -> None:
    """Curves of each method over its values: return against change, medians of the seeds, with all seeds as points."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained", sharey=True)
    for axis, sensors in zip(panels, ("noisy", "exact"), strict=True):
        for method, found in results.items():
            change, value = (np.asarray(found[sensors][key], float) for key in ("change", "return"))
            color = COLORS[method]
            axis.plot(change, value, ".", color=color, markersize=4, alpha=0.35)
            x, y = np.median(change, axis=1), np.median(value, axis=1)
            axis.plot(x, y, "o-" if len(x) > 1 else "s", color=color, markersize=5 if len(x) > 1 else 8, label=method)
            for one, at, up in zip(found["values"], x, y, strict=True):
                if method != "without":
                    axis.annotate(f"{one:g}", (at, up), (3, 4), textcoords="offset points", fontsize=7, color=color)
        axis.set_title(f"{task}, {'noisy' if sensors == 'noisy' else 'exact'} sensors", fontsize=10)
        axis.set_xlabel("mean |a(t) - a(t-1)|, less is smoother")
        axis.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("return")
    panels[0].legend(frameon=False, fontsize=9)
    figure.savefig(RESULTS / f"{name}.png", dpi=110)


def main() -> None:
    """Train, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=[*TASKS, *HOST], default="Pendulum-v1")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=60)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    seeds, iterations = (2, 6) if options.quick else (options.seeds, options.iterations)
    name = "smooth_actions" + ("" if options.task == "Pendulum-v1" else f"_{options.task.replace('/', '_')}")
    task = (
        f"{options.task}, {iterations * 16 * 128:,} steps: mean |a_t - a_(t-1)| with noisy sensors over that without "
        "any of the methods"
    )
    report = Report(None if options.quick else name, task, {"seeds": seeds, "iterations": iterations})
    results: dict[str, Any] = {}
    bars = []
    measured = measure_host if options.task in HOST else measure
    for method in METHODS:
        results[method] = found = measured(options.task, method, seeds, iterations)
        for i, value in enumerate(found["values"]):
            shown = {
                sensors: {key: round(statistics.median(x[i]), 3) for key, x in found[sensors].items()}
                for sensors in ("noisy", "exact")
            }
            print(f"{method} {value:g}: {shown}", flush=True)
            if method != "without":
                usual = statistics.median(results["without"]["noisy"]["change"][0])
                ratios = [x / usual for x in found["noisy"]["change"][i]]
                ends = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
                bars.append(bar(f"{method} {value:g}", ends, None))
        report.save(panels=[panel("change of the action over that without", bars, "lower")], results=results)
    if not options.quick:
        draw(results, options.task, name)


if __name__ == "__main__":
    main()
