"""Optuna. Akiba et al. (2019), "Optuna: A Next-generation Hyperparameter Optimization Framework", arXiv:1907.10902.

These are its settings; `sweeps/studies` asks, reports and tells.
"""

from __future__ import annotations

from typing import ClassVar

from ppax.core.parts import ADDRESS
from ppax.core.protocols import Copy, Standings, Stop
from ppax.core.types import ConfigError, part, static

SAMPLERS = ("tpe", "random", "gp", "qmc")  # not cmaes: Optuna unpickles its state from the database
PRUNERS = ("none", "median", "percentile", "halving", "hyperband")


@part
class Optuna:
    """Study of Optuna: a sampler proposes settings from the scores of earlier ones, some at a time, trained together.

    A trial is a setting with all of its seeds; its value is the interquartile mean of their scores. Distributions of
    the sweep are those of the sampler, lists are categories. Workers with the same `storage` and `study` share trials.
    """

    waits: ClassVar[bool] = True
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
        """Raise ConfigError for as many reports as iterations, or more."""
        if self.pruner != "none" and self.reports >= total:
            raise ConfigError(
                f"search.reports = {self.reports}: must be below the {total} iterations; nearest valid value: "
                f"{max(1, total - 1)}"
            )

    def next_after(self, iteration: int, total: int) -> int:
        """Return the iteration of the next report to the pruner, if there is one."""
        times = (report * total // (self.reports + 1) for report in range(1, self.reports + 1))
        return total if self.pruner == "none" else next((time for time in times if time > iteration), total)

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return no decision: a trial's pruner sees other trials of the study (sweeps/studies)."""
        return []
