"""Pictures of a sweep: learning curves of its members (runs), and a plot of swept values against score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ppax.loggers.files import rows_until, thinned
from ppax.reports.formatting import short_count
from ppax.run.directory import ROWS
from ppax.run.records import CURVES, RETURN
from ppax.scores.tables import number_cell
from ppax.storage import safe_files
from ppax.sweeps.plan import shown
from ppax.sweeps.results import MemberResult, SweepResult, importance

MEMBERS, PARALLEL = "members.png", "parallel.png"
GREY, INK, BAR = "#b8bcc4", "#30343b", "#1f6f8b"
COLOURS, BRIGHTEST = "viridis", 0.92  # the rest is too bright for lines on white
LOG = "\n(log)"  # below the name of an option on a logarithmic axis
LETTERS = 15.0  # in an inch of a legend
DECADES = 1.3  # span of positive values, in powers of ten, from which on an axis is logarithmic


def draw(result: SweepResult) -> list[Path]:
    """Write the pictures of a sweep into its directory and return their paths.

    They are members.png, and parallel.png if an option was swept. Raises ImportError, which names the extra to install,
    if matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('pictures of a sweep need matplotlib: pip install "ppax[plot]"') from error
    drawn = {MEMBERS: curves(result, Figure(figsize=(8.0, 4.5), dpi=130, layout="constrained"))}
    paths = list(result.members[0].values)
    if paths:
        width = min(16.0, 4.6 + 1.6 * len(paths))
        drawn[PARALLEL] = parallel(result, Figure(figsize=(width, 4.5), dpi=130, layout="constrained"))
    for name, figure in drawn.items():
        with safe_files.replacing(result.run_dir / name) as partial:
            figure.savefig(partial, format="png", metadata={"Software": None})
    return [result.run_dir / name for name in drawn]


def curves(result: SweepResult, figure: Any) -> Any:
    """Draw the learning curve of each member (run) of a sweep, coloured by its score, into `figure`; return `figure`.

    A dot ends the curve of a member that the search has stopped.
    """
    axes, colour = figure.subplots(), _Colours(result.members)
    rows = {member.number: thinned(rows_until(member.run_dir / ROWS, 2**63)) for member in result.members}
    known = {name for own in rows.values() for row in own for name in CURVES if row.get(name) is not None}
    metric = next((name for name in CURVES if name in known), RETURN)
    for member in colour.worst_first():
        own = [(row["env_steps"], row[metric]) for row in rows[member.number] if row.get(metric) is not None]
        if own:
            steps, returns = np.array(own, float).T
            style = {"color": colour.of(member), "alpha": colour.alpha, "solid_capstyle": "round"}
            axes.plot(steps, returns, lw=2.4 if member is colour.best else 1.1, **style | colour.emphasis(member))
            if member.stopped:
                axes.plot(
                    steps[-1:], returns[-1:], "o", ms=4.5, color=colour.of(member), mec="white", mew=0.7, zorder=950
                )
    stopped = f", {len(result.stopped)} stopped by the search (dots)" if result.stopped else ""
    dropped = f", {len(result.dropped)} dropped (grey)" if result.dropped else ""
    _title(axes, f"{len(result.members)} members{stopped}{dropped}")
    axes.set_xlabel("environment steps")
    axes.set_ylabel(metric.replace("_", " "))
    axes.xaxis.set_major_formatter(lambda steps, _: short_count(steps))
    axes.grid(alpha=0.2, lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.01)
    colour.bar(figure, axes)
    colour.legend(figure, dots=True)
    return figure


