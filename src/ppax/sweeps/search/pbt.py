"""Population-based training. Jaderberg et al. (2017), "Population Based Training of Neural Networks", arXiv:1711.09846.

Exploit is truncation selection; explore multiplies each number or draws it anew (section 4.1.1 of the paper). A draw
depends on the seed, the iteration and the member alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from ppax.core.parts import Interval
from ppax.core.protocols import Copy, Standings, Stop
from ppax.core.types import ConfigError, part, static
from ppax.sweeps.search.rungs import ranked, score_text

DIGITS = 6  # significant digits of a perturbed number, as those of a drawn one


@part
class PBT:
    """Population-based training: the worst members take over the learner of a good one and perturb its numbers.

    The members of one program are a population. A learner is weights, optimiser state and statistics; a member
    keeps its environments and random key.
    """

    waits: ClassVar[bool] = False
    perturbs: ClassVar[bool] = True

    interval: Interval | None = static(
        'iterations between two decisions, or "50k steps"; none: a twentieth of the training',
        default=None,
        low=1,
        high=2**31 - 1,
        interval=True,
    )
    fraction: float = static(
        "fraction of the members that are replaced, the worst, and of those that they copy, the best",
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
    seed: int = static("random seed of sources and perturbations", default=0, low=0)

    def check(self, members: int, total: int) -> None:
        """Raise ConfigError where there is nothing to copy or no time for it."""
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
        """Return the next whole interval."""
        every = self.interval or max(1, total // 20)
        return iteration - iteration % every + every

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return a copy for each of the worst members, from one of the best that has a score."""
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
        """Return a swept number, drawn anew or perturbed, within its bounds."""
        swept = standings.swept[path]
        low, high = bounds(swept, standings.limits.get(path, {}))
        if generator.random() < self.resample:
            new = swept[int(generator.integers(len(swept)))] if isinstance(swept, tuple) else swept.draw(generator)
        else:
            new = float(f"{value * self.factors[int(generator.integers(len(self.factors)))]:.{DIGITS}g}")
        return float(min(max(new, low), high))


def bounds(swept: Any, limits: Mapping[str, float]) -> tuple[float, float]:
    """Return the smallest and largest value of a swept number: of its list or distribution, and of the option."""
    own = swept if isinstance(swept, tuple) else getattr(swept, "values", None)
    low, high = (min(own), max(own)) if own else (getattr(swept, "low", -math.inf), getattr(swept, "high", math.inf))
    low = max(low, limits.get("low", -math.inf), math.nextafter(limits.get("above", -math.inf), math.inf))
    return low, min(high, limits.get("high", math.inf))
