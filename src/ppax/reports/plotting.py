"""`ppax.plot`: learning curves of runs as a Matplotlib figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ppax.reports.curves import CONFIDENCE, checked_band
from ppax.reports.figures import figure_of
from ppax.reports.report import RunLike, records_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot(runs: RunLike | Sequence[RunLike], metric: str = "episode_return", band: str = CONFIDENCE) -> Figure:
    """Matplotlib figure of a metric over environment steps, with the curves of `report`, environment by environment.

    `runs` and `band` as in `report`. Save it with `savefig`; notebooks display it. Raises ConfigError for a metric that
    no run has logged, ImportError without matplotlib.
    """
    return figure_of(records_of(runs), metric, checked_band(band))
