"""`ppax.plot`: learning curves of runs as a Matplotlib figure, for notebooks and papers."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ppax.core.options import check_limits
from ppax.core.types import ConfigError, printable
from ppax.reports.by_option import Series, natural_order, option_named, ordered, series_of
from ppax.reports.charts import COLOURS, Line
from ppax.reports.curves import CONFIDENCE, checked_band
from ppax.reports.formatting import short_count, value_text
from ppax.reports.page import POINTS, lines_of
from ppax.reports.report import FINAL_SCORE, RunLike, records_of
from ppax.reports.settings import Setting, by_env, matters, notes_on, setting_differences, settings_of
from ppax.run.records import CURVES, DURING, EVALUATED, FINAL, RETURN, TRAINING, Record
from ppax.storage import safe_files
from ppax.storage.paths import require_place, to_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = (7.0, 4.0)  # width and height of each axes with its labels, in inches
DPI = 200  # of a PNG
FORMATS = {".png": "png", ".pdf": "pdf", ".svg": "svg"}  # by the ending of a file
# Letters as fonts, not as drawings (Type 3), which publishers refuse, and in SVG as text that can be edited
FONTS = {"pdf.fonttype": 42, "svg.fonttype": "none"}
SHARED = "runs of one setting"  # end of the legend of the only line
LEGEND_GAP, LETTERS = 5, 13.0  # letters that a line's sample takes in the legend, and letters in an inch of it


def plot(
    runs: RunLike | Sequence[RunLike],
    metric: str | Sequence[str] | None = None,
    band: str = CONFIDENCE,
    *,
    settings: Sequence[str] | Mapping[str, str] | None = None,
    size: tuple[float, float] | None = None,
    path: str | Path | None = None,
    against: str | None = None,
    score: str = FINAL_SCORE,
    each: bool = False,
) -> Figure:
    """Return a Matplotlib figure of metrics over environment steps: a row for each metric, a column per environment.

    It shows the same curves as `ppax.report`, which also explains `runs` and `band`. If `metric` is None, it is
    eval_return if a run has it, else episode_return, or reward_mean where no episode has ended. `settings` chooses the
    settings to draw by their labels, as `ppax.compare` prints them, or is a dict from labels to names in the legend;
    None: all. `size` is width and height of the whole figure in inches. With `path` the figure is also written to that
    file: .png, .pdf or .svg. With `each` every run has a line of its own, with the run's name.

    With `against`, the name of an option, the figure shows the score as a function of the option's value instead: a
    point for each seed, the interquartile mean with its 95 % interval, and a line for each combination of other options
    that differ. `score` is "final" (final return) or "training" (mean return over training), as in `ppax.compare`.

    Raises ConfigError for a metric that no run has logged, an unknown option, setting or file ending, ImportError
    without matplotlib.
    """
    for value in size or ():
        check_limits("size", value, {"above": 0.0, "high": 100.0})
    file = None if path is None else checked_file(path)
    records = records_of(runs, score)
    if against is not None:
        _refuse_with_against(metric, settings, each, band)
        own = [setting for _, setting in chosen_settings(settings_of(records), settings).values()]
        figure = sensitivity_figure(own, option_named(against, records), size)
    else:
        if score != FINAL_SCORE:
            raise ConfigError(f"score = {score!r}: is for a plot against an option; learning curves have a metric")
        if metric is None:
            metric = next((name for name in CURVES if any(one.has(name) for one in records)), RETURN)
        metrics = [metric] if isinstance(metric, str) else list(metric)
        found = each_run(records) if each else settings_of(records)
        figure = figure_of(records, metrics, checked_band(band), chosen_settings(found, settings), size)
    if file is not None:
        save_figure(figure, file)
    return figure


def checked_file(path: str | Path) -> Path:
    """Return `path` as a Path if a picture can be written there; else raise ConfigError.

    The file ending must be .png, .pdf or .svg.
    """
    file = to_path(path, "path")
    if file.suffix.lower() not in FORMATS:
        nearest = file.with_suffix(".pdf") if file.name else "curves.pdf"
        raise ConfigError(f"path = {str(path)!r}: must end in {', '.join(FORMATS)}; nearest: {nearest}")
    require_place(file, "curves.pdf")
    return file


def save_figure(figure: Figure, file: Path) -> None:
    """Write a figure in the format of the file's ending; its texts stay texts with embedded fonts, not outlines."""
    from matplotlib import rc_context

    with safe_files.replacing(file) as partial, rc_context(FONTS):
        figure.savefig(partial, format=FORMATS[file.suffix.lower()], dpi=DPI)


