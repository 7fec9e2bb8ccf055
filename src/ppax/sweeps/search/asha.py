"""ASHA, stopping variant. Li et al. (2020), "A System for Massively Parallel Hyperparameter Tuning", arXiv:1810.05934.

The paper's algorithm promotes paused configurations; in this variant a member that reaches a rung either goes on or
stops for good, as nothing waits for the members that come later.
"""

from __future__ import annotations

from typing import ClassVar

from ppax.core.protocols import Copy, Standings, Stop
from ppax.core.types import part, static
from ppax.sweeps.search.rungs import check_rungs, ranked, rungs_of, score_text


@part
class ASHA:
    """Asynchronous successive halving: a member stops unless it is among the best 1/eta that reached its rung so far.

    Members of one program reach a rung together, and are compared with each other and with those of earlier programs.
    """

    waits: ClassVar[bool] = False
    perturbs: ClassVar[bool] = False

    eta: int = static("reduction factor: a member goes on if it is among the best 1/eta at its rung", default=3, low=2)
    rungs: int = static("number of rungs; the last one is at a 1/eta of the iterations", default=3, low=1)

    def check(self, members: int, total: int) -> None:
        """Raise ConfigError for more rungs than the iterations have."""
        check_rungs(total, self.eta, self.rungs)

    def next_after(self, iteration: int, total: int) -> int:
        """Return the next rung."""
        return next((rung for rung in rungs_of(total, self.eta, self.rungs) if rung > iteration), total)

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Stop the members that are not among the best 1/eta of all that reached this rung so far, at least one."""
        rung = rungs_of(standings.total, self.eta, self.rungs).index(standings.iteration) + 1
        order = ranked({**standings.earlier, **standings.scores})
        kept = max(1, len(order) // self.eta)
        at = f"stopped by asha at rung {rung} of {self.rungs} (iteration {standings.iteration})"
        return [
            Stop(
                number,
                f"{at}: {score_text(standings.scores[number])}, place {place} of {len(order)} so far; {kept} go on",
            )
            for place, number in enumerate(order, 1)
            if place > kept and number in standings.scores
        ]
