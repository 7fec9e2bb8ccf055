"""Pictures of scores: learning curve of an environment, with threshold and reference, and profile of a suite."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ppax.scores.normalised import aggregate, profile
from ppax.scores.results import Score
from ppax.scores.suite import RETURN
from ppax.storage import safe_files

BLUE, GREEN, GREY = "#1f6f8b", "#2e8540", "#7a7a7a"
COLORS = (BLUE, "#c8553d", GREEN, GREY)
POINTS = 100


class SeedBand(NamedTuple):
    """Learning curves of all seeds in one: their mean, and their lowest and highest value, each [POINTS].

    `env_steps` are the POINTS (a constant) numbers of environment steps at which the curves are taken.
    """

    env_steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray  # lowest seed
    high: np.ndarray


def band(score: Score) -> SeedBand | None:
    """Return mean and range of the learning curves of all seeds; None where no training episode has ended.

    The band goes from the first to the last number of steps that the curves of all seeds cover. Between its points a
    curve is interpolated linearly.
    """
    curves = [np.array(member.curve, float) for member in score.members]
    curves = [curve[np.isfinite(curve[:, 1])] for curve in curves if curve.size]
    curves = [curve for curve in curves if len(curve)]
    if not curves:
        return None
    steps = np.linspace(max(curve[0, 0] for curve in curves), min(curve[-1, 0] for curve in curves), POINTS)
    values = np.array([np.interp(steps, curve[:, 0], curve[:, 1]) for curve in curves])
    return SeedBand(steps, values.mean(axis=0), values.min(axis=0), values.max(axis=0))


def draw_curve(score: Score, path: Path) -> None:
    """Write the learning curve of a score as the PNG file `path`.

    Raises ImportError, which names the extra to install, if matplotlib is missing.
    """
    figure = _figure()
    axes = figure.subplots()
    drawn, s = band(score), score.statistics
    if drawn is not None:
        axes.fill_between(drawn.env_steps, drawn.low, drawn.high, color=BLUE, alpha=0.2, lw=0)
        axes.plot(
            drawn.env_steps, drawn.mean, color=BLUE, label=f"training, mean and range of {len(score.seeds)} seeds"
        )
    finals = [member.env_steps for member in score.members]
    axes.plot(finals, score.scores, "o", color=BLUE, mfc="white", ms=5, clip_on=False, label="final policy, each seed")
    _line(axes, score.row.threshold, "threshold", GREEN, "--")
    _line(axes, score.row.reference, "reference", GREY, ":")
    _line(axes, score.random, "untrained", GREY, "-.")
    axes.set_title(
        f"{score.row.name}  {score.env}:  IQM {s.iqm:.4g} [{s.low:.4g}, {s.high:.4g}]", loc="left", fontsize=10
    )
    axes.set_xlabel("environment steps")
    axes.set_ylabel("episode return" if score.row.metric == RETURN else score.row.metric)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x / 1e3:g}k" if x else "0")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    axes.legend(fontsize=7.5, framealpha=0.85, edgecolor="none", loc="best")
    with safe_files.replacing(path) as partial:
        figure.savefig(partial, metadata={"Software": None})


def draw_profile(methods: Mapping[str, Sequence[np.ndarray]], path: Path) -> None:
    """Write the performance profiles of methods as the PNG file `path`: the share of runs above each normalised score.

    `methods` has the normalised scores of each method by its name: an array [seeds] for each row. Raises ImportError,
    which names the extra to install, if matplotlib is missing.
    """
    figure = _figure()
    axes = figure.subplots()
    values = np.concatenate([row for rows in methods.values() for row in rows])
    highest = min(2.0, max(1.2, float(np.nanquantile(values, 0.95))))
    thresholds = np.linspace(0.0, highest, POINTS + 1)
    for (name, rows), color in zip(methods.items(), COLORS, strict=False):
        share, low, high = profile(rows, thresholds)
        together = aggregate(rows)
        text = f"{name}: IQM {together.iqm:.2f} [{together.low:.2f}, {together.high:.2f}]"
        axes.fill_between(thresholds, low, high, color=color, alpha=0.2, lw=0)
        axes.plot(thresholds, share, color=color, label=text)
    axes.axvline(1.0, color=GREY, ls=":", lw=1, label="published reference")
    counts = {len(rows) for rows in methods.values()}
    over = f" over {counts.pop()} environments" if len(counts) == 1 else ""
    axes.set_title(f"Performance profile{over}", loc="left", fontsize=10)
    axes.set_xlabel("normalised score (0: untrained, 1: published reference)")
    axes.set_ylabel("share of runs above the score")
    axes.set_ylim(0.0, 1.02)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    axes.legend(fontsize=6.5, framealpha=0.85, edgecolor="none", loc="upper right")
    with safe_files.replacing(path) as partial:
        figure.savefig(partial, metadata={"Software": None})


def _figure() -> Any:
    """Return an empty figure; ImportError, which names the extra to install, if matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('pictures of scores need matplotlib: pip install "ppax[plot]"') from error
    return Figure(figsize=(6.4, 3.6), dpi=120, layout="constrained")


def _line(axes: Any, value: float | None, label: str, color: str, style: str) -> None:
    if value is not None:
        axes.axhline(value, color=color, ls=style, lw=1, label=f"{label} {value:.4g}")