def chosen_settings(
    found: Sequence[Setting], chosen: Sequence[str] | Mapping[str, str] | None
) -> dict[str, tuple[str, Setting]]:
    """Return the settings to draw: for each, by its label, its name in the legend and the setting itself.

    `chosen` are labels, or names in the legend by label; None: all of `found`. Raises ConfigError for an unknown label.
    """
    known = {setting.label: setting for setting in found}
    if chosen is None:
        if len(known) == 1 and found[0].records[1:]:  # a legend that says what the line is
            return {found[0].label: (f"{len(found[0].records)} {SHARED}", found[0])}
        return {label: (label, known[label]) for label in sorted(known, key=natural_order)}
    names = chosen if isinstance(chosen, Mapping) else {label: label for label in chosen}
    own: dict[str, tuple[str, Setting]] = {}
    for label, name in names.items():
        setting = known.get(label) or _of_options(label, found)
        if setting is None:
            near = difflib.get_close_matches(label, known, n=1, cutoff=0.0)[0]
            listed = printable(f"there are: {'; '.join(known)}; nearest: {near}")
            raise ConfigError(f"settings: no setting {label!r}; {listed}")
        own[setting.label] = (name, setting)
    return own


def _of_options(label: str, found: Sequence[Setting]) -> Setting | None:
    """Return the setting whose options have the values in `label`, such as "loss.clip_eps = 0.1".

    Options may be dotted paths or their last words. None if no setting, or more than one, has these values.
    """
    wanted = [part.partition(" = ")[::2] for part in label.split(", ")]
    same = [
        setting
        for setting in found
        if all(
            any(
                f".{path.removesuffix('.part')}".endswith(f".{name.strip()}") and value_text(own) == value.strip()
                for path, own in setting.records[0].config.items()
            )
            for name, value in wanted
        )
    ]
    return same[0] if len(same) == 1 else None


def each_run(records: Sequence[Record]) -> list[Setting]:
    """Return each run as a setting with that run only; the label is its name, or its path if names repeat."""
    names = [record.name for record in records]
    labels = [
        record.name if names.count(record.name) == 1 else str(record.path or f"{record.name} #{place + 1}")
        for place, record in enumerate(records)
    ]
    return [Setting(label, [record], place) for place, (label, record) in enumerate(zip(labels, records, strict=True))]


def notes_of_plot(records: Sequence[Record]) -> list[str]:
    """Return sentences that tell the reader of a plot which runs share a line; [] if each run has a line of its own."""
    settings = settings_of(records)
    runs = len(settings[0].records)
    one = [f"{runs} runs of one setting: one line over all of them; --each draws each run."] if runs > 1 else []
    repeats = any(setting.repeats for setting in settings)
    return (one if len(settings) == 1 else []) + notes_on(settings) + (["--each draws each run."] if repeats else [])


def _refuse_with_against(metric: Any, settings: Any, each: bool, band: str) -> None:
    """Raise ConfigError if an argument of `plot` is given that has no effect together with `against`."""
    given = {
        "metric": metric is not None,
        "each": each,
        "band": band != CONFIDENCE,
        "names of settings": isinstance(settings, Mapping),
    }
    for name in (name for name, there in given.items() if there):
        raise ConfigError(f"against: draws scores, and takes no {name}; leave it out")


def colours_of(settings: Sequence[Setting]) -> dict[int, str]:
    """Return the colour of each setting, by its index `place` in the report, if only one numeric option differs.

    The colours go from dark to light with the value of that option. The result is {}, so that the caller keeps the
    usual colours, if the settings differ in anything else, or have fewer than three values.
    """
    rows = setting_differences([setting.records[0] for setting in settings])
    paths = [path for path in rows if matters(path) and path != "env"]
    values = rows[paths[0]] if len(paths) == 1 else []
    different = ordered(values)
    if len(different) < 3 or any(type(value) not in (int, float) for value in different):
        return {}
    return {
        setting.place: ordered_colour(different.index(value), len(different))
        for setting, value in zip(settings, values, strict=True)
    }


def ordered_colour(place: int, count: int) -> str:
    """Return colour number `place` of a scale of `count` colours from dark to light, as a hex string."""
    from matplotlib import colormaps, colors

    return str(colors.to_hex(colormaps["viridis"](0.9 * place / max(count - 1, 1))))


