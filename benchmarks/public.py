"""Figures, curves and statistics of the public suite, from the scores of ppax and of its peers.

    ppax score --suite public --out benchmarks/results/public   # ppax: each row is a file
    python benchmarks/public_sb3.py --out benchmarks/results/public/sb3
    python benchmarks/public_sb3.py --settings zoo --out benchmarks/results/public/sb3-zoo
    python benchmarks/public_purejaxrl.py --out benchmarks/results/public/purejaxrl
    python benchmarks/public.py                                 # all that follows, from those files

In benchmarks/results/public it writes `summary.json`, which docs/evidence.md is made of; `curves/ROW.csv.gz`, the
learning curves of all seeds with the columns library, seed, env_steps and episode_return; `marl_eval.json`, the final
scores in the format of marl-eval (https://github.com/instadeepai/marl-eval); and the pictures `curves.png` and
`profiles.png`. Files of peers whose environment, steps or settings are not those of the row are refused.
"""

from __future__ import annotations

import gzip
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from defaults import TASKS
from ppax.reports.statistics import difference_of, iqm, iqm_band, statistics_of
from ppax.scores import normalised, suite, tables
from ppax.scores.curves import COLORS, draw_profile
from ppax.scores.results import Score, save_score
from public_purejaxrl import gymnax_id
from public_sb3 import env_id


class Peer(NamedTuple):
    """Another library: its name, the folder of its files, the settings that these must have, and what it can run."""

    name: str
    folder: str
    settings: str
    env_id: Callable[[str], str | None]  # its name of a row's target; None where it cannot run it
    packages: tuple[str, ...]  # whose versions are shown


FOLDER = Path(__file__).parent / "results" / "public"
OURS = "ppax"
SB3_PACKAGES = ("stable-baselines3", "gymnasium", "mujoco", "torch")
PEERS = (
    Peer("Stable-Baselines3", "sb3", "default", env_id, SB3_PACKAGES),
    Peer("PureJaxRL", "purejaxrl", "default", gymnax_id, ("jax", "gymnax", "flax", "optax")),
    Peer("SB3 Zoo's settings", "sb3-zoo", "zoo", env_id, SB3_PACKAGES),
)
LEAST_SEEDS = 2  # of a peer, for a row that is compared: one seed has no spread
LEAST_FOR_INTERVAL = 3  # seeds: the bootstrap of two is only their minimum and maximum
RESAMPLES = 2_000
# Environments on which a default was chosen or changed: those of benchmarks/defaults.py, and two whose low scores in
# this suite led to another default (gamma with short time limits, gradient steps with small images)
CHOSEN_ON = {*TASKS, "jaxmarl/MPE_simple_spread_v3", "minigrid/MiniGrid-DoorKey-5x5-v0"}
POINTS = 60  # of a drawn curve
Members = list[dict[str, Any]]  # of each seed: score, seconds, curve


def main() -> None:
    """Write all files."""
    scores = {score.row.name: score for score in tables.published(FOLDER)}
    rows = [scores[row.name] for row in suite.read_suite(suite.PUBLIC) if row.name in scores]
    for score in rows:
        save_score(score, FOLDER)  # with the present reference of the row
    measured = {score.row.name: members_of(score) for score in rows}
    summary = {
        "groups": {name: group_summary(group) for name, group in groups_of(rows).items()},
        "rows": {score.row.name: row_summary(score, measured[score.row.name]) for score in rows},
        "versions": {peer.name: used for peer in PEERS if (used := versions_of(peer, measured))},
        "together": {peer.name: together(pairs_with(peer.name, rows, measured), peer.name) for peer in PEERS},
    }
    (FOLDER / "summary.json").write_text(json.dumps(rounded(summary), indent=1) + "\n")
    (FOLDER / "curves").mkdir(exist_ok=True)
    for name, methods in measured.items():
        write_curves(methods, FOLDER / "curves" / f"{name.removeprefix('public-')}.csv.gz")
    (FOLDER / "marl_eval.json").write_text(json.dumps(marl_eval(rows, measured), indent=1) + "\n")
    draw_curves(rows, measured, FOLDER / "curves.png")
    draw_profile(profiles(rows, measured), FOLDER / "profiles.png")


