"""Program of a ppax user who solves CartPole: `ppax.build` and fit. Ends when the task is solved.

Started by startup.py in a fresh process; prints one line of JSON at the moment the task is solved.
"""

from __future__ import annotations

import json
import sys

import ppax
from goal import SOLVED, WINDOW

episodes: list[tuple[float, float]] = []  # of each log row: how many ended, and their mean return


def solved(state: ppax.TrainState, row: dict[str, float]) -> bool:
    """Whether the newest rows with at least WINDOW episodes in them have a mean return of SOLVED."""
    if row["episodes"]:
        episodes.append((row["episodes"], row["episode_return"]))
    count = total = 0.0
    for number, mean in reversed(episodes):
        count, total = count + number, total + number * mean
        if count >= WINDOW:
            break
    done = count >= WINDOW and total / count >= SOLVED
    if done:
        result = {"env_steps": row["env_steps"], "mean_return": total / count, "train_seconds": row["seconds"]}
        print(json.dumps(result), flush=True)
    return done


if __name__ == "__main__":
    ppax.build("CartPole-v1", seed=int(sys.argv[1]), log={"console": False}).fit(callbacks=[solved])
