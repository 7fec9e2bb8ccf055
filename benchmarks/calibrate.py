"""Thresholds of the score table's provisional rows, calibrated with rejax and SB3 at the settings of ppax.

    python benchmarks/calibrate.py              # all rows below, ten seeds each in one program; an hour on two cores
    python benchmarks/calibrate.py L3 L4        # these rows
    python benchmarks/calibrate.py L8 --seeds 5 # with fewer seeds

Threshold: mean of the oracle's final policies minus 2 SE sqrt(1 + n_o / n_s), where SE is the standard error over its
n_o = 10 seeds (--seeds) and n_s are the seeds of a row, 5, or 3 on the host; so an equal learner passes with about
98 %. A row keeps the greater of this and its provisional threshold. rejax differs from the presets by design: a
constant learning rate, two optimisers, clipping of each gradient element, a clipped value loss, time limits treated as
terminations, and evaluations with sampled actions. Environments on the host are calibrated with Stable-Baselines3, one
seed after the other. Results: results/calibration.json.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import Any

import numpy as np

from report import Report

COMPILED = ("L3", "L4", "L5", "L7", "L8", "L9")  # provisional rows with environments and networks that rejax has
HOST = ("L16",)  # with those of Stable-Baselines3
SEEDS, EPISODES = 10, 128
SEEDS_OF_A_ROW = {name: 5 for name in COMPILED} | {name: 3 for name in HOST}


def oracle(row: Any) -> Any:
    """rejax's PPO with the hyperparameters of the row."""
    from rejax import PPO

    from ppax import config

    given = row.run_config()
    options = dict(config.flatten(config.resolve(given)))

    def of(path: str) -> Any:
        return options[f"agent.{path}"]

    sizes = int(options["num_envs"]), int(options["num_steps"])
    steps = int(options["total_steps"])
    return PPO.create(
        env=str(options["env"]).removeprefix("gymnax/"),
        agent_kwargs={
            "hidden_layer_sizes": tuple(of("network.hidden")),
            "activation": of("network.activation"),
        },
        num_envs=sizes[0],
        num_steps=sizes[1],
        total_timesteps=steps,
        eval_freq=steps,
        skip_initial_evaluation=True,
        num_epochs=of("num_epochs"),
        num_minibatches=of("minibatch.num_minibatches"),
        learning_rate=of("learning_rate"),
        max_grad_norm=of("max_grad_norm"),
        gamma=of("gamma"),
        gae_lambda=of("advantage.gae_lambda"),
        clip_eps=of("loss.clip_eps"),
        vf_coef=of("vf_coef"),
        ent_coef=of("ent_coef"),
        normalize_observations=bool(of("normalize_obs")),
        normalize_rewards=bool(of("normalize_reward")),
    )


def rejax_scores(row: Any, seeds: int) -> list[float]:
    """Scores of the final policies of rejax, all seeds in one program."""
    import jax
    from rejax.evaluate import evaluate

    agent = oracle(row)
    iterations = agent.total_timesteps // (agent.num_envs * agent.num_steps)

    def train(key: Any) -> Any:
        state = agent.init_state(key)
        return jax.lax.fori_loop(0, iterations, lambda _, one: agent.train_iteration(one), state)

    states = jax.jit(jax.vmap(train))(jax.vmap(jax.random.key)(np.arange(seeds, dtype=np.uint32)))
    scores = []
    for i in range(seeds):
        state = jax.tree.map(lambda x, i=i: x[i], states)
        _, returns = evaluate(agent.make_act(state), jax.random.key(i), agent.env, agent.env_params, EPISODES)
        scores.append(float(np.mean(returns)))
    return scores


def sb3_scores(row: Any, seeds: int) -> list[float]:
    """Scores of the final policies of Stable-Baselines3, with the hyperparameters of the row."""
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    from ppax import config

    of = dict(config.flatten(config.resolve(row.run_config())))
    name, steps = str(of["env"]).removeprefix("gymnasium/"), int(of["total_steps"])
    rows, scores = int(of["num_envs"]) * int(of["num_steps"]), []
    for seed in range(seeds):
        envs = DummyVecEnv([lambda: Monitor(gymnasium.make(name))] * int(of["num_envs"]))
        settings = {"norm_obs": of["agent.normalize_obs"], "norm_reward": of["agent.normalize_reward"]}
        normalised = VecNormalize(envs, **settings, gamma=of["agent.gamma"])
        model = PPO(
            "MlpPolicy",
            normalised,
            n_steps=of["num_steps"],
            batch_size=rows // of["agent.minibatch.num_minibatches"],
            n_epochs=of["agent.num_epochs"],
            learning_rate=lambda left: left * of["agent.learning_rate"],  # linear, as the row's
            gamma=of["agent.gamma"],
            gae_lambda=of["agent.advantage.gae_lambda"],
            clip_range=of["agent.loss.clip_eps"],
            clip_range_vf=of["agent.critic.value_clip"],
            ent_coef=of["agent.ent_coef"],
            vf_coef=of["agent.vf_coef"],
            max_grad_norm=of["agent.max_grad_norm"],
            policy_kwargs={"optimizer_kwargs": {"eps": of["agent.optimizer.eps"]}},
            seed=seed,
            device="cpu",
        ).learn(steps)
        normalised.training = normalised.norm_reward = False
        scores.append(float(evaluate_policy(model, normalised, EPISODES)[0]))
    return scores


def measure(row: Any, seeds: int) -> dict[str, Any]:
    """Scores of the oracle's final policies, and the threshold that follows from them."""
    begin = time.perf_counter()
    scores = (sb3_scores if row.name in HOST else rejax_scores)(row, seeds)
    mean, error = float(np.mean(scores)), float(np.std(scores, ddof=1) / math.sqrt(seeds))
    bound = mean - 2 * error * math.sqrt(1 + seeds / SEEDS_OF_A_ROW[row.name])
    result = {"row": row.name, "target": row.target, "steps": row.steps, "scores": scores, "mean": mean, "error": error}
    return result | {"bound": bound, "seconds": time.perf_counter() - begin}


def main() -> None:
    """Measure, print a line per row, write the results."""
    import json

    from ppax.scores.suite import read_suite

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", default=SEEDS_OF_A_ROW, help="rows of the suite")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds of the oracle (default: {SEEDS})")
    chosen = parser.parse_args()
    rows = {row.name: row for row in read_suite()}
    report = Report("calibration", "thresholds from rejax at the rows' hyperparameters", {})
    assert report.path is not None
    for name in chosen.rows:
        found = measure(rows[name], chosen.seeds)
        print(f"{name:6} mean {found['mean']:.4g} +- {found['error']:.3g}: threshold {found['bound']:.4g}", flush=True)
        known = json.loads(report.path.read_text())["results"] if report.path.exists() else []
        report.save(results=[*(one for one in known if one["row"] != name), found])


if __name__ == "__main__":
    main()
