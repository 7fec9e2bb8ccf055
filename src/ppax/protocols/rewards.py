"""Protocols of intrinsic rewards and auxiliary phases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from gymnasium import spaces
from jax import Array

from ppax.protocols.networks import Network
from ppax.types import Batch, Key, LearnerState, PyTree, Rollout, Scalar


class IntrinsicRewards(NamedTuple):
    """Intrinsic rewards of a rollout, and the state after it."""

    reward: Array | None  # [T, B] added to the environment's reward, coefficient included; None: nothing is added
    state: PyTree  # the next `LearnerState.intrinsic`
    streams: PyTree  # [B, ...] the next `ActorState.intrinsic`
    metrics: Mapping[str, Array] = {}  # scalars, logged by name
    advantage: Array | None = None  # [T, B] added to the advantage, of a stream of rewards with its own critic


class IntrinsicReward(Protocol):
    """Intrinsic reward protocol: a reward for each step of a rollout, with state of its own that learns from it."""

    def init(self, network: Network, observation_space: spaces.Space, key: Key) -> PyTree:
        """Initial state, part of the learner: networks, optimiser, statistics, a key; () if there is none."""

    def initial_streams(self, num_streams: int) -> PyTree:
        """Initial state of each stream, [B, ...], part of the actor; () if there is none."""

    def __call__(self, network: Network, state: PyTree, rollout: Rollout) -> IntrinsicRewards:
        """Compute rewards or advantages [T, B] with the state before a rollout, then update the state from the rollout.

        Called once in an update, before its gradient steps. Rewards of steps that are not `valid` are not read, and
        their observations may be anything, but for the row after an episode's end: its observation is the final one
        (`learning.following` reads it; after a termination it may be not finite).
        On several devices `rollout` has the streams of one: `program.sharding.gather` joins them, and the state must
        be the same on all devices.
        """


class Phased(NamedTuple):
    """Learner after an auxiliary phase, or after an iteration without one, and metrics."""

    learner: LearnerState
    metrics: Any  # arrays.metrics.Table


class Phase(Protocol):
    """Auxiliary phase protocol: further learning from a rollout, after the gradient steps of PPO's objective."""

    def init(self, agent: Any, observation_space: spaces.Space, key: Key) -> PyTree:
        """Initial state, part of the learner (`LearnerState.phase`): heads, optimiser, a key; () if there is none.

        `agent` is the PPO that it is a part of: its network, critic, minibatches and layout.
        """

    def rescale_value(self, state: PyTree, scale: Scalar, shift: Scalar) -> PyTree:
        """State whose value heads have the outputs scale [] * (old outputs) + shift, [] or [num_values].

        As `Network.rescale_value`, and called with it: by critics whose outputs are on a scale that changes, as PopArt.
        """

    def __call__(self, agent: Any, learner: LearnerState, batch: Batch) -> Phased:
        """Learn from the sequences [M, L] of an update; called once in each, before its observation statistics change.

        Rows that are not `valid` must have no influence, and the result must be the same on all devices.
        """


@runtime_checkable
class KeepingPhase(Phase, Protocol):
    """Protocol of auxiliary phases that can keep rollouts in their state."""

    @property
    def keeps(self) -> bool:
        """Whether the state keeps rollouts. Their shapes are those of the batch in a call: `init` leaves them out.

        The first call returns a state that has them; before it, `start` allocates them as zeros.
        """
