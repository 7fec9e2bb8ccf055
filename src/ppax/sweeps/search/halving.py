"""Successive halving. Jamieson & Talwalkar (2016), "Non-stochastic Best Arm Identification", arXiv:1502.07943."""

from __future__ import annotations

from typing import ClassVar

from ppax.core.protocols import Copy, Standings, Stop
from ppax.core.types import ConfigError, part, static
from ppax.sweeps.search.rungs import check_rungs, ranked, rungs_of, score_text


@part
class Halving:
    """Successive halving: at each rung the best 1/eta of all members go on, the others stop."""

    waits: ClassVar[bool] = True
    perturbs: ClassVar[bool] = False

    eta: int = static("reduction factor: the best 1/eta of the members go on at each rung", default=3, low=2)
    rungs: int = static("number of rungs; the last one is at a 1/eta of the iterations", default=3, low=1)

    def check(self, members: int, total: int) -> None:
        """Raise ConfigError for more rungs than the members or the iterations have."""
        check_rungs(total, self.eta, self.rungs)
        if members < self.eta:
            raise ConfigError(f"search.eta = {self.eta}: a sweep of {members} members must have at least {self.eta}")

    def next_after(self, iteration: int, total: int) -> int:
        """Return the next rung."""
        return next((rung for rung in rungs_of(total, self.eta, self.rungs) if rung > iteration), total)

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Stop all but the best of the members that are left; there are `members` / eta^k of them after rung k."""
        rung = rungs_of(standings.total, self.eta, self.rungs).index(standings.iteration) + 1
        kept, order = max(1, standings.members // self.eta**rung), ranked(standings.scores)
        at = f"stopped by halving at rung {rung} of {self.rungs} (iteration {standings.iteration})"
        return [
            Stop(number, f"{at}: {score_text(standings.scores[number])}, place {place} of {len(order)}; {kept} go on")
            for place, number in enumerate(order, 1)
            if place > kept
        ]
