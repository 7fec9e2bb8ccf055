"""Protocols: one for each kind of part that you may replace, and for environments, with shapes.

Axes as in `types.py`: T steps of a rollout, B streams, M sequences of L steps, N = M * L flat rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from gymnasium import spaces
from jax import Array

from ppax.types import (
    Batch,
    EnvReset,
    EnvStep,
    Key,
    Memory,
    Metrics,
    MinibatchIndices,
    Outputs,
    Params,
    PyTree,
    Scalar,
    Targets,
    Transition,
)


class Environment(Protocol):
    """JAX environment protocol: pure functions of (state, action, key), one environment, no autoreset."""

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one agent's observation."""

    @property
    def action_space(self) -> spaces.Space:
        """Space of one agent's action."""

    @property
    def num_agents(self) -> int | dict[str, int] | None:
        """Length of the agent axis; None: no such axis; a dict: one length per group of agents (agents/groups.py)."""

    def reset(self, key: Key) -> EnvReset:
        """Start an episode; `key` is its source of randomness."""

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Advance by one step. If both `terminated` and `truncated` are set, the step counts as terminated."""


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


class Advantage(Protocol):
    """Advantage estimator protocol: advantages and value targets of one stream."""

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] from steps [T], V of each next observation [T] and `ratio` [T].

        `ratio` is the probability of each action under the current policy over that under the policy that acted;
        None: 1.
        """


class PolicyTerms(NamedTuple):
    """Per-row terms of a policy objective, all [N]."""

    loss: Array  # minimised; its mean is the metric `policy_loss`
    log_ratio: Array  # log of the probability ratio, current policy over the policy that acted
    metrics: Mapping[str, Array] = {}  # further diagnostics, logged by name


class Loss(Protocol):
    """Loss protocol: policy objective of each row. Value and entropy terms are added in `losses.base.total_loss`."""

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Terms of rows [N] from the current policy's distribution and the batch; its advantages are standardised.

        Rows are neither masked nor weighted here: `losses.base.total_loss` takes the means.
        """


class AuxiliaryTerms(NamedTuple):
    """Per-row terms of an auxiliary loss, all [N]; names differ from those of other metrics."""

    losses: Mapping[str, Array]  # coefficients included; added to the loss, and logged by name
    metrics: Mapping[str, Array] = {}  # logged only


class AuxiliaryLoss(Protocol):
    """Auxiliary loss protocol: further terms of the loss, from parameters, features and batch."""

    def __call__(self, params: Params, features: PyTree, batch: Batch) -> AuxiliaryTerms:
        """Terms of rows [N]; `features` [N, ...] are what `Network.decide` reads, after `encode` and `remember`.

        Rows are neither masked nor weighted here: `losses.base.total_loss` takes the means.
        """


class Minibatches(Protocol):
    """Minibatch protocol: draw the sequences of every gradient step of an epoch."""

    @property
    def num_minibatches(self) -> int:
        """Gradient steps in one epoch."""

    def size(self, sequences: int) -> int:
        """Sequences in each minibatch, padding included, from a rollout of `sequences`; ConfigError if impossible."""

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Draw indices [num_minibatches, size] of sequences from a batch [M, L]; index M is padding."""


class Optimizer(Protocol):
    """Optimiser protocol: learning rate -> optax.GradientTransformation."""

    @property
    def elementwise(self) -> bool:
        """Whether the optimiser works on the flattened parameter vector; otherwise it gets the parameter tree."""

    def __call__(self, learning_rate: Scalar) -> Any:
        """Transformation for one learning rate."""


Schedule = Callable[[Any, Array, Array], Any]  # (agent, progress in [0, 1], env-steps so far) -> agent
