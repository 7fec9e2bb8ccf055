"""Protocol of searches over the members of a sweep."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable


class Stop(NamedTuple):
    """Decision of a search: a member trains no more."""

    member: int  # its number in the sweep
    reason: str


class Copy(NamedTuple):
    """Decision of a search: a member takes over the learner of another, and trains on with other values."""

    member: int
    source: int
    values: Mapping[str, Any]  # of the swept options, by dotted path
    reason: str


class Standings(NamedTuple):
    """Inputs of a search's decisions at an iteration: all that they may depend on."""

    iteration: int  # iterations done
    total: int  # iterations of the whole training
    members: int  # of the whole sweep, with those that train no more
    scores: Mapping[int, float]  # by number, of those that train, in this order; NaN where no episode ended
    values: Mapping[int, Mapping[str, Any]]  # of the swept options now, by number and dotted path
    swept: Mapping[str, Any]  # tuple of values, or distribution, of each swept option, as in the sweep's table
    limits: Mapping[str, Mapping[str, float]]  # low, high and above of each swept option that has any
    earlier: Mapping[int, float]  # scores at this iteration of members of other programs, which reached it before


@runtime_checkable
class Search(Protocol):
    """Search protocol: settings in the table `[search]`, hashable; decides over the members of a sweep as they train.

    Decisions are a pure function of the settings and of the standings: a resumed sweep makes them again.
    """

    @property
    def waits(self) -> bool:
        """Whether it decides over all members at once, so that all programs first train to the same iteration."""

    @property
    def perturbs(self) -> bool:
        """Whether it changes values of members while they train, so that only traced numbers can be swept."""

    def check(self, members: int, total: int) -> None:
        """Raise ConfigError where a sweep of `members` members and `total` iterations is too small for it."""

    def next_after(self, iteration: int, total: int) -> int:
        """Return the iteration of the next decisions after `iteration`; `total` or more: none before the end."""

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return decisions, at most one for each member that trains; the others go on."""
