"""Scores in suites of environments, as a share of the best possible score.

    python benchmarks/suites.py                              # all, three seeds
    python benchmarks/suites.py --only pgx --seeds 1         # what has "pgx" in its name, one seed
    python benchmarks/suites.py --quick                      # a smoke test, nothing written

Needs `pip install "ppax[pgx,minigrid,dm_control,plot]"`; suites that are not installed are left out.

* `pgx/tic_tac_toe`: one policy plays both sides of the game, learning from games against itself. Its most likely moves
  are judged by the whole tree of the game, exactly: the mean result (1 won, 0 drawn, -1 lost) against a player that
  moves at random, and the share of games not lost against a perfect player, which draws uniformly among its best moves
  (minimax). The best possible result against random moves is computed from the tree, too.
* `minigrid/MiniGrid-Empty-5x5-v0`, `MiniGrid-DoorKey-5x5-v0`: mean return; the shortest path in the empty room has 5
  steps, 1 - 0.9 * 5 / 100 = 0.955. The share is that of 1, the bound of all returns.
* `dm_control/cartpole-balance`: mean return; rewards are at most 1, in 1,000 steps, so that the bound is 1,000.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

import ppax
from report import Report, bar, panel

Board = tuple[int, ...]  # nine places: -1 empty, 0 and 1 the players; player 0 begins
LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]
START: Board = (-1,) * 9
GAME = "pgx/tic_tac_toe"
RUNS: dict[str, dict[str, Any]] = {
    GAME: {
        "total_steps": 2_000_000,
        "num_envs": 256,
        "num_steps": 32,
        "agent": {"gamma": 1.0, "ent_coef": 0.03, "learning_rate": 1e-3, "network": {"hidden": [128, 128]}},
    },
    "minigrid/MiniGrid-Empty-5x5-v0": {"total_steps": 50_000, "preset": "none"},
    "minigrid/MiniGrid-DoorKey-5x5-v0": {"total_steps": 200_000, "preset": "none"},
    "dm_control/cartpole-balance": {"total_steps": 200_000, "preset": "none"},
}
BOUNDS = {
    "minigrid/MiniGrid-Empty-5x5-v0": 1.0,
    "minigrid/MiniGrid-DoorKey-5x5-v0": 1.0,
    "dm_control/cartpole-balance": 1000.0,
}
SIDES = ("1st, random", "1st, perfect", "2nd, random", "2nd, perfect")
LABELS = {name: name.split("/")[1].removeprefix("MiniGrid-").removesuffix("-v0") for name in BOUNDS}
QUIET = {"console": False}


def ended(board: Board) -> float | None:
    """Result of a finished game for player 0: 1, 0 or -1; None if it goes on."""
    for a, b, c in LINES:
        if board[a] >= 0 and board[a] == board[b] == board[c]:
            return 1.0 - 2.0 * board[a]
    return None if -1 in board else 0.0


def after(board: Board, mover: int) -> dict[int, Board]:
    """Boards after each legal move."""
    return {i: (*board[:i], mover, *board[i + 1 :]) for i in range(9) if board[i] < 0}


def to_move(board: Board) -> int:
    """Player whose turn it is: player 0 after an even number of moves."""
    return (9 - board.count(-1)) % 2


@cache
def minimax(board: Board) -> float:
    """Result for player 0 if both play perfectly."""
    result, mover = ended(board), to_move(board)
    if result is not None:
        return result
    return (max, min)[mover](minimax(one) for one in after(board, mover).values())


def moves_of(policy: Any) -> dict[Board, int]:
    """Most likely move of a policy on every board that a game can reach."""
    boards: dict[Board, None] = {}

    def visit(board: Board) -> None:
        if board not in boards and ended(board) is None:
            boards[board] = None
            for one in after(board, to_move(board)).values():
                visit(one)

    visit(START)
    array = np.array(list(boards)).reshape(-1, 3, 3)
    mover = np.array([to_move(board) for board in boards])[:, None, None]
    seen = np.stack([array == mover, array == 1 - mover, np.ones_like(array)], axis=-1).astype(np.uint8)
    actions = np.asarray(policy.act(seen, mask=array.reshape(-1, 9) < 0, deterministic=True))
    return dict(zip(boards, map(int, actions), strict=True))


def results(moves: Mapping[Board, int] | None, side: int, perfect: bool) -> tuple[float, float]:
    """Mean result and share of games not lost, of the player `side` with these moves; None: of its best moves.

    The other player moves at random, or draws among its perfect moves.
    """
    sign = 1 - 2 * side

    @cache
    def value(board: Board) -> tuple[float, float]:
        result, mover = ended(board), to_move(board)
        if result is not None:
            return sign * result, float(sign * result >= 0)
        following = after(board, mover)
        if mover == side:
            return value(following[moves[board]]) if moves is not None else max(map(value, following.values()))
        if perfect:
            best = (max, min)[mover](map(minimax, following.values()))
            following = {i: one for i, one in following.items() if minimax(one) == best}
        each = np.array([value(one) for one in following.values()]).mean(axis=0)
        return float(each[0]), float(each[1])

    return value(START)


def measured(name: str, seed: int, steps: int | None) -> dict[str, float]:
    """Scores of one run by name, each a share of the best possible."""
    options = RUNS[name] | ({} if steps is None else {"total_steps": steps})
    run = ppax.build(name, seed=seed, log=QUIET, **options).fit()
    if name != GAME:
        return {LABELS[name]: run.evaluate(episodes=50).mean_return / BOUNDS[name]}
    moves, found = moves_of(run.policy()), {}
    for side, place in enumerate(("1st", "2nd")):
        best = results(None, side, False)[0]  # 0.995 for the first player, 0.925 for the second
        found[f"{place}, random"] = results(moves, side, False)[0] / best
        found[f"{place}, perfect"] = results(moves, side, True)[1]
    return found


def panels(scores: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Bars of tic-tac-toe by side and opponent, and of the other environments."""
    found = []
    for title, names in (("tic-tac-toe: result, not lost", SIDES), ("return / bound", tuple(LABELS.values()))):
        bars = [
            bar(name, {"median": statistics.median(x), "min": min(x), "max": max(x)}, None)
            for name, x in scores.items()
            if name in names
        ]
        found += [panel(title, bars, "higher")] if bars else []
    return found


def main() -> None:
    """Train, print each score, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", default="", help="text in the names of the environments")
    parser.add_argument("--quick", action="store_true", help="a smoke test: few steps, nothing written")
    options = parser.parse_args()
    installed = {name: importlib.util.find_spec(name.partition("/")[0]) is not None for name in RUNS}
    names = [name for name in RUNS if options.only in name and installed[name]]
    seeds = [1000 + i for i in range(1 if options.quick else options.seeds)]
    report = Report(
        None if options.quick else "suites",
        "Scores in suites, as a share of the best possible",
        {"runs": RUNS, "seeds": seeds},
    )
    scores: dict[str, list[float]] = {}
    for name in names:
        for seed in seeds:
            for what, score in measured(name, seed, 4096 if options.quick else None).items():
                scores.setdefault(what, []).append(round(score, 4))
                print(seed, what, f"{score:.3f}", flush=True)
            report.save(results=scores, panels=panels(scores))
    report.finish()


if __name__ == "__main__":
    main()