def parallel(result: SweepResult, figure: Any) -> Any:
    """Draw a parallel-coordinates plot into `figure`: a line per member through its swept values to its score.

    A member is a run of the sweep. Beside the lines are bars of the options' importance. Returns `figure`.
    """
    paths, colour = list(result.members[0].values), _Colours(result.members)
    axes, bars = figure.subplots(1, 2, width_ratios=[0.9 + 0.9 * len(paths), 1.5])
    places = {path: _places([member.values[path] for member in result.members]) for path in paths}
    scale = [member.score if math.isfinite(member.score) else colour.low for member in result.members]
    scores = _linear(scale)
    xs = np.arange(len(paths) + 1)
    fine = np.linspace(0, len(paths), 40 * len(paths) + 1)
    order = {member.number: place for place, member in enumerate(result.members)}
    for member in colour.worst_first():
        i = order[member.number]
        ys = [*(places[path][0][i] for path in paths), scores[0][i]]
        style = {"color": colour.of(member), "alpha": colour.alpha, "lw": 2.4 if member is colour.best else 1.1}
        axes.plot(fine, _smooth(fine, xs, np.array(ys)), **style | colour.emphasis(member), solid_capstyle="round")
    for x, ticks in zip(xs, [*(places[path][1] for path in paths), scores[1]], strict=True):
        axes.axvline(x, color=INK, lw=1.0, zorder=1000)
        for y, text in ticks:
            axes.plot([x - 0.015, x + 0.015], [y, y], color=INK, lw=1.0, zorder=1000)
            box = {"facecolor": "white", "alpha": 0.72, "edgecolor": "none", "pad": 0.8}
            axes.text(x + 0.03, y, _plain(text), fontsize=7.5, color=INK, va="center", zorder=1001, bbox=box)
    log = {path for path in paths if _spans_decades([member.values[path] for member in result.members])}
    heads = [_plain(path.removeprefix("agent.")) + (LOG if path in log else "") for path in paths]
    axes.set_xticks(xs, [*heads, "score"], fontsize=9)
    axes.set_yticks([])
    axes.set_xlim(-0.06, len(paths) + 0.32)
    axes.set_ylim(-0.04, 1.04)
    axes.tick_params(length=0, pad=6)
    axes.spines[:].set_visible(False)
    _title(axes, "swept values and score")
    colour.legend(figure, dots=False)
    _bars(bars, importance([x.values for x in result.members], [x.score for x in result.members]))
    return figure


def _bars(axes: Any, shares: dict[str, float]) -> None:
    """Draw a bar for the importance of each option, the largest on top.

    `shares` has the importance by option: the share of the scores' variance that it explains, in [0, 1], or NaN if
    unknown.
    """
    ordered = sorted(shares, key=lambda path: shares[path] if math.isfinite(shares[path]) else -1.0)
    for y, path in enumerate(ordered):
        share = shares[path] if math.isfinite(shares[path]) else 0.0
        text = f"{100 * share:.0f} %" if math.isfinite(shares[path]) else "unknown"
        axes.barh(y, share, height=0.34, color=BAR)
        axes.text(0.0, y + 0.24, _plain(path.removeprefix("agent.")), fontsize=8, color=INK, va="bottom")
        axes.text(share + 0.02, y, text, fontsize=8, color=INK, va="center")
    axes.set_xlim(0.0, 1.18)
    axes.set_ylim(len(shares) - max(len(shares), 3) - 0.6, len(shares) - 0.1)
    axes.set_xticks([0.0, 0.5, 1.0], ["0", "50 %", "100 %"], fontsize=8)
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.set_xlabel("variance of the score that\neach option explains alone", fontsize=8)
    _title(axes, "importance")


class _Colours:
    """Colours of a sweep's members (runs) by their scores; grey for members without a score."""

    def __init__(self, members: Sequence[MemberResult]):
        from matplotlib import colormaps
        from matplotlib.colors import ListedColormap, Normalize

        scores = [member.score for member in members if math.isfinite(member.score)] or [0.0]
        self.low, high = min(scores), max(scores)
        self._norm = Normalize(self.low, high if high > self.low else self.low + 1.0)
        self._map = ListedColormap(colormaps[COLOURS](np.linspace(0.0, BRIGHTEST, 256)))
        self.alpha = 0.9 if len(members) <= 24 else 0.65
        self._members = members
        ended = [member for member in members if math.isfinite(member.score) and not member.stopped]
        several = len({member.values.get("env") for member in members}) > 1  # environments: there is no best one
        self.best = None if several else max(ended, key=lambda member: member.score, default=None)

    def of(self, member: MemberResult) -> Any:
        """Return the colour of a member (run) by its score; grey if it has no score."""
        return self._map(self._norm(member.score)) if math.isfinite(member.score) else GREY

    def emphasis(self, member: MemberResult) -> dict[str, Any]:
        """Return further arguments of `plot` for a member's line: a white border for the best member, {} for others."""
        if member is not self.best:
            return {}
        from matplotlib import patheffects

        seam = [patheffects.Stroke(linewidth=5.0, foreground="white"), patheffects.Normal()]
        return {"path_effects": seam, "alpha": 1.0, "zorder": 900}

    def legend(self, figure: Any, dots: bool) -> None:
        """Draw a legend below the axes: colour and width of lines, and with `dots` the dots at stopped members."""
        from matplotlib.lines import Line2D

        scale = self._map([0.1, 0.5, 0.9])
        entries = [(Line2D([], [], color=scale[1], lw=1.1), "a member; colour: its score, dark low, light high")]
        if self.best is not None:
            text = f"best member ({self.best.run_dir.name}), thick"
            entries += [(Line2D([], [], color=self.of(self.best), lw=2.4), text)]
        if any(not math.isfinite(member.score) for member in self._members):
            entries += [(Line2D([], [], color=GREY, lw=1.1), "no score")]
        if dots and any(member.stopped for member in self._members):
            dot = Line2D([], [], color=scale[0], marker="o", ms=4.5, ls="", mec="white", mew=0.7)
            entries += [(dot, "stopped by the search")]
        letters = sum(len(text) + 7 for _, text in entries)  # with the samples of lines
        columns = (
            len(entries) if letters < LETTERS * figure.get_figwidth() else max(1, int(figure.get_figwidth() / 4.0))
        )
        place = {"loc": "outside lower left", "ncols": columns}
        figure.legend(*zip(*entries, strict=True), frameon=False, fontsize=8, **place)

    def worst_first(self) -> list[MemberResult]:
        """Return the members (runs) as they are drawn: those without a score first, the best one last, on top."""
        return sorted(self._members, key=lambda x: (x is self.best, x.score if math.isfinite(x.score) else -math.inf))

    def bar(self, figure: Any, axes: Any) -> None:
        """Draw the scale of the colours, from lowest to highest score, beside `axes`."""
        from matplotlib.cm import ScalarMappable

        bar = figure.colorbar(ScalarMappable(self._norm, self._map), ax=axes, pad=0.015, aspect=28)
        bar.set_label("score", fontsize=9)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=2, labelsize=8)


