"""Seconds from the start of a process to a score: ppax and Stable-Baselines3 by their defaults, on a quiet machine.

    python benchmarks/time_to_score.py                               # three seeds of each; an hour on two cores
    python benchmarks/time_to_score.py --tasks Pendulum --seeds 1
    python benchmarks/time_to_score.py --python-sb3 OTHER/bin/python # an environment in which stable-baselines3 is

The clock runs in this process, from starting the child to reading its line: imports and compilation count, JAX's
compilation cache is off. A score is reached when the newest training episodes, at least 100, have that mean return.
Both libraries train by defaults on the same environment for at most 1,000,000 steps, and take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from goal import WINDOW


class Task(NamedTuple):
    """An environment by its names in ppax and in Gymnasium, and the mean return to reach."""

    ours: str
    gymnasium: str
    score: float


TASKS = {
    "CartPole": Task("CartPole-v1", "CartPole-v1", 475.0),
    "Acrobot": Task("gymnax/Acrobot-v1", "Acrobot-v1", -100.0),
    "Pendulum": Task("Pendulum-v1", "Pendulum-v1", -250.0),
    "MountainCarContinuous": Task("MountainCarContinuous-v0", "MountainCarContinuous-v0", 85.0),
    "InvertedPendulum": Task("gymnasium/InvertedPendulum-v5", "InvertedPendulum-v5", 900.0),
    "HalfCheetah": Task("gymnasium/HalfCheetah-v5", "HalfCheetah-v5", 2000.0),
    "Hopper": Task("gymnasium/Hopper-v5", "Hopper-v5", 1000.0),
}
STEPS, FIRST_SEED = 1_000_000, 1000
SYSTEMS = ("ppax", "sb3")
LABELS = {"ppax": "ppax", "sb3": "Stable-Baselines3"}


class Window:
    """Newest training episodes: whether at least WINDOW of them have a mean return of `score`."""

    def __init__(self, score: float) -> None:
        self.score = score
        self.newest: list[tuple[float, float]] = []  # number of episodes, and their mean return

    def reached(self, episodes: float, mean: float) -> bool:
        """Add episodes that ended together; return whether the score is reached."""
        if episodes:
            self.newest.append((episodes, mean))
        count = total = 0.0
        for number, value in reversed(self.newest):
            count, total = count + number, total + number * value
            if count >= WINDOW:
                break
        return count >= WINDOW and total / count >= self.score


def ppax_child(task: Task, seed: int, say: Callable[[float], None]) -> None:
    """Train by ppax's defaults until the score is reached."""
    import ppax

    window = Window(task.score)

    def stop(state: Any, row: dict[str, float]) -> bool:
        done = window.reached(row["episodes"], row["episode_return"])
        if done:
            say(row["env_steps"])
        return done

    built = ppax.build(task.ours, preset="none", total_steps=STEPS, seed=seed, log={"console": False})
    built.fit(callbacks=[stop])


def sb3_child(task: Task, seed: int, say: Callable[[float], None]) -> None:
    """Train by Stable-Baselines3's defaults until the score is reached."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback

    class Stop(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.window = Window(task.score)

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info and self.window.reached(1.0, info["episode"]["r"]):
                    say(self.num_timesteps)
                    return False
            return True

    PPO("MlpPolicy", task.gymnasium, seed=seed, device="cpu").learn(STEPS, callback=Stop())


def launch(python: str, system: str, task: str, seed: int) -> dict[str, Any]:
    """Seconds from the child's start to its line, and its steps; steps None where it never reached the score."""
    environment = dict(os.environ) | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    command = [python, __file__, "--child", system, "--tasks", task, "--seeds", str(seed)]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - begin
        process.kill() if line else None
    if not line and process.returncode:
        raise SystemExit(f"{system}, {task}: the child ended with code {process.returncode}")
    return {"seconds": round(seconds, 2), "steps": json.loads(line)["steps"] if line else None}


def main() -> None:
    """Take turns, save after each, draw the picture."""
    parser = argparse.ArgumentParser(description="Seconds from the start of a process to a score.")
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=list(TASKS), metavar="TASK")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--python-sb3", default=sys.executable)
    parser.add_argument("--child", choices=SYSTEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run = {"ppax": ppax_child, "sb3": sb3_child}[options.child]
        run(TASKS[options.tasks[0]], options.seeds, lambda steps: print(json.dumps({"steps": int(steps)}), flush=True))
        return
    from report import Report

    task = "Seconds from the start of a process to a score, by defaults"
    sheet = Report("time_to_score", task, {"steps": STEPS, "scores": {name: t.score for name, t in TASKS.items()}})
    assert sheet.path is not None
    found: dict[str, Any] = json.loads(sheet.path.read_text())["tasks"] if sheet.path.exists() else {}
    pythons = {"ppax": sys.executable, "sb3": options.python_sb3}
    asked = [options.python_sb3, "-c", "import importlib.metadata as m; print(m.version('stable-baselines3'))"]
    sheet.content["versions"]["stable-baselines3"] = subprocess.check_output(asked, text=True).strip()
    for name in options.tasks:
        turns = found.setdefault(name, [])
        for seed in range(FIRST_SEED + len(turns), FIRST_SEED + options.seeds):
            order = SYSTEMS if seed % 2 else SYSTEMS[::-1]
            turn = {system: launch(pythons[system], system, name, seed) for system in order}
            turns.append({"seed": seed, **turn})
            print(name, turn, flush=True)
            sheet.save(tasks=found)
    draw(found, sheet.content, sheet.path.with_suffix(".png"))


def draw(found: dict[str, Any], about: dict[str, Any], path: Path) -> None:
    """Bars of the median seconds, logarithmic, with their range; hollow where the score was not always reached."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = [name for name in TASKS if found.get(name)]
    figure, axis = plt.subplots(figsize=(7.5, 0.75 * len(names) + 1.4), layout="constrained")
    colors = {"ppax": "#1f6f8b", "sb3": "#c8553d"}
    for place, name in enumerate(names):
        for side, system in enumerate(SYSTEMS):
            seconds = [turn[system]["seconds"] for turn in found[name]]
            missed = sum(turn[system]["steps"] is None for turn in found[name])
            at, middle = place + 0.36 * side - 0.18, statistics.median(seconds)
            label = LABELS[system] if place == 0 else None
            face = "white" if missed else colors[system]
            axis.barh(at, middle, height=0.32, color=face, edgecolor=colors[system], label=label)
            axis.hlines(at, min(seconds), max(seconds), color="#555555", lw=1)
            text = f" {middle:.0f} s" + (f", {missed} of {len(seconds)} never" if missed else "")
            axis.text(max(seconds), at, text, va="center", fontsize=8)
    axis.set_yticks(range(len(names)), [f"{name}\nmean return {TASKS[name].score:g}" for name in names], fontsize=9)
    axis.set_xscale("log")
    axis.invert_yaxis()
    axis.set_xlim(1.0, axis.get_xlim()[1] * 2.5)  # a bar begins at one second
    axis.set_xlabel("seconds from the start of the process to the score, compilation included")
    axis.spines[["top", "right"]].set_visible(False)
    figure.legend(fontsize=8, loc="outside upper right", ncols=2, edgecolor="none")
    machine = about["hardware"]
    figure.suptitle("By defaults, one command: time to score", fontsize=11, x=0.01, ha="left")
    figure.supxlabel(f"{machine['cpu']}, {machine['cores']} cores, {about['date'][:10]}", fontsize=7, color="#555555")
    figure.savefig(path, dpi=120, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
