"""Rows of the public suite with Stable-Baselines3, by its defaults or by the settings of RL Baselines3 Zoo.

    pip install stable-baselines3 sb3-contrib rl_zoo3 pandas "gymnasium[box2d,mujoco]" minigrid
    python benchmarks/public_sb3.py Hopper Walker2d --out benchmarks/results/public/sb3
    python benchmarks/public_sb3.py Hopper --settings zoo --out benchmarks/results/public/sb3-zoo

It does not import ppax, whose versions need not be installed. Rows are named without `public-`; all without a name.
Each row is trained on the same Gymnasium environment, for the same number of steps and on the same seeds as in
src/ppax/scores/public.toml, and its final policy is scored as `ppax score` does: mean return of 128 episodes with the
mode of the action distribution (in rows that say `sampled`, with sampled actions), on other seeds, with frozen
normalisation statistics and unscaled rewards. A row is a file; a call after an interruption goes on with the seed
that is missing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

SUITE = Path(__file__).parents[1] / "src" / "ppax" / "scores" / "public.toml"
# Rows that ppax measures in its compiled environments, and the Gymnasium environments that these are equal to
SAME = {
    "CartPole-v1": "CartPole-v1",
    "gymnax/Acrobot-v1": "Acrobot-v1",
    "MountainCar-v0": "MountainCar-v0",
    "MountainCarContinuous-v0": "MountainCarContinuous-v0",
    "Pendulum-v1": "Pendulum-v1",
    "CartPole-v1-masked": "CartPole-v1",
}
PACKAGES = ("stable-baselines3", "sb3-contrib", "rl_zoo3", "gymnasium", "mujoco", "torch", "numpy")
EPISODES, FIRST_SEED, POINTS = 128, 1000, 100
EVALUATION_SEED = 1_000_000  # first of the environments in which policies are scored


def main() -> None:
    """Measure the rows named on the command line."""
    parser = argparse.ArgumentParser(description="Rows of the public suite with Stable-Baselines3.")
    parser.add_argument("rows", nargs="*", help="names without `public-`; default: all rows that it can run")
    parser.add_argument("--settings", choices=("default", "zoo"), default="default")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, help="default: those of the row")
    options = parser.parse_args()
    rows = {row["name"].removeprefix("public-"): row for row in tomllib.loads(SUITE.read_text())["row"]}
    runnable = {name: row for name, row in rows.items() if env_id(row["target"]) is not None}
    for name in options.rows:
        if name not in runnable:
            parser.error(f"{name}: must be {', '.join(runnable)}")
    options.out.mkdir(parents=True, exist_ok=True)
    import torch

    torch.set_num_threads(1)  # such small networks are not faster with two
    for name in options.rows or runnable:
        if options.settings == "zoo" and (reason := not_in_zoo(rows[name]["target"])) is not None:
            print(f"{name}: {reason}", flush=True)
            continue
        measure(rows[name], options.settings, options.out / f"{name}.json", options.seeds or rows[name]["seeds"])


def env_id(target: str) -> str | None:
    """Gymnasium's name of a row's environment; None where Stable-Baselines3 cannot run it."""
    if target in SAME:
        return SAME[target]
    suite, _, name = target.partition("/")
    return name if suite in ("gymnasium", "minigrid") else None


def measure(row: dict[str, Any], settings: str, path: Path, seeds: int) -> None:
    """Train and score the seeds of a row that its file does not have yet, and write it after each."""
    head = {"row": row["name"], "env": env_id(row["target"]), "steps": row["steps"], "settings": settings}
    members = []
    if path.is_file():
        written = json.loads(path.read_text())
        if {key: written[key] for key in head} != head:
            raise SystemExit(f"{path}: is of another environment, number of steps or settings; move it away")
        members = written["members"]
    done = {member["seed"] for member in members}
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        if seed in done:
            continue
        result = (trained if settings == "default" else trained_by_zoo)(row, seed)
        members.append({"seed": seed, "about": about(), **result})
        print(
            f"{path.stem} {settings} seed {seed}: {members[-1]['score']:.4g}, {members[-1]['seconds']:.0f} s",
            flush=True,
        )
        save(path, head, sorted(members, key=lambda member: member["seed"]))


def save(path: Path, head: dict[str, Any], members: list[dict[str, Any]]) -> None:
    """Write the file of a row: what it is of, and a line for each seed."""
    lines = ",\n  ".join(json.dumps(member) for member in members)
    body = "".join(f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in head.items())
    partial = path.with_suffix(".part")
    partial.write_text(f'{{\n{body} "members": [\n  {lines}\n ]\n}}\n')
    partial.replace(path)


def about(packages: tuple[str, ...] = PACKAGES) -> dict[str, Any]:
    """Time, versions and machine."""
    return {
        "time": time.strftime("%Y-%m-%d %H:%M:%S +0000", time.gmtime()),
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def processor() -> str:
    """Name of the processor, as Linux tells it; else that of its architecture."""
    found = Path("/proc/cpuinfo")
    lines = found.read_text().splitlines() if found.is_file() else []
    return next((line.partition(": ")[2] for line in lines if line.startswith("model name")), platform.machine())


def make(target: str, seed: int) -> Any:
    """The row's environment, with its episodes recorded."""
    from stable_baselines3.common.monitor import Monitor

    if target.startswith("minigrid/"):
        import minigrid.wrappers

        env: Any = minigrid.wrappers.FlatObsWrapper(gymnasium.make(env_id(target)))
    else:
        env = gymnasium.make(str(env_id(target)))
    if target == "CartPole-v1-masked":
        env = positions_only(env)
    env.action_space.seed(seed)
    return Monitor(env)


