"""Matplotlib figure of learning curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ppax.reports.cards import POINTS, lines_of
from ppax.reports.groups import groups_of
from ppax.reports.records import Record
from ppax.reports.words import short_count
from ppax.types import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def figure_of(records: Sequence[Record], metric: str) -> Figure:
    """Matplotlib figure of a metric over environment steps; ConfigError for a metric that no run has logged."""
    lines = lines_of(groups_of(records), metric, POINTS)
    if not lines:
        names = sorted({name for record in records for name in record.columns if record.has(name)})
        raise ConfigError(f"metric = {metric!r}: no run has logged it; there are: {', '.join(names) or 'none yet'}")
    pyplot = _require_matplotlib()
    figure, axes = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for line in lines:
        curve = line.curve
        axes.plot(curve.steps, curve.mean, color=line.colour, label=line.name.removesuffix(f": {metric}"))
        if (curve.low < curve.high).any():
            axes.fill_between(curve.steps, curve.low, curve.high, color=line.colour, alpha=0.2, linewidth=0)
    axes.set(xlabel="environment steps", ylabel=metric.replace("_", " "))
    axes.xaxis.set_major_formatter(lambda steps, _: short_count(steps))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    pyplot.close(figure)  # otherwise notebooks display it twice
    return figure


def _require_matplotlib() -> Any:
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError('ppax.plot needs matplotlib: pip install "ppax[plot]"') from error
    return pyplot
