"""Grid: every member trains to the end."""

from __future__ import annotations

from typing import ClassVar

from ppax.core.protocols import Copy, Standings, Stop
from ppax.core.types import part


@part
class Grid:
    """Grid: every member trains to the end."""

    waits: ClassVar[bool] = False
    perturbs: ClassVar[bool] = False

    def check(self, members: int, total: int) -> None:
        """Accept every sweep."""

    def next_after(self, iteration: int, total: int) -> int:
        """Return `total`: there are no decisions before the end."""
        return total

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return no decision."""
        return []