def groups_of(rows: list[Score]) -> dict[str, list[Score]]:
    """Rows that have a reference: all, and parts of them that a reader may want to see alone."""
    rows = [score for score in rows if normalised.normalised(score) is not None]
    return {
        "all": rows,
        "a default was chosen on them": [score for score in rows if score.row.target in CHOSEN_ON],
        "no default was chosen on them": [score for score in rows if score.row.target not in CHOSEN_ON],
        "published after as many steps": [score for score in rows if score.row.reference_steps == score.row.steps],
        "without MinAtar, whose published scores are read off figures": [
            score for score in rows if not score.row.target.endswith("-MinAtar")
        ],
        "MuJoCo": [score for score in rows if score.row.target.endswith("-v5")],
    }


def group_summary(rows: list[Score]) -> dict[str, Any]:
    """Aggregates of normalised scores over `rows`, and how many rows reach their reference: by the IQM, by the mean.

    `surely` counts rows whose whole interval does.
    """
    values = [np.nan_to_num(normalised.normalised(score)) for score in rows]
    surely = sum(score.statistics.low >= (score.row.reference or math.inf) for score in rows)
    by_mean = sum(float(np.mean(one)) >= 1.0 for one in values)
    return {**aggregates(values), "surely": surely, "by_mean": by_mean}


def aggregates(values: list[np.ndarray]) -> dict[str, Any]:
    """IQM with its interval, optimality gap, and mean of normalised scores [seeds] of several rows.

    The optimality gap is how far runs stay below 1 on average, where those above it count as 1 (Agarwal et al. 2021).
    """
    gap = float(np.mean([np.mean(np.maximum(1.0 - one, 0.0)) for one in values]))
    mean = float(np.mean([np.mean(one) for one in values]))
    return {**normalised.aggregate(values)._asdict(), "gap": gap, "mean": mean}


def members_of(score: Score) -> dict[str, Members]:
    """Results of each seed of a row, by library: of ppax, and of those peers that have begun the row."""
    found: dict[str, Members] = {OURS: [member._asdict() for member in score.members]}
    for peer in PEERS:
        path = FOLDER / peer.folder / f"{score.row.name.removeprefix('public-')}.json"
        if path.is_file():
            content = json.loads(path.read_text())
            written = tuple(content[key] for key in ("env", "steps", "settings"))
            if written != (peer.env_id(score.row.target), score.row.steps, peer.settings):
                raise SystemExit(f"{path}: is of {written}, not of the row's environment, steps and settings")
            found[peer.name] = content["members"]
    return found


def versions_of(peer: Peer, measured: dict[str, dict[str, Members]]) -> str:
    """Days, machines and versions with which a peer was measured; empty if it was not."""
    about = [member["about"] for methods in measured.values() for member in methods.get(peer.name, ())]
    if not about:
        return ""
    days = sorted({one["time"][:10] for one in about})
    processors = " or ".join(sorted({one.get("processor", "a processor that was not recorded") for one in about}))
    cores = " or ".join(str(count) for count in sorted({one["cores"] for one in about}))
    versions = [f"{name} {' and '.join(sorted({one['packages'][name] for one in about}))}" for name in peer.packages]
    return "; ".join((" to ".join(dict.fromkeys((days[0], days[-1]))), processors, f"cores: {cores}", *versions))


def values_of(members: Members) -> np.ndarray:
    """Score [seeds] of each seed."""
    return np.array([math.nan if member["score"] is None else member["score"] for member in members], float)


def row_summary(score: Score, methods: dict[str, Members]) -> dict[str, Any]:
    """Statistics of a row: of each library, and how probably a seed of ppax is better than one of a peer."""
    found: dict[str, Any] = {"env": score.env, "random": score.random, "reference": score.row.reference}
    found["runs"] = [peer.name for peer in PEERS if peer.env_id(score.row.target) is not None]
    for name, members in methods.items():
        values = values_of(members)
        shares = normalised_values(score, values)
        found[name] = {
            **statistics_of(values.tolist())._asdict(),
            "seeds": len(members),
            "seconds": sum(member["seconds"] for member in members) / len(members),
            "seconds_to_reference": seconds_to(score.row.reference, members),
            "normalised": None if shares is None else iqm(np.nan_to_num(shares).tolist()),
        }
        if name != OURS:
            difference = difference_of(values_of(methods[OURS]).tolist(), values.tolist())
            found[name]["better"] = [difference.better, difference.better_low, difference.better_high]
    return found


