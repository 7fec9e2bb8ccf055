"""Scores of the recommended settings (`ppax train ENV` without a preset), the presets and Stable-Baselines3.

    python benchmarks/defaults.py                              # every task, defaults and preset; hours on two cores
    python benchmarks/defaults.py CartPole-v1 brax/reacher     # these tasks alone
    python benchmarks/defaults.py --kind compiled              # the tasks of one kind
    python benchmarks/defaults.py --set agent.learning_rate=5e-4 --seeds 3   # try another value; nothing written
    python benchmarks/defaults.py --drawn                      # five environments that nobody tuned on
    python benchmarks/defaults.py --drawn --sb3                # and the scores of SB3's defaults on them
    python benchmarks/defaults.py --drawn --only sb3           # SB3 alone; keep the other results in the file

As in `ppax score`: the score of a seed is the mean return of 128 episodes of its final policy, that of a task the
interquartile mean over five seeds, three where environments are stepped on the host. Tuning uses seeds 0, 1, ...;
the published table uses seeds from 100, for the drawn environments from 200.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import tomllib
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from report import Report

# Tasks and their budgets in steps. The preset's name, where it has another budget, follows it.
TASKS: dict[str, int] = {
    "CartPole-v1": 500_000,
    "gymnax/Acrobot-v1": 500_000,
    "MountainCar-v0": 1_000_000,
    "MountainCarContinuous-v0": 500_000,
    "Pendulum-v1": 500_000,
    "gymnax/Catch-bsuite": 200_000,
    "gymnax/FourRooms-misc": 500_000,
    "brax/positional/inverted_pendulum": 1_000_000,
    "brax/positional/reacher": 2_000_000,
    "gymnax/Breakout-MinAtar": 1_000_000,
    "gymnax/SpaceInvaders-MinAtar": 2_000_000,
    "gymnax/Freeway-MinAtar": 2_000_000,
    "gymnax/Asterix-MinAtar": 1_000_000,  # a tenth of the suite's
    "gymnasium/CartPole-v1": 100_000,
    "gymnasium/LunarLander-v3": 1_000_000,
    "gymnasium/InvertedPendulum-v5": 300_000,
    "gymnasium/InvertedDoublePendulum-v5": 300_000,
    "gymnasium/Reacher-v5": 300_000,
    "gymnasium/Hopper-v5": 1_000_000,
    "gymnasium/HalfCheetah-v5": 1_000_000,
}
DRAW_SEED, TUNED, HELD, DRAWN = 20261122, 0, 100, 200
# Suites from whose lists the five environments are drawn, and the budget of each in steps
POOLS = {"gymnax": 1_000_000, "brax": 2_000_000, "gymnasium": 500_000}
# Not environments to learn: compatibility layers, duplicates of others on the list, a test of speed
NOT_TASKS = {"gymnasium/GymV21Environment-v0", "gymnasium/GymV26Environment-v0", "brax/fast"}
EPISODES = 128
SEEDS = {"compiled": 5, "host": 3}


def drawn() -> dict[str, int]:
    """Five environments of the suites' lists, drawn with the committed seed, and their budgets.

    Left out are environments of TASKS and of presets, in whatever suite.
    """
    from ppax import config
    from ppax.envs.suites import brax, gymnasium, gymnax

    ids = {"gymnax": gymnax.ids(), "brax": brax.ids(), "gymnasium": gymnasium.ids()}
    tuned = {task.rpartition("/")[2] for task in (*TASKS, *config.presets())}
    names = [
        f"{suite}/{name}"
        for suite in POOLS
        for name in sorted(ids[suite])
        if name not in tuned and "/" not in name and f"{suite}/{name}" not in NOT_TASKS
    ]
    return {name: POOLS[name.partition("/")[0]] for name in random.Random(DRAW_SEED).sample(names, 5)}


def score(run_config: dict[str, Any], seeds: list[int]) -> dict[str, Any]:
    """Scores of the seeds' final policies, of the untrained policy, and the seconds of the whole."""
    from ppax import config
    from ppax.reports import statistics
    from ppax.scores.scoring import train_seeds
    from ppax.training.backends import backend_of

    begin = time.perf_counter()
    built = config.build(run_config)
    sampled = not built.run.eval.deterministic
    parts = train_seeds(backend_of(built.env).name, built, seeds, EPISODES, sampled)
    members = [member for part in parts for member in part]
    scores, seconds = [member.score for member in members], time.perf_counter() - begin
    random = float(np.mean([member.random for member in members]))
    return {"scores": scores, "iqm": statistics.iqm(scores), "random": random, "seconds": seconds}


