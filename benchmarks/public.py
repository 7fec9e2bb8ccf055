"""Figures, curves and statistics of the public suite, from the scores of ppax and of its peers.

    ppax score --suite public --out benchmarks/results/public   # ppax: each row is a file
    python benchmarks/public_sb3.py --out benchmarks/results/public/sb3
    python benchmarks/public_sb3.py --settings zoo --out benchmarks/results/public/sb3-zoo
    python benchmarks/public.py                                 # all that follows, from those files

In benchmarks/results/public it writes `summary.json`, which docs/evidence.md is made of; `curves/ROW.csv.gz`, the
learning curves of all seeds with the columns library, seed, env_steps and episode_return; `marl_eval.json`, the final
scores in the format of marl-eval (https://github.com/instadeepai/marl-eval); and the pictures `curves.png` and
`profiles.png`.
"""

from __future__ import annotations

import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from ppax.reports.statistics import difference_of, iqm, iqm_band, statistics_of
from ppax.scores import normalised, suite, tables
from ppax.scores.curves import COLORS, draw_profile
from ppax.scores.results import Score

FOLDER = Path(__file__).parent / "results" / "public"
OURS = "ppax"
PEERS = {"sb3": "Stable-Baselines3", "sb3-zoo": "SB3 Zoo's settings"}  # folders in FOLDER
POINTS = 60  # of a drawn curve
Members = list[dict[str, Any]]  # of each seed: score, seconds, curve


def main() -> None:
    """Write all files."""
    scores = {score.row.name: score for score in tables.published(FOLDER)}
    rows = [scores[row.name] for row in suite.read_suite(suite.PUBLIC) if row.name in scores]
    measured = {score.row.name: members_of(score) for score in rows}
    together_alone = normalised.together(rows)
    summary = {
        "normalised": together_alone and together_alone._asdict(),
        "rows": {score.row.name: row_summary(score, measured[score.row.name]) for score in rows},
        "together": {peer: together(pairs_with(peer, rows, measured), peer) for peer in PEERS.values()},
    }
    (FOLDER / "summary.json").write_text(json.dumps(rounded(summary), indent=1) + "\n")
    (FOLDER / "curves").mkdir(exist_ok=True)
    for name, methods in measured.items():
        write_curves(methods, FOLDER / "curves" / f"{name.removeprefix('public-')}.csv.gz")
    (FOLDER / "marl_eval.json").write_text(json.dumps(marl_eval(rows, measured), indent=1) + "\n")
    draw_curves(rows, measured, FOLDER / "curves.png")
    draw_profile(profiles(rows, measured), FOLDER / "profiles.png")


def members_of(score: Score) -> dict[str, Members]:
    """Results of each seed of a row, by library: of ppax, and of those peers that have finished the row."""
    found: dict[str, Members] = {OURS: [member._asdict() for member in score.members]}
    for folder, name in PEERS.items():
        path = FOLDER / folder / f"{score.row.name.removeprefix('public-')}.json"
        if path.is_file():
            found[name] = json.loads(path.read_text())["members"]
    return found


def values_of(members: Members) -> np.ndarray:
    """Score [seeds] of each seed."""
    return np.array([math.nan if member["score"] is None else member["score"] for member in members], float)


def row_summary(score: Score, methods: dict[str, Members]) -> dict[str, Any]:
    """Statistics of a row: of each library, and how probably a seed of ppax is better than one of a peer."""
    found: dict[str, Any] = {"env": score.env, "random": score.random, "reference": score.row.reference}
    for name, members in methods.items():
        values = values_of(members)
        shares = normalised_values(score, values)
        found[name] = {
            **statistics_of(values.tolist())._asdict(),
            "seeds": len(members),
            "seconds": sum(member["seconds"] for member in members) / len(members),
            "normalised": None if shares is None else iqm(np.nan_to_num(shares).tolist()),
        }
        if name != OURS:
            difference = difference_of(values_of(methods[OURS]).tolist(), values.tolist())
            found[name]["better"] = [difference.better, difference.better_low, difference.better_high]
    return found


def normalised_values(score: Score, values: np.ndarray) -> np.ndarray | None:
    """Scores `values` [seeds] of any library in the units of ppax's row; None for a row without a reference."""
    if normalised.normalised(score) is None or score.row.reference is None:
        return None
    return np.asarray((values - score.random) / (score.row.reference - score.random))


Pair = tuple[np.ndarray, np.ndarray]  # normalised scores of ppax and of a peer, each [seeds]


def pairs_with(peer: str, rows: list[Score], measured: dict[str, dict[str, Members]]) -> list[Pair]:
    """Normalised scores of ppax and of `peer` on each row that both have and that has a reference."""
    pairs = []
    for score in rows:
        methods = measured[score.row.name]
        if peer in methods:
            ours, theirs = (normalised_values(score, values_of(methods[name])) for name in (OURS, peer))
            if ours is not None and theirs is not None:
                pairs.append((ours, theirs))
    return pairs