def seconds_to(reference: float | None, members: Members) -> list[float] | None:
    """Seconds of training until the learning curve reaches the reference, of the seeds that do; None without one.

    The curve is the mean return of training episodes, whose actions are sampled. Time passes evenly with the steps.
    """
    if reference is None:
        return None
    found = []
    for member in members:
        reached = (steps for steps, value in member["curve"] if value is not None and value >= reference)
        steps = next(reached, None)
        if steps is not None:
            found.append(member["seconds"] * steps / member["env_steps"])
    return found


def normalised_values(score: Score, values: np.ndarray) -> np.ndarray | None:
    """Scores `values` [seeds] of any library in the units of ppax's row; None for a row without a reference."""
    if normalised.normalised(score) is None or score.row.reference is None:
        return None
    return np.asarray((values - score.random) / (score.row.reference - score.random))


Pair = tuple[np.ndarray, np.ndarray]  # normalised scores of ppax and of a peer, each [seeds]


def pairs_with(peer: str, rows: list[Score], measured: dict[str, dict[str, Members]]) -> list[Pair]:
    """Normalised scores of ppax and of `peer` on each row with a reference that `peer` has LEAST_SEEDS or more of."""
    pairs = []
    for score in rows:
        methods = measured[score.row.name]
        if len(methods.get(peer, ())) >= LEAST_SEEDS:
            ours, theirs = (normalised_values(score, values_of(methods[name])) for name in (OURS, peer))
            if ours is not None and theirs is not None:
                pairs.append((ours, theirs))
    return pairs


def together(pairs: list[Pair], peer: str) -> dict[str, Any] | None:
    """Aggregates of ppax and of a peer over the rows that both have, and the probability that a seed of ppax is better.

    The probability is the mean over the rows, with the 95 % interval of a bootstrap over the seeds of each row. None
    for fewer than two rows.
    """
    if len(pairs) < 2:
        return None
    ours, theirs = (aggregates([np.nan_to_num(row) for row in rows]) for rows in zip(*pairs, strict=True))
    better = [difference_of(one.tolist(), other.tolist()).better for one, other in pairs]
    rng = np.random.default_rng(0)
    drawn = np.mean([resampled_better(one, other, rng) for one, other in pairs], axis=0)
    low, high = normalised.percentile_interval(drawn)
    return {OURS: ours, peer: theirs, "better": [float(np.mean(better)), low, high]}


def resampled_better(ours: np.ndarray, theirs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Probabilities [RESAMPLES] that a seed of ppax is better than one of a peer, with seeds drawn again."""
    one, other = (rng.choice(row, (RESAMPLES, len(row))) for row in (ours, theirs))
    above, equal = (compare(one[:, :, None], other[:, None, :]) for compare in (np.greater, np.equal))
    return np.asarray((above + 0.5 * equal).mean(axis=(1, 2)))


def profiles(rows: list[Score], measured: dict[str, dict[str, Members]]) -> dict[str, list[np.ndarray]]:
    """Normalised scores to draw: of ppax on all rows; of ppax and of the first peer on the rows that both have."""
    everywhere = [values for score in rows if (values := normalised.normalised(score)) is not None]
    drawn = {f"{OURS}, {len(everywhere)} environments": everywhere}
    for peer in PEERS:
        pairs = pairs_with(peer.name, rows, measured)
        if len(pairs) > 1:
            ours, theirs = map(list, zip(*pairs, strict=True))
            # the peer second: in the color that it has in the other picture
            return drawn | {f"{peer.name}, {len(pairs)} environments": theirs, f"{OURS}, the same {len(pairs)}": ours}
    return drawn


def counted(count: int, word: str) -> str:
    """A number and a word in the singular or plural."""
    return f"{count} {word}{'s' * (count != 1)}"


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
    """Final scores as marl-eval reads them: suite, task, algorithm, run, step."""
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
    names = [OURS, *(peer.name for peer in PEERS)]
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
            if len(curves) >= LEAST_FOR_INTERVAL:
                axis.fill_between(steps, low, high, color=color, alpha=0.2, lw=0)
            axis.plot(steps, middle, color=color, label=f"{name}, {counted(len(members), 'seed')}")
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
