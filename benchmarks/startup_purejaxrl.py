"""Program of a PureJaxRL user who solves CartPole: its `train` with the settings of its main program.

Started by startup.py in a fresh process; prints one line of JSON when the results are there and have been read.

    startup_purejaxrl.py SEED TOTAL_TIMESTEPS     one run
    startup_purejaxrl.py --search SEED...         for each seed the shortest TOTAL_TIMESTEPS that solves the task
"""

from __future__ import annotations

import json
import sys
from typing import Any

from goal import GRID, SOLVED, WINDOW
from peers import load_purejaxrl, purejaxrl_config


def program(total: int) -> Any:
    """Its program, as its main program makes it."""
    import jax

    return jax.jit(load_purejaxrl().make_train(purejaxrl_config(TOTAL_TIMESTEPS=total)))


def solved_at(metrics: Any) -> int | None:
    """Steps of all environments until the last WINDOW episodes had a mean return of SOLVED; None: they never had."""
    import numpy as np

    ended = np.asarray(metrics["returned_episode"]).reshape(-1)  # [updates, steps, environments], in order of time
    when = np.flatnonzero(ended)
    returns = np.asarray(metrics["returned_episode_returns"], np.float64).reshape(-1)[when]
    sums = np.concatenate([[0.0], np.cumsum(returns)])
    means = (sums[WINDOW:] - sums[:-WINDOW]) / WINDOW
    good = np.flatnonzero(means >= SOLVED)
    return int(when[good[0] + WINDOW - 1]) + 1 if len(good) else None


def one(seed: int, total: int) -> None:
    """Train once."""
    import jax

    out = program(total)(jax.random.PRNGKey(seed))
    print(json.dumps({"env_steps": total, "solved_at": solved_at(out["metrics"])}), flush=True)


def search(seeds: list[int]) -> None:
    """Try the totals of the grid, from the shortest on."""
    import jax

    found: dict[int, int] = {}
    for total in GRID:
        train = program(total)
        for seed in seeds:
            if seed not in found and solved_at(train(jax.random.PRNGKey(seed))["metrics"]) is not None:
                found[seed] = total
        if len(found) == len(seeds):
            break
    print(json.dumps({str(seed): found.get(seed) for seed in seeds}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--search":
        search([int(word) for word in sys.argv[2:]])
    else:
        one(int(sys.argv[1]), int(sys.argv[2]))
