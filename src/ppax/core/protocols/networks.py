"""Protocols of networks, action distributions and critics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jax import Array

from ppax.core.types import Key, Memory, Metrics, Outputs, Params, PyTree, Scalar


class Distribution(Protocol):
    """Distribution over actions. Its arrays may have leading batch axes; results have the same batch axes."""

    def sample(self, key: Key) -> PyTree:
        """Sample an action, before squashing and clipping."""

    def log_prob(self, action: PyTree) -> Array:
        """Log-probability, or log-density, of an action as `sample` returns it."""

    def entropy(self) -> Array:
        """Entropy in nats."""

    def mode(self) -> PyTree:
        """Most likely action: the action of a deterministic policy."""

    def kl(self, other: Any) -> Array:
        """KL divergence KL(self || other), in nats; `other` is of the same class."""

    def env_action(self, action: PyTree) -> PyTree:
        """Action for the environment, inside its action space, from `action` as `sample` returns it."""

    def metrics(self) -> Mapping[str, Array]:
        """Diagnostics of each row, logged by name; `policy_std` of continuous actions, {} of discrete ones."""


class Network(Protocol):
    """Network protocol: encode one observation, remember over a sequence, decide from one feature vector."""

    def init(self, key: Key, num_values: int = 1) -> Params:
        """Initial parameters: a nested dict of arrays; the value head has `num_values` outputs."""

    def initial_carry(self) -> PyTree:
        """Carry at the start of an episode, one stream; () for a feedforward network."""

    def encode(self, params: Params, obs: PyTree) -> PyTree:
        """Features of one observation."""

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """Run the memory over one stream's features [L, ...]; reset the carry before each step where `first` [L]."""

    def decide(self, params: Params, features: PyTree, action_mask: PyTree | None) -> Outputs:
        """Distribution and value from one feature vector."""

    def rescale_value(self, params: Params, scale: Scalar, shift: Scalar) -> Params:
        """Parameters whose value outputs are scale [] * (old outputs) + shift, [] or [num_values]."""


@runtime_checkable
class MadeForSpaces(Protocol):
    """Protocol of classes of parts whose instances are made for the spaces of an environment, as networks are."""

    def for_spaces(self, env: Any, **options: Any) -> Any:
        """Return a part, by a class method; `env` has `observation_space` and `action_space`."""


class Rescale(NamedTuple):
    """Change of the value head's last layer: its outputs become scale * outputs + shift."""

    scale: Scalar  # []
    shift: Scalar  # [] or [num_values]


class Adapted(NamedTuple):
    """State of the critic, and the change of the value head that goes with it; None: no change."""

    state: PyTree
    rescale: Rescale | None


class Critic(Protocol):
    """Critic protocol: V of one observation from its value outputs [num_values], and their loss."""

    @property
    def num_values(self) -> int:
        """Number of outputs of the network's value head."""

    def init(self) -> Adapted:
        """Initial state, () if the critic has none; ConfigError for numbers that contradict each other."""

    def value(self, state: PyTree, value_outputs: Array) -> Array:
        """V of one observation, [], in units of the reward."""

    def error(self, state: PyTree, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Value loss of one row, []; `target` is the value target, `old_value` V during collection."""

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """Update the state from a rollout's targets [M, L], before its gradient steps; V must not change."""

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """Metrics of one update."""