Ticks = list[tuple[float, str]]


def _places(values: Sequence[Any]) -> tuple[list[float], Ticks]:
    """Return the position in [0, 1] of each value on its axis, and the axis' ticks as pairs (position, text).

    Positive numbers that span decades have a logarithmic axis. Otherwise distinct values stand at equal distances, if
    some are no numbers, or if they are at most six and each occurs twice on average, as in a grid. All other numbers
    have a linear axis. If all values are equal, their position is 0.5.
    """
    texts = [shown(value) for value in values]
    plain = all(type(value) in (int, float) for value in values)
    distinct = list(dict.fromkeys(sorted(texts, key=lambda text: values[texts.index(text)]) if plain else texts))
    if len(distinct) == 1:
        return [0.5] * len(values), [(0.5, distinct[0])]
    few = len(distinct) <= min(6, len(values) // 2)
    if plain and _spans_decades(values):
        low, high = math.log10(min(values)), math.log10(max(values))
        places = [(math.log10(value) - low) / (high - low) for value in values]
        inner = [10.0**k for k in range(math.ceil(low), math.floor(high) + 1)]
        powers = [((math.log10(x) - low) / (high - low), f"{x:g}") for x in inner]
        ends = [(0.0, f"{min(values):.3g}"), (1.0, f"{max(values):.3g}")]
        return places, _apart(sorted(set(zip(places, texts, strict=True))) if few else [*ends, *powers])
    if not plain or few:
        place = {text: i / (len(distinct) - 1) for i, text in enumerate(distinct)}
        return [place[text] for text in texts], [(y, text) for text, y in place.items()]
    return _linear(values)


def _spans_decades(values: Sequence[Any]) -> bool:
    """Return True if all values are positive numbers, and the largest is more than 10^DECADES times the smallest."""
    if not all(type(value) in (int, float) and value > 0 for value in values):
        return False
    return math.log10(max(values) / min(values)) > DECADES


def _linear(values: Sequence[float]) -> tuple[list[float], Ticks]:
    low, high = min(values), max(values)
    if low == high:
        return [0.5] * len(values), [(0.5, number_cell(low))]
    marks = [low + share * (high - low) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    return [(x - low) / (high - low) for x in values], [((x - low) / (high - low), f"{x:.3g}") for x in marks]


def _apart(ticks: Ticks) -> Ticks:
    """Return the ticks without those that would overlap on the axis with a tick before them in the list."""
    kept: Ticks = []
    for tick in ticks:
        if all(abs(tick[0] - other[0]) > 0.06 for other in kept):
            kept.append(tick)
    return kept


def _smooth(fine: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Return the values [n], at positions `fine` [n], of a smooth curve that has slope 0 at its points (`xs`, `ys`).

    Between two points the curve never leaves the range of their values. `xs` must be 0, 1, 2, ...
    """
    left = np.clip(fine.astype(int), 0, len(xs) - 2)
    share = fine - left
    return ys[left] + (ys[left + 1] - ys[left]) * (3.0 - 2.0 * share) * share**2


def _title(axes: Any, text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10, color=INK)


def _plain(text: str) -> str:
    """Return the text with dollar signs escaped, so that matplotlib takes none of it for a formula."""
    return text.replace("$", r"\$")
