"""Protocols of auxiliary losses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from gymnasium import spaces
from jax import Array

from ppax.protocols.networks import Network
from ppax.types import Batch, ForwardPass, Guide, Key, Params, PyTree, Rollout


class AuxiliaryTerms(NamedTuple):
    """Per-row terms of an auxiliary loss, all [N]; names differ from those of other metrics."""

    losses: Mapping[str, Array]  # coefficients included; added to the loss, and logged by name
    metrics: Mapping[str, Array] = {}  # logged only


class Again(Protocol):
    """Forward pass protocol of auxiliary losses, `batch.again`: the current network over other inputs of the same rows.

    With a memory each sequence starts from its stored carry.
    """

    @property
    def policy(self) -> ForwardPass:
        """Forward pass of the minibatch's own rows [N], from which the loss is computed."""

    def forward(self, obs: PyTree, action_mask: PyTree | None = None) -> ForwardPass:
        """Distribution, value outputs, V and features for other observations, rows [N]."""

    def draw(self, size: int) -> Array:
        """Draw a number below `size` for each row [N]: the same in all epochs of an update, and for every layout."""

    def inputs(self, obs: PyTree) -> PyTree:
        """Other observations [N, ...] as the network gets them: float32, standardised where those of the agent are."""

    def encode(self, obs: PyTree) -> PyTree:
        """Features of other observations, rows [N], before the memory (`Network.encode`)."""

    def losses(self, batch: Batch) -> Array:
        """PPO's own loss of other rows, [N]: policy + vf_coef * value - ent_coef * entropy, without weights."""


class AuxiliaryLoss(Protocol):
    """Auxiliary loss protocol: further terms of the loss, from parameters, features and batch."""

    def __call__(self, params: Params, features: PyTree, batch: Batch) -> AuxiliaryTerms:
        """Terms of rows [N]; `features` [N, ...] are what `Network.decide` reads, after `encode` and `remember`.

        Rows are neither masked nor weighted here: `losses.base.total_loss` takes the means.
        """


@runtime_checkable
class AuxiliaryModel(AuxiliaryLoss, Protocol):
    """Protocol of auxiliary losses with parameters of their own, which are trained as those of the network are."""

    def init(self, network: Network, observation_space: spaces.Space, key: Key) -> Params:
        """Initial parameters, a nested dict; in the loss they are `params["auxiliary"]`."""

    def inputs(self, rollout: Rollout) -> PyTree:
        """Further inputs of each row [T, B, ...], in the loss `batch.steps.auxiliary` [N, ...]; () if there is none.

        Rows of steps that are not `valid` are set to zero afterwards.
        """


class Followed(NamedTuple):
    """Further inputs of an auxiliary loss for a rollout, and its state after it."""

    inputs: PyTree  # [T, B, ...] in the loss `batch.steps.auxiliary` [N, ...], zero in rows that are not `valid`
    streams: PyTree  # [B, ...] the next `ActorState.auxiliary`


@runtime_checkable
class AuxiliaryStreams(AuxiliaryLoss, Protocol):
    """Protocol of auxiliary losses with a state for each stream that follows its episodes, as a teacher's memory."""

    def initial_streams(self, num_streams: int) -> PyTree:
        """Initial state of each stream, [B, ...], part of the actor; () if there is none."""

    def follow(self, rollout: Rollout) -> Followed:
        """Follow a rollout from the state before it, `rollout.auxiliary`; called once in an update, before its steps.

        Rows that are not `valid` must have no influence. On several devices `rollout` has the streams of one device.
        """


class Guided(NamedTuple):
    """Result of one step of an AuxiliaryGuide."""

    memory: PyTree  # [B, ...] the next `Guide.memory`
    acts: Array  # [B] bool: the action is taken
    action: PyTree  # [B, ...] as the policy's distribution samples it


@runtime_checkable
class AuxiliaryGuide(AuxiliaryLoss, Protocol):
    """Protocol of auxiliary losses that act in the policy's place in some steps, as DAgger's teacher does.

    The stored log-probabilities stay those of the policy, so that such a loss goes with the policy loss `none` alone.
    """

    def initial_guide(self, num_streams: int) -> Guide | None:
        """Initial state of each stream, [B, ...], part of the carry; None: the policy acts alone."""

    def act(
        self, memory: PyTree, distribution: Any, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key
    ) -> Guided:
        """Choose an action for every stream, given the policy's `distribution`; all arguments are [B, ...]."""
