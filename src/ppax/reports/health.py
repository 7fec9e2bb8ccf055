"""Metrics that show whether training is sound: their healthy range, and a sentence that says what to look for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ppax.reports.charts import Band
from ppax.reports.doctor import RATIO
from ppax.reports.formatting import number_text, value_text
from ppax.run.records import Record

ENOUGH = 0.95  # share of log rows in the healthy range at which a run counts as healthy


class Sign(NamedTuple):
    """Metric that shows whether training is sound, with its healthy range and texts for its chart in the report."""

    metric: str
    title: str
    unit: str
    sentence: str
    shown: tuple[float, ...] = ()  # values that are always on the axis
    healthy: tuple[float, float] | None = None
    limit: str = ""  # option whose value is drawn as a line
    same_policy: bool = False  # the range holds where the policy that acts is the one that learns: not with overlap


SIGNS = (
    Sign(
        "explained_variance",
        "Explained variance",
        "of the critic, 1 is perfect",
        "How well the critic predicts returns. It should rise towards 1. At 0 it is no better than a constant, "
        "below 0 worse.",
        (0.0, 1.0),
        (0.0, 1.0),
    ),
    Sign(
        "entropy",
        "Entropy",
        "of the policy, nats",
        "Randomness of actions. It should fall slowly: a sudden fall ends exploration, no fall at all means that "
        "nothing is learned.",
    ),
    Sign(
        "approx_kl",
        "KL divergence",
        "from the old to the new policy, nats",
        "Change of the policy in one update, usually 0.001 to 0.02. Above 0.03, lower the learning rate or the number "
        "of epochs.",
        (0.0, 0.02),
        (0.0, 0.03),
    ),
    Sign(
        "clip_fraction",
        "Clip fraction",
        "of samples",
        "Samples whose ratio left the clip range. Above 0.3, updates are too large; always 0, they may be too small.",
        (0.0, 0.2),
        (0.0, 0.3),
    ),
    Sign(
        "ratio_first_max_dev",
        "First ratio",
        "distance from 1 before the first gradient step",
        "0 up to rounding. More means that acting and learning compute different probabilities: a defect. With overlap "
        "the policy that acts is one update old, and they differ by design.",
        (0.0, 1e-3),
        (0.0, 1e-3),
        same_policy=True,
    ),
    Sign(
        "grad_norm",
        "Gradient norm",
        "L2, before clipping",
        "Above max_grad_norm (dashed) gradients are scaled down to it. Now and then is normal; growing peaks announce "
        "divergence.",
        (0.0,),
        limit="agent.max_grad_norm",
    ),
)


def band_of(sign: Sign, records: Sequence[Record]) -> Band:
    """Return what the chart of a sign (a health metric) shows besides curves: a limit and the healthy range.

    The limit is left out if it differs between the runs, the healthy range if it applies to none of them.
    """
    limits = {value_text(record.config.get(sign.limit)) for record in records}
    limit: Any = records[0].config.get(sign.limit)
    drawn = len(limits) == 1 and type(limit) in (int, float)
    ranges = [found for record in _judged(sign, records) if (found := _range(sign, record)) is not None]
    return Band(sign.shown, max(ranges, default=None), float(limit) if drawn else None)


def _judged(sign: Sign, records: Sequence[Record]) -> list[Record]:
    """Return the records of those runs to which the healthy range of the metric `sign` applies."""
    return [one for one in records if not (sign.same_policy and one.config.get("overlap"))]


def _range(sign: Sign, record: Record) -> tuple[float, float] | None:
    """Return the healthy range of the metric `sign` in a run; None if it has none.

    With the products of bfloat16 acting and learning may differ by more than with those of float32.
    """
    if not sign.same_policy:
        return sign.healthy
    return 0.0, RATIO.get(str(record.config.get("agent.compute_dtype")), RATIO["float32"])


def share_in_range(sign: Sign, records: Sequence[Record]) -> float | None:
    """Return the share of log rows, over all runs, in which the metric of `sign` is in its healthy range.

    None if the metric has no healthy range, or no row has the metric.
    """
    inside = [np.zeros(0, bool)]
    for record in _judged(sign, records):
        values = record.columns.get(sign.metric, np.zeros(0))
        values = values[np.isfinite(values)]
        low, high = _range(sign, record) or (-np.inf, np.inf)
        inside.append((low <= values) & (values <= high))
    known = np.concatenate(inside)
    return None if sign.healthy is None or not len(known) else float(known.mean())


def verdict(share: float) -> str:
    """Return a short text for the share of log rows in the healthy range: "in range", or "12 % outside"."""
    if share >= ENOUGH:
        return "in range"
    return f"{number_text(round(100 * (1 - share)))} % outside"