def evaluation(target: str, seed: int) -> Any:
    """Several of the row's environments, in which the policy of a training seed is scored."""
    from stable_baselines3.common.vec_env import DummyVecEnv

    env = DummyVecEnv([lambda at=at: make(target, EVALUATION_SEED + 1000 * seed + at) for at in range(16)])
    env.seed(EVALUATION_SEED + 1000 * seed)
    return env


def positions_only(env: Any) -> Any:
    """CartPole with the position of the cart and the angle of the pole as the observation."""
    space = env.observation_space
    seen = gymnasium.spaces.Box(space.low[[0, 2]], space.high[[0, 2]], dtype=space.dtype)
    return gymnasium.wrappers.TransformObservation(env, lambda obs: obs[[0, 2]], seen)


def trained(row: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train one seed by Stable-Baselines3's defaults, and score its final policy."""
    import sb3_contrib
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv

    recurrent = row["target"] == "CartPole-v1-masked"
    algorithm = sb3_contrib.RecurrentPPO if recurrent else stable_baselines3.PPO
    env = DummyVecEnv([lambda: make(row["target"], seed)])
    model = algorithm("MlpLstmPolicy" if recurrent else "MlpPolicy", env, seed=seed, device="cpu")
    episodes = Episodes.of(model)
    begin = time.perf_counter()
    model.learn(row["steps"], callback=episodes)
    seconds = time.perf_counter() - begin
    return scored(model, evaluation(row["target"], seed), row.get("sampled", False)) | {
        "env_steps": int(model.num_timesteps),
        "seconds": round(seconds, 1),
        "curve": episodes.curve(row["steps"]),
    }


def trained_by_zoo(row: dict[str, Any], seed: int) -> dict[str, Any]:
    """Train one seed by RL Baselines3 Zoo's own command and settings, and score its final policy."""
    import stable_baselines3
    from stable_baselines3.common.monitor import load_results
    from stable_baselines3.common.vec_env import VecNormalize

    with tempfile.TemporaryDirectory() as folder:
        name = str(env_id(row["target"]))
        hyperparameters = zoo_settings(name, Path(folder))
        command = [sys.executable, "-m", "rl_zoo3.train", "--algo", "ppo", "--env", name, "--seed", str(seed)]
        command += ["-n", str(row["steps"]), "-f", folder, "--eval-freq", "-1", "--device", "cpu", "--num-threads", "1"]
        command += ["--conf-file", str(hyperparameters), "--verbose", "0"]
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - begin
        run = Path(folder) / "ppo" / f"{name}_1"
        env = evaluation(row["target"], seed)
        statistics = run / name / "vecnormalize.pkl"
        if statistics.is_file():
            env = VecNormalize.load(str(statistics), env)
            env.training, env.norm_reward = False, False
        model = stable_baselines3.PPO.load(run / f"{name}.zip", device="cpu")
        found = load_results(str(run))
        episodes = Episodes.recorded(found["l"].cumsum().tolist(), found["r"].tolist())
        return scored(model, env, row.get("sampled", False)) | {
            "env_steps": int(model.num_timesteps),
            "seconds": round(seconds, 1),
            "curve": episodes.curve(row["steps"]),
        }


def not_in_zoo(target: str) -> str | None:
    """Why a row cannot be trained by the zoo's settings; None where it can."""
    if target == "CartPole-v1-masked":
        return "the zoo registers no CartPoleNoVel-v1 with Gymnasium's present version"
    return None if settings_of_zoo(str(env_id(target))) else "the zoo has no settings of PPO"


def settings_of_zoo(name: str) -> dict[str, Any]:
    """The zoo's settings of an environment: of its last version that the zoo knows; empty if it knows none."""
    import rl_zoo3
    import yaml

    known = yaml.safe_load((Path(rl_zoo3.__file__).parent / "hyperparams" / "ppo.yml").read_text())
    base = name.rpartition("-v")[0]
    versions = sorted(
        (key for key in known if key.rpartition("-v")[0] == base), key=lambda key: int(key.rpartition("-v")[2])
    )
    return dict(known[versions[-1]]) if versions else {}


def zoo_settings(name: str, folder: Path) -> Path:
    """A file with the zoo's settings of an environment, in the form that the zoo's own command reads."""
    import yaml

    path = folder / "ppo.yml"
    path.write_text(yaml.safe_dump({name: settings_of_zoo(name)}))
    return path


def scored(model: Any, env: Any, sampled: bool) -> dict[str, Any]:
    """Mean return, deviation and length of the final policy's episodes, by sampled actions or by the mode."""
    from stable_baselines3.common.evaluation import evaluate_policy

    returns, lengths = evaluate_policy(model, env, EPISODES, deterministic=not sampled, return_episode_rewards=True)
    env.close()
    return {"score": float(np.mean(returns)), "std": float(np.std(returns)), "length": float(np.mean(lengths))}


class Episodes:
    """Returns of the training's episodes, and after how many steps each ended."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.returns: list[float] = []

    @classmethod
    def of(cls, model: Any) -> Any:
        """A callback of Stable-Baselines3 that records the episodes of `model`."""
        from stable_baselines3.common.callbacks import BaseCallback

        class Recorder(cls, BaseCallback):  # type: ignore[misc, valid-type]
            def __init__(self) -> None:
                BaseCallback.__init__(self)
                cls.__init__(self)

            def _on_step(self) -> bool:
                for info in self.locals["infos"]:
                    if "episode" in info:
                        self.ends.append(int(model.num_timesteps))
                        self.returns.append(float(info["episode"]["r"]))
                return True

        return Recorder()

    @classmethod
    def recorded(cls, ends: list[int], returns: list[float]) -> Episodes:
        """Episodes that another program has recorded."""
        episodes = cls()
        episodes.ends, episodes.returns = ends, returns
        return episodes

    def curve(self, steps: int) -> list[tuple[int, float]]:
        """Pairs of steps and mean return of the episodes that ended since the last pair; at most POINTS."""
        edges = np.linspace(0, steps, POINTS + 1)[1:]
        which = np.searchsorted(edges, self.ends)
        points = []
        for i, edge in enumerate(edges):
            ended = [value for at, value in zip(which, self.returns, strict=True) if at == i]
            if ended:
                points.append((round(edge), float(f"{np.mean(ended):.6g}")))
        return points


if __name__ == "__main__":
    main()