def preset_score(task: str, steps: int, seeds: list[int]) -> dict[str, Any] | None:
    """Score of the task's preset with this budget: the published one, or measured; None without a preset."""
    from ppax import config
    from ppax.reports import statistics

    path = config.presets().get(task)
    if path is None:
        return None
    for file in sorted((Path(__file__).parent / "results" / "scores").glob("*.json")):
        result = json.loads(file.read_text())
        row = result["row"]
        if row["preset"] == task and row["steps"] == steps and not row["options"] and row["at_most"] is None:
            scores, untrained, seconds = (
                [member[name] for member in result["members"]] for name in ("score", "random", "seconds")
            )
            of_row = {"row": row["name"], "random": float(np.mean(untrained)), "seconds": sum(seconds)}
            return {"scores": scores, "iqm": statistics.iqm(scores)} | of_row
    return score(config.read(path) | {"total_steps": steps}, seeds)


def sb3(task: str, steps: int, seeds: list[int]) -> dict[str, Any] | None:
    """Score of Stable-Baselines3's PPO with its defaults; None where it cannot run the environment."""
    suite, _, name = task.partition("/")
    if suite != "gymnasium":
        return None
    import gymnasium
    from stable_baselines3 import PPO
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    from ppax.reports import statistics

    begin, scores = time.perf_counter(), []
    for seed in seeds:
        model = PPO("MlpPolicy", gymnasium.make(name), seed=seed, device="cpu").learn(steps)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mean, _ = evaluate_policy(model, Monitor(gymnasium.make(name)), EPISODES // 4)
        scores.append(float(mean))
    return {"scores": scores, "iqm": statistics.iqm(scores), "seconds": time.perf_counter() - begin}


def options_of(given: list[str]) -> dict[str, Any]:
    """{path: value} of `--set path=value`."""
    pairs = (text.partition("=") for text in given)
    return {path: tomllib.loads(f"x = {value}")["x"] for path, _, value in pairs}


def main() -> None:
    """Measure, print a line per task, write the results."""
    from ppax import config
    from ppax.core.options import unflatten

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", help="tasks (default: all)")
    parser.add_argument("--kind", default="", help="tasks of this kind: compiled or host")
    parser.add_argument("--seeds", type=int, help="seeds of each task (default: 5, on the host 3)")
    parser.add_argument("--set", nargs="+", default=[], metavar="OPTION=VALUE", help="other settings; tuning seeds")
    parser.add_argument("--tune", action="store_true", help="tuning seeds, without presets; nothing written")
    parser.add_argument("--drawn", action="store_true", help="the five drawn environments")
    parser.add_argument("--sb3", action="store_true", help="Stable-Baselines3 beside it, where it runs")
    parser.add_argument("--only", choices=("defaults", "sb3"), help="measure this alone, keep the rest of a row")
    options = parser.parse_args()
    tasks = drawn() if options.drawn else TASKS
    chosen = options.tasks or [name for name in tasks if options.kind in ("", place_of(name))]
    tuning = options.tune or bool(options.set)
    first = TUNED if tuning else DRAWN if options.drawn else HELD
    name_of_file = "defaults_drawn" if options.drawn else "defaults"
    report = Report(None if tuning else name_of_file, "recommended settings beside presets", {"first_seed": first})
    for name in chosen:
        steps, count = tasks[name], options.seeds or SEEDS[place_of(name)]
        seeds = list(range(first, first + count))
        given = {"env": name, "total_steps": steps} | unflatten(options_of(options.set))
        row: dict[str, Any] = {"task": name, "steps": steps}
        if options.only != "sb3":
            row["defaults"] = score(config.completed(given).config, seeds)
            row["preset"] = None if tuning else preset_score(name, steps, seeds)
        if options.only != "defaults":
            row["sb3"] = sb3(name, steps, seeds) if options.sb3 or options.only else None
        known = rows_of(report).get(name, {"defaults": None, "preset": None, "sb3": None})
        row = known | row
        row["share"] = share(row)
        print(line(row), flush=True)
        report.save(results=list((rows_of(report) | {name: row}).values()))


def rows_of(report: Report) -> dict[str, Any]:
    """Rows that the file has, by task: of an earlier call, or of one that runs at the same time."""
    if report.path is None or not report.path.exists():
        return {}
    return {row["task"]: row for row in json.loads(report.path.read_text())["results"]}


def place_of(name: str) -> str:
    return "host" if name.startswith("gymnasium/") else "compiled"


def share(row: dict[str, Any]) -> float | None:
    """Share of the way from the untrained policy to the preset's score that the recommended settings go."""
    if row["preset"] is None or row["defaults"] is None:
        return None
    random = row["preset"]["random"]
    return float((row["defaults"]["iqm"] - random) / (row["preset"]["iqm"] - random))


def line(row: dict[str, Any]) -> str:
    """Row as text."""
    text = f"{row['task']:38}"
    for who in ("defaults", "preset", "sb3"):
        if row[who] is not None:
            each = " ".join(f"{x:.4g}" for x in row[who]["scores"])
            text += f"  {who} {row[who]['iqm']:.4g} ({each}; {row[who]['seconds']:.0f} s)"
    return text if row["share"] is None else f"{text}  share {row['share']:.2f}"


if __name__ == "__main__":
    main()
