"""`ppax.plot`: learning curves of runs as a Matplotlib figure, for notebooks and papers."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ppax.core.options import check_limits
from ppax.core.types import ConfigError, printable
from ppax.reports.charts import Line
from ppax.reports.curves import CONFIDENCE, checked_band
from ppax.reports.formatting import short_count
from ppax.reports.page import POINTS, lines_of
from ppax.reports.report import RunLike, records_of
from ppax.reports.settings import Setting, by_env, settings_of
from ppax.run.records import RETURN, REWARD, Record
from ppax.storage import safe_files
from ppax.storage.paths import require_place, to_path

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIZE = (7.0, 4.0)  # width and height of each axes with its labels, in inches
DPI = 200  # of a PNG
FORMATS = {".png": "png", ".pdf": "pdf", ".svg": "svg"}  # by the ending of a file
# Letters as fonts, not as drawings (Type 3), which publishers refuse, and in SVG as text that can be edited
FONTS = {"pdf.fonttype": 42, "svg.fonttype": "none"}
LEGEND_GAP, LETTERS = 5, 13.0  # letters that a line's sample takes in the legend, and letters in an inch of it


def plot(
    runs: RunLike | Sequence[RunLike],
    metric: str | Sequence[str] | None = None,
    band: str = CONFIDENCE,
    *,
    settings: Sequence[str] | Mapping[str, str] | None = None,
    size: tuple[float, float] | None = None,
    path: str | Path | None = None,
) -> Figure:
    """Return a Matplotlib figure of metrics over environment steps: a row for each metric, a column per environment.

    It has the curves of `ppax.report`; `runs` and `band` are as there. `metric` None is episode_return, or reward_mean
    where no episode has ended. `settings` are the labels of those to draw, as `ppax.compare` prints them, or a dict
    from labels to their names in the legend, which stands below the axes; None: all. `size` is width and height of the
    whole figure in inches. With `path` the figure is also written, in the format of the ending: .png, .pdf or .svg.
    Notebooks display it. Raises ConfigError for a metric that no run has logged, an unknown setting or ending,
    ImportError without matplotlib.
    """
    for value in size or ():
        check_limits("size", value, {"above": 0.0, "high": 100.0})
    file = None if path is None else checked_file(path)
    records = records_of(runs)
    if metric is None:
        metric = next((name for name in (RETURN, REWARD) if any(one.has(name) for one in records)), RETURN)
    metrics = [metric] if isinstance(metric, str) else list(metric)
    figure = figure_of(records, metrics, checked_band(band), chosen_settings(settings_of(records), settings), size)
    if file is not None:
        save(figure, file)
    return figure


def checked_file(path: str | Path) -> Path:
    """Return the path of a picture; ConfigError for an ending that is no format, or a place that cannot be written."""
    file = to_path(path, "path")
    if file.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"path = {str(path)!r}: must end in {', '.join(FORMATS)}; nearest: {file.with_suffix('.pdf')}"
        )
    require_place(file, "curves.pdf")
    return file


def save(figure: Figure, file: Path) -> None:
    """Write a figure in the format of the file's ending, with letters as fonts."""
    from matplotlib import rc_context

    with safe_files.replacing(file) as partial, rc_context(FONTS):
        figure.savefig(partial, format=FORMATS[file.suffix.lower()], dpi=DPI)


def chosen_settings(
    found: Sequence[Setting], chosen: Sequence[str] | Mapping[str, str] | None
) -> dict[str, tuple[str, Setting]]:
    """Return the settings to draw by label, each with its name in the legend; ConfigError for an unknown label."""
    known = {setting.label: setting for setting in found}
    if chosen is None:
        return {label: (label, setting) for label, setting in known.items()}
    names = chosen if isinstance(chosen, Mapping) else {label: label for label in chosen}
    for label in names:
        if label not in known:
            near = difflib.get_close_matches(label, known, n=1, cutoff=0.0)[0]
            listed = printable(f"there are: {'; '.join(known)}; nearest: {near}")
            raise ConfigError(f"settings: no setting {label!r}; {listed}")
    return {label: (name, known[label]) for label, name in names.items()}


def figure_of(
    records: Sequence[Record],
    metrics: Sequence[str],
    band: str,
    chosen: Mapping[str, tuple[str, Setting]],
    size: tuple[float, float] | None = None,
) -> Figure:
    """Return a Matplotlib figure with a row for each metric and a column for each environment of `chosen`.

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
    for row, metric in zip(grid, metrics, strict=True):
        for axes, env in zip(row, shown, strict=True):
            for line in drawn[metric, env]:
                name = chosen[line.name.removesuffix(f": {metric}")][0]
                legend.setdefault(name, _draw(axes, line, name))
            axes.set_visible(bool(drawn[metric, env]))
            axes.set(xlabel="environment steps", ylabel=metric.replace("_", " "))
            axes.set_title(env if len(shown) > 1 else "")
            axes.xaxis.set_major_formatter(lambda steps, _: short_count(steps))
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
    if len(legend) > 1:  # below the axes: it never covers a curve
        columns = int(size[0] * LETTERS / (max(map(len, legend)) + LEGEND_GAP))
        place = {"loc": "outside lower center", "ncols": min(max(columns, 1), len(legend))}
        figure.legend(legend.values(), legend.keys(), frameon=False, fontsize=9, **place)
    pyplot.close(figure)  # otherwise notebooks display it twice
    return figure


def _draw(axes: Any, line: Line, name: str) -> Any:
    """Draw a curve with its band and return the line, for the legend."""
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
