"""Searches, which decide over the members (runs) of a sweep while they train, and their table `[search]`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from ppax import config
from ppax.config import SEARCH, Choices
from ppax.core import imports
from ppax.core.imports import Outside
from ppax.core.options import Config, Option, flatten
from ppax.core.parts import ADDRESS, Interval
from ppax.core.protocols import Copy, Search, Standings, Stop
from ppax.core.types import ConfigError, part, static

DIGITS = 6  # significant digits of a perturbed number, as those of a drawn one
SAMPLERS = ("tpe", "random", "gp", "qmc")  # not cmaes: Optuna unpickles its state from the database
PRUNERS = ("none", "median", "percentile", "halving", "hyperband")


@part
class Grid:
    """Search without decisions: every member (run) of the sweep trains to the end."""

    perturbs: ClassVar[bool] = False

    def check(self, members: int, total: int) -> None:
        """Accept every sweep: do nothing."""

    def next_after(self, iteration: int, total: int) -> int:
        """Return `total`, the last iteration, because this search makes no decisions before."""
        return total

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return [], as this search makes no decisions."""
        return []


@part
class Halving:
    """Successive halving: at each rung the best 1/eta of the sweep's members (runs) go on, the others stop.

    Rungs are iterations, each `eta` times as far as the one before. Jamieson & Talwalkar (2016), "Non-stochastic Best
    Arm Identification", arXiv:1502.07943.
    """

    perturbs: ClassVar[bool] = False

    eta: int = static("reduction factor: the best 1/eta of the members go on at each rung", default=3, low=2)
    rungs: int = static("number of rungs; the last one is at 1/eta of the iterations", default=3, low=1)

    def check(self, members: int, total: int) -> None:
        """Raise ConfigError if `members` runs of `total` iterations are too few for the numbers `rungs` and `eta`."""
        if total <= 1:
            raise ConfigError(
                f"search.rungs = {self.rungs}: {total} iterations are too few for a rung; raise total_steps"
            )
        fit = len(set(self._places(total)))
        if fit < self.rungs:
            raise ConfigError(
                f"search.rungs = {self.rungs}: {total} iterations have no {self.rungs} rungs with search.eta = "
                f"{self.eta}; nearest valid value: {fit}"
            )
        if members < self.eta:
            raise ConfigError(f"search.eta = {self.eta}: a sweep of {members} members must have at least {self.eta}")

    def next_after(self, iteration: int, total: int) -> int:
        """Return the iteration of the first rung (decision) after `iteration`; `total` if there is none."""
        return next((rung for rung in self._places(total) if rung > iteration), total)

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return a stop for each member (run) that trains, except the best: after rung k, n / eta^k members go on.

        Here n is the number of members of the whole sweep; at least one member goes on.
        """
        rung = self._places(standings.total).index(standings.iteration) + 1
        kept, order = max(1, standings.members // self.eta**rung), ranked(standings.scores)
        at = f"stopped by halving at rung {rung} of {self.rungs} (iteration {standings.iteration})"
        return [
            Stop(number, f"{at}: {score_text(standings.scores[number])}, place {place} of {len(order)}; {kept} go on")
            for place, number in enumerate(order, 1)
            if place > kept
        ]

    def _places(self, total: int) -> list[int]:
        """Return the iterations of the rungs (decisions), rounded up; the last one is at 1/eta of `total`."""
        return [-(-total // self.eta**power) for power in range(self.rungs, 0, -1)]


@part
class PBT:
    """Population-based training: the worst members take over the learner of a good one and perturb its numbers.

    The members (runs) in one compiled program are a population. A learner is weights, optimiser state and statistics; a
    member keeps its environments and random key. The members to replace and to copy are chosen by truncation selection
    ("exploit"). Each swept number of a copy is then multiplied by a factor or drawn anew ("explore", section 4.1.1).
    Random choices depend on the seed, the iteration and the member alone. Jaderberg et al. (2017), "Population Based
    Training of Neural Networks", arXiv:1711.09846.
    """

    perturbs: ClassVar[bool] = True

    interval: Interval | None = static(
        'iterations between two decisions, or "50k steps"; none: a twentieth of the training',
        default=None,
        low=1,
        high=2**31 - 1,
        interval=True,
    )
    fraction: float = static(
        "fraction of the members that are replaced (the worst), equal to the fraction that is copied (the best)",
        default=0.2,
        above=0.0,
        high=0.5,
    )
    factors: tuple[float, ...] = static(
        "factors of a perturbation, one of which multiplies each swept number", default=(0.8, 1.2)
    )
    resample: float = static(
        "probability that a swept number is drawn anew in the place of a perturbation", default=0.25, low=0.0, high=1.0
    )
    seed: int = static("random seed of the choice of copied members and of perturbations", default=0, low=0)

    def check(self, members: int, total: int) -> None:
        """Raise ConfigError for fewer than two members, invalid factors, or too long an interval of decisions.

        `members` is the number of members (runs) in the smallest program, `total` the iterations of the training. There
        must be at least one factor, all must be above 0, and the interval must be below `total`.
        """
        if members < 2:
            raise ConfigError(f"search.part = 'pbt': a population of {members} has nothing to copy; nearest valid: 2")
        if not self.factors or not all(factor > 0.0 for factor in self.factors):
            raise ConfigError(f"search.factors = {list(self.factors)}: must be at least one number above 0")
        if self.interval is not None and self.interval >= total:
            raise ConfigError(
                f"search.interval = {self.interval}: must be below the {total} iterations; nearest valid value: "
                f"{max(1, total - 1)}"
            )

    def next_after(self, iteration: int, total: int) -> int:
        """Return the iteration of the first decision after `iteration`; it may be beyond `total`, the last iteration.

        Decisions are made at multiples of the search's interval.
        """
        every = self.interval or max(1, total // 20)
        return iteration - iteration % every + every

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return a copy of one of the best members (runs) for each of the worst; [] if all of the best lack a score."""
        order = ranked(standings.scores)
        count = min(max(1, round(self.fraction * len(order))), len(order) // 2)
        best = [number for number in order[:count] if not math.isnan(standings.scores[number])]
        if not best:
            return []
        return [self._copy(standings, number, best) for number in order[len(order) - count :]]

    def _copy(self, standings: Standings, number: int, best: list[int]) -> Copy:
        generator = np.random.default_rng([self.seed, standings.iteration, number])
        source = best[int(generator.integers(len(best)))]
        values = {
            path: self._explored(standings, path, value, generator) for path, value in standings.values[source].items()
        }
        scores = f"{score_text(standings.scores[number])} is among the worst; {score_text(standings.scores[source])} of"
        return Copy(number, source, values, f"{scores} member {source} is among the best")

    def _explored(self, standings: Standings, path: str, value: float, generator: np.random.Generator) -> float:
        """Return a new value, within bounds, for the swept number at `path`: drawn anew, or `value` times a factor.

        `value` is the number in the member that is copied.
        """
        swept = standings.swept[path]
        low, high = swept_bounds(swept, standings.limits.get(path, {}))
        if generator.random() < self.resample:
            new = swept[int(generator.integers(len(swept)))] if isinstance(swept, tuple) else swept.draw(generator)
        else:
            new = float(f"{value * self.factors[int(generator.integers(len(self.factors)))]:.{DIGITS}g}")
        return float(min(max(new, low), high))


def ranked(scores: Mapping[int, float]) -> list[int]:
    """Return the numbers of members (runs of a sweep), highest score first.

    NaN is the worst score; of members with equal scores the one with the smaller number comes first.
    """
    return sorted(scores, key=lambda number: (-_known(scores[number]), number))


def score_text(score: float) -> str:
    """Return a score in words: "score 12.5", or "no score" for NaN."""
    return "no score" if math.isnan(score) else f"score {score:.6g}"


def _known(score: float) -> float:
    return -math.inf if math.isnan(score) else score


def swept_bounds(swept: Any, limits: Mapping[str, float]) -> tuple[float, float]:
    """Return the smallest and largest value that a swept number may have; infinities where there is no bound.

    The value must lie within the list or distribution `swept` of its values, and within `limits`, those of the option.
    """
    own = swept if isinstance(swept, tuple) else getattr(swept, "values", None)
    low, high = (min(own), max(own)) if own else (getattr(swept, "low", -math.inf), getattr(swept, "high", math.inf))
    low = max(low, limits.get("low", -math.inf), math.nextafter(limits.get("above", -math.inf), math.inf))
    return low, min(high, limits.get("high", math.inf))


@part
class Optuna:
    """Study of Optuna: a sampler proposes settings from the scores of earlier ones, some at a time, trained together.

    A trial is a setting (a combination of swept values) with all of its seeds; the trial's value is the interquartile
    mean of their scores. The sampler draws from the distributions of the sweep; lists are categories. Workers with the
    same `storage` and `study` share trials. The training is in `sweeps/studies`. Akiba et al. (2019), "Optuna: A
    Next-generation Hyperparameter Optimization Framework", arXiv:1907.10902.
    """

    perturbs: ClassVar[bool] = False

    trials: int = static("trials of the study, those of all its workers together", default=64, low=1)
    batch: int = static("trials that are proposed at a time, and train together", default=8, low=1)
    sampler: str = static("sampler of Optuna", default="tpe", choices=SAMPLERS)
    pruner: str = static("pruner of Optuna, which stops trials while they train", default="none", choices=PRUNERS)
    reports: int = static(
        "number of reports of a trial's score to the pruner, evenly over its iterations", default=10, low=1
    )
    storage: str | None = static(
        "URL of the study's database, as postgresql+psycopg://host/name; none: study.db in the sweep's directory",
        default=None,
        outside=ADDRESS,
    )
    study: str = static("name of the study in the database", default="ppax")
    patience: int = static(
        "seconds without a heartbeat of a worker after which others repeat its trials, in a shared database",
        default=120,
        low=2,
    )
    seed: int = static("random seed of the sampler", default=0, low=0)

    def check(self, members: int, total: int) -> None:
        """Raise ConfigError if a trial has too few iterations, `total`, for the number of its reports to the pruner.

        `reports` must be below `total`. Without a pruner every number is accepted.
        """
        if self.pruner != "none" and self.reports >= total:
            raise ConfigError(
                f"search.reports = {self.reports}: must be below the {total} iterations; nearest valid value: "
                f"{max(1, total - 1)}"
            )

    def next_after(self, iteration: int, total: int) -> int:
        """Return the iteration of the first report to the pruner after `iteration`; `total` if there is none."""
        times = (report * total // (self.reports + 1) for report in range(1, self.reports + 1))
        return total if self.pruner == "none" else next((time for time in times if time > iteration), total)

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return []: decisions are made by Optuna's pruner, which `sweeps/studies` asks instead of this method."""
        return []


# Searches by name; the first is the default
SEARCHES = Choices("search", {"grid": Grid, "halving": Halving, "pbt": PBT, "optuna": Optuna})


def search_options(table: Any) -> Iterator[Option]:
    """Yield the options of the search that a table `[search]` names, such as "halving" or a class by its import path.

    Raises ConfigError if there is no such search, Untrusted for code of a package that the user does not trust.
    """
    return config.part_options(SEARCHES, checked_search(table), SEARCH)


def read(table: Any) -> Search:
    """Return the search that a table `[search]` describes; ConfigError for unknown options and values out of range.

    Raises Untrusted for a database that the user does not trust: a stranger's file must not choose one.
    """
    imports.require_asked(outside_of(table))
    return build(table)


def outside_of(table: Any) -> dict[str, Outside]:
    """Return the addresses, such as a database's, that a table `[search]` names, by the option's dotted path."""
    return config.outside_values(dict(flatten(checked_search(table), f"{SEARCH}.")), search_options(table))


def build(table: Any) -> Search:
    """Return the search that a table `[search]` describes, without asking whether the user trusts its addresses.

    It is for a search that the user wrote in Python, or whose addresses `read` has checked. Raises ConfigError for
    unknown options and values out of range.
    """
    search: Search = config.build_part(SEARCHES, checked_search(table), SEARCH)
    return search


def to_table(search: Search) -> Config:
    """Return the table `[search]` of a run file for a search, from which `read` makes an equal search.

    Raises ConfigError for an object that is no search, and for numbers out of range.
    """
    if not isinstance(search, Search):
        raise ConfigError(f"search = {search!r}: must be a search, as ppax.sweeps.Halving(), or a table of its options")
    table = config.describe_part(search, SEARCHES)
    build(table)  # a class without an import path cannot be read again
    return table


def checked_search(table: Any) -> Config:
    """Return `table`, the value that a run file has for `[search]`, unchanged; ConfigError if it is no table."""
    if not isinstance(table, dict):
        remedy = f"; write {SEARCH}.part = {table!r}" if isinstance(table, str) else ""
        raise ConfigError(f"{SEARCH} = {table!r}: must be a table, [{SEARCH}]{remedy}")
    return table
