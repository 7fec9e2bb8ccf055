"""`ppax.plot`: learning curves of runs as a Matplotlib figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ppax.core.types import ConfigError
from ppax.reports.curves import CONFIDENCE, checked_band
from ppax.reports.formatting import short_count
from ppax.reports.page import POINTS, lines_of
from ppax.reports.report import RunLike, records_of
from ppax.reports.settings import by_env, settings_of
from ppax.run.records import RETURN, REWARD, Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(runs: RunLike | Sequence[RunLike], metric: str | None = None, band: str = CONFIDENCE) -> Figure:
    """Return a Matplotlib figure of a metric over environment steps, with axes for each environment.

    It has the curves of `ppax.report`; `runs` and `band` are as there. `metric` None is episode_return, or reward_mean
    where no episode has ended. Save it with `savefig`; notebooks display it. Raises ConfigError for a metric that no
    run has logged, ImportError without matplotlib.
    """
    records = records_of(runs)
    if metric is None:
        metric = next((name for name in (RETURN, REWARD) if any(one.has(name) for one in records)), RETURN)
    return figure_of(records, metric, checked_band(band))


def figure_of(records: Sequence[Record], metric: str, band: str) -> Figure:
    """Return a Matplotlib figure of a metric over environment steps, with axes for each environment.

    `band` is "confidence" or "range", as in `curves.mean_curve`. Raises ConfigError for a metric that no run has
    logged.
    """
    drawn = {env: lines_of(own, metric, POINTS, band) for env, own in by_env(settings_of(records)).items()}
    drawn = {env: lines for env, lines in drawn.items() if lines}
    if not drawn:
        names = sorted({name for record in records for name in record.columns if record.has(name)})
        raise ConfigError(f"metric = {metric!r}: no run has logged it; there are: {', '.join(names) or 'none yet'}")
    pyplot = _require_matplotlib()
    figure, grid = pyplot.subplots(1, len(drawn), figsize=(7 * len(drawn), 4), layout="constrained", squeeze=False)
    for axes, (env, lines) in zip(grid[0], drawn.items(), strict=True):
        for line in lines:
            curve, label = line.curve, line.name.removesuffix(f": {metric}")
            style = (0, [float(x) for x in line.dash.split()]) if line.dash else "solid"
            axes.plot(curve.steps, curve.value, color=line.colour, linestyle=style, label=label)
            if (curve.low < curve.high).any():
                axes.fill_between(curve.steps, curve.low, curve.high, color=line.colour, alpha=0.2, linewidth=0)
        axes.set(xlabel="environment steps", ylabel=metric.replace("_", " "))
        axes.set_title(env if len(drawn) > 1 else "")
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
