"""Stepper protocol: the interface of all host environments, and the result of one step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jax import Array

from ppax.envs.hosting.arrays import Arrays, EpisodeStats


class HostStep(NamedTuple):
    """Result of one step, or of a reset, of e streams; an observation is the list of its arrays (arrays.leaves_of)."""

    obs: list[np.ndarray]  # [e, ...] the next observation
    reward: np.ndarray  # [e]
    terminated: np.ndarray  # [e]
    truncated: np.ndarray  # [e]
    first: np.ndarray  # [e] `obs` is the first of an episode
    valid: np.ndarray  # [e] False: the action was ignored because of a reset, or the agent was absent
    mask: np.ndarray | None  # [e, n] allowed actions
    # [e, ...] final observation of an episode that ended, if `obs` is already the first of the next one
    final_obs: list[np.ndarray] | None = None
    episode_stats: EpisodeStats | None = None  # logged rewards and ends, if they differ from those above
    metrics: np.ndarray | None = None  # [e, k] entries of info that are logged; defined where an episode has ended


class TensorStep(NamedTuple):
    """Result of one step of E environments with autoreset in the same step: arrays of JAX in a simulator's memory."""

    obs: Any  # [E, ...] the next observation
    reward: Array  # [E]
    terminated: Array  # [E]
    truncated: Array  # [E]
    mask: Array | None  # [E, n] allowed actions
    final_obs: Any  # [E, ...] final observations, defined where an episode has ended; None: not given
    metrics: tuple[Array, ...]  # [E] each, entries of info that are logged; (): no episode has ended


Exchange = Callable[[Sequence[Array], Sequence[str]], TensorStep]  # a step on the device: actions, names of metrics


class Stepper(Protocol):
    """Running environments, in batches that are stepped alternately."""

    @property
    def batches(self) -> tuple[slice, ...]:
        """Streams of each batch."""

    @property
    def has_final_obs(self) -> bool:
        """Whether an episode may end and the next begin within one step, so that `HostStep.final_obs` is given."""

    def reset(self, seeds: Sequence[int]) -> None:
        """Reset all environments; `receive` of each batch returns the result."""

    def send(self, number: int, action: Sequence[np.ndarray]) -> None:
        """Start one step of batch `number`; `action` is a list of arrays [e, ...]."""

    def receive(self, number: int) -> HostStep:
        """Wait for the step or reset of batch `number`; the next step may overwrite the arrays.

        Raises EnvError if an environment failed.
        """

    def close(self) -> None:
        """Close all environments, and end all processes."""


def host_step(arrays: Arrays) -> HostStep:
    """Return the contents of `arrays` after a step with next-step autoreset."""
    return HostStep(
        arrays.obs,
        arrays.reward,
        arrays.terminated,
        arrays.truncated,
        arrays.first,
        arrays.valid,
        arrays.mask,
        episode_stats=arrays.episode_stats,
        metrics=arrays.metrics,
    )
