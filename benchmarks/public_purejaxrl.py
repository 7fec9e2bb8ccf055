"""Rows of the public suite with PureJaxRL, by the settings that its repository has for such environments.

    export PUREJAXRL=...                # a folder with purejaxrl/ppo.py in it
    python benchmarks/public_purejaxrl.py Breakout Asterix --out benchmarks/results/public/purejaxrl

These are the rows of gymnax's environments with discrete actions. Settings are those of the main program of its ppo.py;
for MinAtar those of its notebook examples/brax_minatar.ipynb. Rows are named without `public-`; all without a name.
Each is trained for the same number of steps and with the same numbers as seeds as in src/ppax/scores/public.toml, all
seeds in one program, as its README says. The final policy is scored as `ppax score` does: mean return of 128 episodes
with the mode of the action distribution (in rows that say `sampled`, with sampled actions), with other keys. PureJaxRL
needs gymnax below 1 (peers.py), ppax 1 or above; untrained policies of both have about the same score, which is written
too, as `random`.
"""

from __future__ import annotations

import argparse
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from peers import gymnax_version, load_purejaxrl, purejaxrl_config
from public_sb3 import EPISODES, EVALUATION_SEED, FIRST_SEED, SUITE, Episodes, about, save

# Settings of its notebook of MinAtar where they differ from those of ppo.py
MINATAR = {"LR": 5e-3, "NUM_ENVS": 64, "NUM_MINIBATCHES": 8, "ACTIVATION": "relu"}
NAMES = {"CartPole-v1": "CartPole-v1", "MountainCar-v0": "MountainCar-v0"}  # rows of environments that equal gymnax's
LACKING = "Seaquest-MinAtar"  # not in gymnax below 1


def main() -> None:
    """Measure the rows named on the command line."""
    parser = argparse.ArgumentParser(description="Rows of the public suite with PureJaxRL.")
    parser.add_argument("rows", nargs="*", help="names without `public-`; default: all rows that it can run")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, help="default: those of the row")
    options = parser.parse_args()
    rows = {row["name"].removeprefix("public-"): row for row in tomllib.loads(SUITE.read_text())["row"]}
    runnable = [name for name, row in rows.items() if gymnax_id(row["target"]) is not None]
    for name in options.rows:
        if name not in runnable:
            parser.error(f"{name}: must be {', '.join(runnable)}")
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.rows or runnable:
        row, path = rows[name], options.out / f"{name}.json"
        head = {"row": row["name"], "env": gymnax_id(row["target"]), "steps": row["steps"], "settings": "default"}
        members = trained(row, options.seeds or row["seeds"])
        print(f"{name}:", *(f"{member['score']:.4g}" for member in members), flush=True)
        save(path, head, members)


def gymnax_id(target: str) -> str | None:
    """gymnax's name of a row's environment; None where PureJaxRL's ppo.py cannot run it."""
    suite, _, name = target.partition("/")
    return NAMES.get(target, name if suite == "gymnax" and name != LACKING else None)


def trained(row: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Train the row's seeds in one program, and score their final policies."""
    ppo = load_purejaxrl()
    import gymnax
    import jax

    name = str(gymnax_id(row["target"]))
    own = MINATAR if name.endswith("-MinAtar") else {}
    config = purejaxrl_config(ENV_NAME=name, TOTAL_TIMESTEPS=row["steps"], **own)
    seeds = np.arange(FIRST_SEED, FIRST_SEED + count)
    keys = jax.vmap(jax.random.PRNGKey)(seeds)
    begin = time.perf_counter()
    out = jax.block_until_ready(jax.jit(jax.vmap(ppo.make_train(config)))(keys))
    seconds = (time.perf_counter() - begin) / count
    steps = config["NUM_UPDATES"] * config["NUM_STEPS"] * config["NUM_ENVS"]
    ended, episode_returns = (np.asarray(out["metrics"][f"returned_{part}"]) for part in ("episode", "episode_returns"))

    env, env_params = gymnax.make(name)
    env = ppo.FlattenObservationWrapper(env)
    network = ppo.ActorCritic(env.action_space(env_params).n, activation=config["ACTIVATION"])
    first = jax.vmap(lambda key: network.init(key, np.zeros(env.observation_space(env_params).shape)))(keys)

    def played(params: Any, seed: Any, sampled: bool) -> tuple[Any, Any]:
        """Returns and lengths [EPISODES] of a policy's episodes."""

        def step(carry: Any, key: Any) -> tuple[Any, None]:
            obs, state, alive, total, length = carry
            choice, change = jax.random.split(key)
            policy, _ = network.apply(params, obs)
            action = policy.sample(seed=choice) if sampled else policy.mode()
            obs, state, reward, done, _ = env.step(change, state, action, env_params)
            return (obs, state, alive & ~done, total + alive * reward, length + alive), None

        def episode(key: Any) -> tuple[Any, Any]:
            start, others = jax.random.split(key)
            carry = (*env.reset(start, env_params), True, 0.0, 0)
            each = jax.random.split(others, env_params.max_steps_in_episode + 1)  # one after the time limit
            _, _, alive, total, length = jax.lax.scan(step, carry, each)[0]
            return jax.numpy.where(alive, jax.numpy.nan, total), length

        return jax.vmap(episode)(jax.random.split(jax.random.PRNGKey(EVALUATION_SEED + seed), EPISODES))

    def scores(params: Any, first: int, sampled: bool) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths [seeds, EPISODES], with keys from `first` on."""
        found = jax.jit(jax.vmap(lambda one, seed: played(one, seed, sampled)))(params, seeds + first)
        return np.asarray(found[0]), np.asarray(found[1])

    returns, lengths = scores(out["runner_state"][0].params, 0, row.get("sampled", False))
    random, _ = scores(first, count, True)
    made = about(("jax", "flax", "optax", "numpy"))
    made["packages"]["gymnax"] = gymnax_version()
    result = []
    for i, seed in enumerate(seeds.tolist()):
        when = np.flatnonzero(ended[i])  # of [updates, steps, environments], in the order of time
        episodes = Episodes.recorded((when + 1).tolist(), episode_returns[i].reshape(-1)[when].tolist())
        final = {"score": float(returns[i].mean()), "std": float(returns[i].std()), "length": float(lengths[i].mean())}
        more = {"random": float(np.mean(random[i])), "env_steps": steps, "seconds": round(seconds, 2)}
        result.append({"seed": seed, "about": made, **final, **more, "curve": episodes.curve(row["steps"])})
    return result


if __name__ == "__main__":
    main()
