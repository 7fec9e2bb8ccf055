"""Differences in score between two settings: in IQM, and the probability of improvement, with bootstrap intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ppax.reports.formatting import UNKNOWN, number_text
from ppax.reports.settings import Setting, by_env, by_kind
from ppax.reports.statistics import Difference, difference_of

PAIRS = 8  # maximum number of settings with which the best one is compared
FEW = 5  # seeds of a setting below which an interval says little
DIFFERENCE = "difference of the IQM [95 %]"
BEST = "best setting of each"  # in place of the other options in which two methods are equal


class Against(NamedTuple):
    """Difference in score of one setting from another: of the best setting from a worse one, or between two methods."""

    env: str
    label: str  # of the better setting, and of the other
    other: str
    seeds: tuple[int, int]  # of the better setting, and of the other
    difference: Difference
    at: str = ""  # of two methods: the other options, in which they are equal
    paired: bool = False  # both have the same seeds, and intervals draw them in pairs


def differences_of(settings: Sequence[Setting]) -> list[Against]:
    """Return, for each environment, the differences in score of its best setting from each of the 8 (PAIRS) next best.

    A setting is a group of runs that differ by their seed only. Settings whose scores cannot be compared, as their
    `kind` differs, are treated apart. Of more than two comparable settings with one seed each, as in a hyperparameter
    search, no differences are returned: from one seed no interval can be computed.
    """
    found = []
    for env, own in by_env(settings).items():
        for same in by_kind(own).values():
            if len(same) > 2 and not any(setting.records[1:] for setting in same):
                continue
            best, scores = same[0], [one.final_return for one in same[0].records]
            for other in same[1 : 1 + PAIRS]:
                against = [one.final_return for one in other.records]
                seeds = (len(scores), len(against))
                difference = difference_of(scores, against)
                if math.isfinite(difference.iqm) or min(seeds) > 1:
                    found.append(Against(env, best.label, other.label, seeds, difference))
    return found


def few_seeds(differences: Sequence[Against]) -> list[str]:
    """Return a list with one warning sentence if a setting in `differences` has too few seeds; else an empty list."""
    return too_few(min((count for one in differences for count in one.seeds), default=FEW))


def too_few(fewest: int) -> list[str]:
    """Return a list with one warning if `fewest`, the smallest number of seeds of a setting, is too small; else []."""
    if fewest >= FEW:
        return []
    count = "one seed" if fewest == 1 else f"{fewest} seeds"
    return [
        f"A setting has only {count}: other seeds may reverse the order, and an interval of fewer than {FEW} seeds is "
        "too narrow."
    ]


def contradictions(differences: Sequence[Against]) -> list[str]:
    """Return a list with one sentence if the two intervals of a difference seem to contradict each other; else [].

    They do if the interval of the difference in IQM contains 0, while the interval of the probability of improvement
    excludes 0.5. This happens where most seeds of both settings reach the same highest score and some seeds fail.
    """
    found = [
        one
        for one, d in ((one, one.difference) for one in differences)
        if d.low <= 0.0 <= d.high and not d.better_low <= 0.5 <= d.better_high
    ]
    if not found:
        return []
    several = f" ({len(found)} of {len(differences)} rows)" if len(differences) > 1 else ""
    return [
        f"The interval of a difference contains 0 while that of P(a seed is better) excludes 0.5{several}: more seeds "
        "are better, by an amount that these seeds do not determine. The difference of the IQM decides whether one "
        "counts as better; mean and min show seeds that failed."
    ]


def method_notes(differences: Sequence[Against]) -> list[str]:
    """Return sentences about differences between methods: their number, and how the bootstrap has resampled seeds.

    Seeds are resampled in pairs where both methods have the same seeds, otherwise independently. Without differences,
    the sentence says that there is nothing to compare.
    """
    if not differences:
        return ["The methods have no settings that are equal in all other options, and no comparable best ones."]
    count, pairs = len(differences), sum(one.paired for one in differences)
    drawn = "in pairs (both have the same seeds)" if pairs == count else "apart (their seeds differ)"
    if 0 < pairs < count:
        drawn = f"in pairs where both have the same seeds ({pairs} rows), else apart"
    text = f"{count} comparisons" if count > 1 else "One comparison"
    notes = [f"{text}, not corrected for their number. Intervals draw seeds {drawn}."]
    if any(one.at.startswith(BEST) for one in differences):
        notes += ["The best setting of each method was chosen by these scores: measure both again on other seeds."]
    return notes


def method_columns(differences: Sequence[Against]) -> list[list[str]]:
    """Return a table of differences between two methods as columns of texts; the first text of each is its heading."""
    columns = difference_columns(differences)[:2]
    seeds = [f"{one.seeds[0]} pairs" if one.paired else f"{one.seeds[0]}, {one.seeds[1]}" for one in differences]
    return [*columns, ["seeds", *seeds], ["at", *(one.at for one in differences)]]


def difference_columns(differences: Sequence[Against]) -> list[list[str]]:
    """Return a table of the differences between settings as columns of texts; the first text of each is its heading."""
    own = [one.difference for one in differences]
    better = [
        _with_interval(x.better, x.better_low, x.better_high) if min(one.seeds) > 1 else UNKNOWN
        for x, one in zip(own, differences, strict=True)
    ]
    return [
        [DIFFERENCE, *(_with_interval(x.iqm, x.low, x.high, "+") for x in own)],
        ["P(a seed is better) [95 %]", *better],
        ["seeds", *(f"{one.seeds[0]}, {one.seeds[1]}" for one in differences)],
        ["setting", *(one.label for one in differences)],
        ["than", *(one.other for one in differences)],
    ]


def _with_interval(value: float, low: float, high: float, sign: str = "") -> str:
    text = f"{sign if value > 0.0 else ''}{number_text(value)}"
    return f"{text} [{number_text(low)}, {number_text(high)}]" if math.isfinite(low) else text
