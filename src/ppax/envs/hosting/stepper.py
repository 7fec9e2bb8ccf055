"""What host environments of every kind look like to those who step them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from ppax.envs.hosting.arrays import Arrays, EpisodeStats


class Seen(NamedTuple):
    """What came of one step of e streams; an observation is a list of its arrays (arrays.leaves_of)."""

    obs: list[np.ndarray]  # [e, ...] the next observation
    reward: np.ndarray  # [e]
    terminated: np.ndarray  # [e]
    truncated: np.ndarray  # [e]
    first: np.ndarray  # [e] `obs` opens an episode
    valid: np.ndarray  # [e] False: the action was ignored, an episode began instead, or the agent was absent
    mask: np.ndarray | None  # [e, n] allowed actions
    # [e, ...] where an episode was truncated and `obs` already opens the next one: its last observation
    final_obs: list[np.ndarray] | None = None
    episode_stats: EpisodeStats | None = None  # what statistics count, where that is something else


class Stepper(Protocol):
    """Running environments, in groups that are stepped by turns."""

    @property
    def groups(self) -> tuple[slice, ...]:
        """Which streams are stepped together."""

    @property
    def cuts(self) -> bool:
        """Whether `Seen.final_obs` is used."""

    def reset(self, seeds: Sequence[int]) -> None:
        """Begin an episode everywhere; then `receive` each group."""

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Begin one step of a group; `action` is a list of arrays [e, ...]."""

    def receive(self, number: int) -> Seen:
        """Wait for what was sent; arrays that the next step may overwrite. EnvError where it failed."""

    def close(self) -> None:
        """Close all environments, and end all processes."""


def seen(arrays: Arrays) -> Seen:
    """What stands in `arrays` after a step with next-step autoreset."""
    flags = arrays.reward, arrays.terminated, arrays.truncated
    return Seen(arrays.obs, *flags, arrays.begun, arrays.valid, arrays.mask, None, arrays.episode_stats)