def together(pairs: list[Pair], peer: str) -> dict[str, Any] | None:
    """IQM of ppax and of a peer over the rows that both have, and the mean probability that a seed of ppax is better.

    None for fewer than two rows.
    """
    if len(pairs) < 2:
        return None
    ours, theirs = (normalised.aggregate(rows)._asdict() for rows in zip(*pairs, strict=True))
    better = [difference_of(one.tolist(), other.tolist()).better for one, other in pairs]
    return {OURS: ours, peer: theirs, "better": float(np.mean(better))}


def profiles(rows: list[Score], measured: dict[str, dict[str, Members]]) -> dict[str, list[np.ndarray]]:
    """Normalised scores to draw, by library: of the rows that the first peer has too; without it, ppax on all rows."""
    for peer in PEERS.values():
        pairs = pairs_with(peer, rows, measured)
        if len(pairs) > 1:
            return dict(zip((OURS, peer), map(list, zip(*pairs, strict=True)), strict=True))
    return {OURS: [values for score in rows if (values := normalised.normalised(score)) is not None]}


def rounded(tree: Any) -> Any:
    """The same nested dicts and lists with six digits of each number, and None in place of NaN."""
    if isinstance(tree, dict):
        return {name: rounded(value) for name, value in tree.items()}
    if isinstance(tree, list):
        return [rounded(value) for value in tree]
    if isinstance(tree, float):
        return float(f"{tree:.6g}") if math.isfinite(tree) else None
    return tree


def write_curves(methods: dict[str, Members], path: Path) -> None:
    """Write the learning curves of a row as compressed CSV: the same bytes from the same scores."""
    text = io.StringIO()
    text.write("library,seed,env_steps,episode_return\n")
    for name, members in methods.items():
        for member in members:
            for steps, value in member["curve"]:
                empty = value is None or math.isnan(value)
                text.write(f"{name},{member['seed']},{steps},{'' if empty else f'{value:g}'}\n")
    path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))


def marl_eval(rows: list[Score], measured: dict[str, dict[str, Members]]) -> dict[str, Any]:
    """Curves and final scores as marl-eval reads them: suite, task, algorithm, run, step."""
    tasks: dict[str, Any] = {}
    for score in rows:
        algorithms: dict[str, Any] = {}
        for name, members in measured[score.row.name].items():
            runs: dict[str, Any] = {}
            for member in members:
                final = {"mean_episode_return": [member["score"]]}
                steps = {"step_count": member["env_steps"], "elapsed_time": member["seconds"], **final}
                runs[f"seed_{member['seed']}"] = {"step_0": steps, "absolute_metrics": final}
            algorithms[name] = runs
        tasks[score.row.name.removeprefix("public-")] = algorithms
    return {"public": rounded(tasks)}


def draw_curves(rows: list[Score], measured: dict[str, dict[str, Members]], path: Path) -> None:
    """Draw the learning curves of all rows: the IQM over the seeds with its 95 % interval, and the reference."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = 4
    lines = -(-len(rows) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(15, 2.9 * lines), squeeze=False, layout="constrained")
    names = [OURS, *PEERS.values()]
    for axis in axes.flat[len(rows) :]:
        axis.remove()
    for axis, score in zip(axes.flat, rows, strict=False):
        for name, members in measured[score.row.name].items():
            color = COLORS[names.index(name)]
            curves = [np.array(m["curve"], float) for m in members if m["curve"]]
            curves = [curve[np.isfinite(curve[:, 1])] for curve in curves]
            curves = [curve for curve in curves if len(curve)]
            if not curves:
                continue
            steps = np.linspace(max(c[0, 0] for c in curves), min(c[-1, 0] for c in curves), POINTS)
            middle, low, high = iqm_band(np.array([np.interp(steps, c[:, 0], c[:, 1]) for c in curves]))
            axis.fill_between(steps, low, high, color=color, alpha=0.2, lw=0)
            axis.plot(steps, middle, color=color, label=f"{name}, {len(members)} seeds")
        if score.row.reference is not None:
            axis.axhline(score.row.reference, color="#7a7a7a", ls=":", lw=1)
        axis.set_title(score.env, loc="left", fontsize=10)
        axis.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x / 1e3:g}k" if x else "0")
        axis.spines[["top", "right"]].set_visible(False)
        axis.margins(x=0.01)
        axis.legend(fontsize=7, framealpha=0.7, edgecolor="none")
    figure.supxlabel("environment steps; dotted: the published reference", fontsize=10)
    figure.supylabel("return of training episodes, IQM over seeds with its 95 % interval", fontsize=10)
    figure.savefig(path, dpi=90, metadata={"Software": None})
    plt.close(figure)


if __name__ == "__main__":
    main()