def sensitivity_figure(settings: Sequence[Setting], path: str, size: tuple[float, float] | None = None) -> Figure:
    """Return a figure of the score as a function of the option `path`, with one plot per environment.

    Each seed is a small point (if it has no score, a cross at the lower edge), the interquartile mean a large one with
    its 95 % interval. The axis of the option is logarithmic if its values are numbers that span a factor of ten or
    more, and linear below the smallest positive one if 0 is among them. Values that are no numbers are spaced evenly.
    """
    pyplot = _require_matplotlib()
    found = series_of(settings, path)
    if not found:
        raise ConfigError(f"against = {path!r}: none of the chosen settings has this option")
    envs = list(dict.fromkeys(one.env for one in found))
    size = size or (SIZE[0] * len(envs), SIZE[1])
    figure, grid = pyplot.subplots(1, len(envs), figsize=size, layout="constrained", squeeze=False)
    legend: dict[str, Any] = {}
    labels = list(dict.fromkeys(one.label for one in found))
    many = len(labels) > len(COLOURS)
    for axes, env in zip(grid[0], envs, strict=True):
        own = [one for one in found if one.env == env]
        values = ordered([point.value for one in own for point in one.points])
        numeric = all(type(value) in (int, float) for value in values)
        places = {repr(value): float(value) if numeric else place for place, value in enumerate(values)}
        _scale(axes, values, numeric, size[0] / len(envs))
        for series in own:
            place = labels.index(series.label)
            colour = ordered_colour(place, len(labels)) if many else COLOURS[place]
            shift = (place - (len(labels) - 1) / 2) * min(SHIFT, 4 * SHIFT / len(labels))
            legend.setdefault(series.label, _draw_series(axes, series, places, colour, shift))
        axes.autoscale_view(scalex=False)
        axes.set(xlabel=plain(path.removeprefix("agent.").removesuffix(".part")), ylabel=_score_label(settings, env))
        axes.set_title(plain(env) if len(envs) > 1 else "")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    _legend_below(figure, legend, size[0])
    pyplot.close(figure)  # otherwise notebooks display it twice
    return figure


SHIFT = 4.0  # horizontal distance of the points of two lines at one value, in points (1/72 inch)
MARGIN = 0.08  # of the range of values, to the left and right
TICKS = 12  # number of values up to which each has a tick with its label


def _scale(axes: Any, values: Sequence[Any], numeric: bool, width: float) -> None:
    """Set scale, limits and ticks of the horizontal axis for the values of an option; `width` is in inches."""
    positive = [value for value in values if numeric and value > 0]
    if positive and values[0] >= 0 and positive[-1] >= 10 * positive[0]:
        scale = {"value": "log"} if values[0] > 0 else {"value": "symlog", "linthresh": positive[0], "linscale": 0.5}
        axes.set_xscale(**scale)
    along, places = axes.xaxis.get_transform(), list(map(float, values)) if numeric else list(range(len(values)))
    positions = np.atleast_1d(along.transform(np.asarray(places, float)))
    span = float(np.ptp(positions)) or 1.0
    edges = np.array([positions[0] - MARGIN * span, positions[-1] + MARGIN * span])
    axes.set_xlim(*along.inverted().transform(edges))
    if len(values) <= TICKS:
        texts = list(map(value_text, values))
        room = np.diff(positions) / span * width * 0.8 * LETTERS
        tight = any((len(a) + len(b)) / 2 + 1 > gap for a, b, gap in zip(texts, texts[1:], room, strict=False))
        turned: dict[str, Any] = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if tight else {}
        axes.set_xticks(places, list(map(plain, texts)), **turned)
        axes.set_xticks([], minor=True)


def _draw_series(axes: Any, series: Series, places: Mapping[str, float], colour: str, shift: float) -> Any:
    """Draw the scores of one series and return the line through its IQMs, for the legend.

    `places` are the horizontal positions by value; all points are moved to the right by `shift` points (1/72 inch).
    """
    from matplotlib.transforms import ScaledTranslation

    moved = axes.transData + ScaledTranslation(shift / 72.0, 0.0, axes.figure.dpi_scale_trans)
    edge = axes.get_xaxis_transform() + ScaledTranslation(shift / 72.0, 0.0, axes.figure.dpi_scale_trans)
    for point in series.points:
        x = places[repr(point.value)]
        known = [score for score in point.scores if math.isfinite(score)]
        dots = {"linestyle": "none", "color": colour, "alpha": 0.5, "markersize": 3.5}
        axes.plot([x] * len(known), known, marker="o", markeredgewidth=0.0, transform=moved, **dots)
        if len(known) < len(point.scores):
            axes.plot([x], [0.02], marker="x", transform=edge, **dots | {"alpha": 1.0, "markersize": 6})
        axes.update_datalim([(x, score) for score in known])  # which a line with a transform of its own leaves out
        if math.isfinite(point.low):
            axes.plot([x, x], [point.low, point.high], color=colour, linewidth=1.5, transform=moved)
    shown = [point for point in series.points if math.isfinite(point.iqm)]
    look = {"color": colour, "marker": "o", "markersize": 6, "linewidth": 1.2, "transform": moved}
    (line,) = axes.plot([places[repr(one.value)] for one in shown], [one.iqm for one in shown], **look)
    return line


