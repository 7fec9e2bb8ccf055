"""Differences of the best setting from others: IQM of final returns, and probability of improvement, with intervals."""

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
    """Difference of the best setting of its kind on an environment from another one, or of two methods."""

    env: str
    label: str  # of the better setting, and of the other
    other: str
    seeds: tuple[int, int]  # of the better setting, and of the other
    difference: Difference
    at: str = ""  # of two methods: the other options, in which they are equal
    paired: bool = False  # both have the same seeds, and intervals draw them in pairs


def differences_of(settings: Sequence[Setting]) -> list[Against]:
    """Return the differences of the best setting of each environment and kind of score from the next best ones.

    Many settings of one seed each, as of a search, have no intervals, and are left out.
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
    """Return a sentence of warning if a difference rests on too few seeds, else []."""
    return too_few(min((count for one in differences for count in one.seeds), default=FEW))


def too_few(fewest: int) -> list[str]:
    """Return a sentence of warning if the setting of the fewest seeds has too few of them, else []."""
    if fewest >= FEW:
        return []
    count = "one seed" if fewest == 1 else f"{fewest} seeds"
    return [
        f"A setting has only {count}: other seeds may reverse the order, and an interval of fewer than {FEW} seeds is "
        "too narrow."
    ]


def contradictions(differences: Sequence[Against]) -> list[str]:
    """Return a sentence if the interval of a difference contains 0 and that of its probability excludes 0.5, else [].

    So it is where most seeds of two settings reach the same ceiling and some fail.
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
    """Return sentences on differences between methods: how many there are, and how their seeds were drawn."""
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
    """Return the table of differences between two methods as columns of texts, each with its head first."""
    columns = difference_columns(differences)[:2]
    seeds = [f"{one.seeds[0]} pairs" if one.paired else f"{one.seeds[0]}, {one.seeds[1]}" for one in differences]
    return [*columns, ["seeds", *seeds], ["at", *(one.at for one in differences)]]


def difference_columns(differences: Sequence[Against]) -> list[list[str]]:
    """Return the table of differences as columns of texts, each with its head first."""
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
