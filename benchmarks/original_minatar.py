"""Policies trained in gymnax's MinAtar, played in the original MinAtar: whether a score is that of the game.

    pip install minatar
    python benchmarks/original_minatar.py                                   # SpaceInvaders; five minutes
    python benchmarks/original_minatar.py Breakout Freeway --steps 1000000

Scores of ppax on `gymnax/*-MinAtar` are at times far above published ones. Here a policy is trained by the defaults and
scored twice with sampled actions: in gymnax's environment, as `ppax score` does, and in the Python environment of
MinAtar's authors (https://github.com/kenjyoung/MinAtar) without sticky actions, as gymnax has it. Equal returns mean
that gymnax's environment plays as the original does. With sticky actions, MinAtar's own default, the game is another.
"""

from __future__ import annotations

import argparse
import math
import re
from typing import Any

import numpy as np

import ppax
from report import Report

EPISODES, LIMIT = 128, 1000  # gymnax ends an episode after so many steps
STICKY = {"original": 0.0, "original, sticky actions": 0.1}


def play(policy: Any, game: str, sticky: float) -> list[float]:
    """Returns of EPISODES episodes in MinAtar's own environment."""
    from minatar import Environment

    envs = [Environment(game, sticky_action_prob=sticky, difficulty_ramping=True) for _ in range(EPISODES)]
    actions = envs[0].minimal_action_set()
    returns, alive = np.zeros(EPISODES), np.ones(EPISODES, bool)
    for env in envs:
        env.reset()
    for _ in range(LIMIT):
        chosen = policy.act(np.stack([env.state().astype(np.float32) for env in envs]), deterministic=False)
        for i in np.flatnonzero(alive):
            reward, done = envs[i].act(actions[int(chosen[i])])
            returns[i], alive[i] = returns[i] + reward, not done
        if not alive.any():
            break
    return returns.tolist()


def mean_and_error(returns: list[float]) -> dict[str, float]:
    """Mean of the returns, and its standard error."""
    return {"mean": float(np.mean(returns)), "error": float(np.std(returns, ddof=1) / math.sqrt(len(returns)))}


def main() -> None:
    """Train a policy for each game, play it in both environments, write the results."""
    parser = argparse.ArgumentParser(description="Policies trained in gymnax's MinAtar, played in the original.")
    parser.add_argument("games", nargs="*", default=["SpaceInvaders"])
    parser.add_argument("--steps", type=int, default=400_000)
    options = parser.parse_args()
    task = "Returns of policies trained in gymnax's MinAtar, there and in the original"
    sheet = Report("original_minatar", task, {"steps": options.steps, "episodes": EPISODES})
    games: dict[str, Any] = {}
    for name in options.games:
        run = ppax.build(f"gymnax/{name}-MinAtar", preset="none", total_steps=options.steps, seed=7).fit()
        policy, game = run.policy(), re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        found = run.evaluate(episodes=EPISODES)
        error = found.std_return / math.sqrt(EPISODES)
        games[name] = {"gymnax": {"mean": found.mean_return, "error": error}}
        games[name] |= {label: mean_and_error(play(policy, game, sticky)) for label, sticky in STICKY.items()}
        print(
            name, {label: f"{one['mean']:.1f} +- {one['error']:.1f}" for label, one in games[name].items()}, flush=True
        )
        sheet.save(games=games)


if __name__ == "__main__":
    main()