def _score_label(settings: Sequence[Setting], env: str) -> str:
    """Return the label of the score axis: which return the scores are, and over how many episodes it was evaluated."""
    records = [record for setting in settings for record in setting.records if record.env == env]
    kinds = [kind for kind in dict.fromkeys(record.measure for record in records) if kind]
    counts = sorted({int(one.result("episodes")) for one in records if math.isfinite(one.result("episodes"))})
    if kinds == [FINAL]:
        episodes = (
            f"{counts[0]} episodes" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} episodes" if counts else ""
        )
        return f"return, {FINAL}{f' of {episodes}' if episodes else ''}"
    named = {TRAINING: "last return in training episodes", DURING: "return, last evaluation during training"}
    return " or ".join(named.get(kind, kind) for kind in kinds) or "return"


def figure_of(
    records: Sequence[Record],
    metrics: Sequence[str],
    band: str,
    chosen: Mapping[str, tuple[str, Setting]],
    size: tuple[float, float] | None = None,
) -> Figure:
    """Return a Matplotlib figure with a row of plots for each metric and a column for each environment of `chosen`.

    `chosen` has the settings to draw by label, each with its name in the legend. `band` is "confidence" or "range", as
    in `curves.mean_curve`. Raises ConfigError for a metric that no run has logged.
    """
    envs = by_env([setting for _, setting in chosen.values()])
    drawn = {(metric, env): lines_of(own, metric, POINTS, band) for metric in metrics for env, own in envs.items()}
    for metric in metrics:
        if not any(drawn[metric, env] for env in envs):
            names = sorted({name for record in records for name in record.columns if record.has(name)})
            listed = printable(", ".join(names)) or "none yet"
            raise ConfigError(f"metric = {metric!r}: no run has logged it; there are: {listed}")
    shown = [env for env in envs if any(drawn[metric, env] for metric in metrics)]
    pyplot = _require_matplotlib()
    size = size or (SIZE[0] * len(shown), SIZE[1] * len(metrics))
    figure, grid = pyplot.subplots(len(metrics), len(shown), figsize=size, layout="constrained", squeeze=False)
    legend: dict[str, Any] = {}
    colours = colours_of([setting for _, setting in chosen.values()])
    places = {setting.label: setting.place for _, setting in chosen.values()}
    order = list(chosen)
    for row, metric in zip(grid, metrics, strict=True):
        for axes, env in zip(row, shown, strict=True):
            for line in drawn[metric, env]:
                label = line.name.removesuffix(f": {metric}")
                if places[label] in colours:
                    line = line._replace(colour=colours[places[label]], dash="")
                legend.setdefault(label, _draw(axes, line, chosen[label][0]))
            axes.set_visible(bool(drawn[metric, env]))
            axes.set(xlabel="environment steps", ylabel=plain(AXES.get(metric, metric.replace("_", " "))))
            axes.set_title(plain(env) if len(shown) > 1 else "")
            axes.xaxis.set_major_formatter(lambda steps, _: short_count(steps))
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
    _legend_below(figure, {chosen[label][0]: legend[label] for label in order if label in legend}, size[0])
    pyplot.close(figure)  # otherwise notebooks display it twice
    return figure


# Labels of the vertical axis: which return it is
AXES = {EVALUATED: "return in evaluation", RETURN: "return in training episodes"}


def _legend_below(figure: Figure, legend: Mapping[str, Any], width: float) -> None:
    """Add a legend below the plots, where it cannot cover a curve.

    There is none for a single line, unless that is the mean of several runs. `width` is the width of the figure in
    inches.
    """
    if len(legend) > 1 or any(name.endswith(SHARED) for name in legend):
        columns = int(width * LETTERS / (max(map(len, legend)) + LEGEND_GAP))
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(max(columns, 1), len(legend))}
        figure.legend(legend.values(), map(plain, legend), frameon=False, fontsize=9, **place)


def plain(text: str) -> str:
    """Return a text for Matplotlib, which would read what is between two dollar signs as a formula."""
    return text.replace("$", r"\$")


def _draw(axes: Any, line: Line, name: str) -> Any:
    """Draw a curve with its band, and return the Matplotlib line for the legend, where it is called `name`."""
    curve = line.curve
    style = (0, [float(x) for x in line.dash.split()]) if line.dash else "solid"
    dot = "o" if len(curve.steps) == 1 else None
    (drawn,) = axes.plot(curve.steps, curve.value, color=line.colour, linestyle=style, marker=dot, label=name)
    if (curve.low < curve.high).any():
        axes.fill_between(curve.steps, curve.low, curve.high, color=line.colour, alpha=0.2, linewidth=0)
    return drawn


def _require_matplotlib() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('ppax.plot needs matplotlib: pip install "ppax[plot]"') from error
    return pyplot
