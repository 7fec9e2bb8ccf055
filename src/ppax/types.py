"""Central types: what the parts are made of, and what flows between them.

Axes: T steps of a rollout, B = num_envs * num_agents streams, M = T * B / L sequences of L steps,
N = M * L flat rows, E environments, A agents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from gymnasium import spaces
from jax import Array

from ppax.parts import number as number
from ppax.parts import part as part
from ppax.parts import static as static

PyTree = Any
Key = Array  # a typed key: jax.random.key
Scalar = float | Array  # a number in an equation: a float, or a traced array when it is swept or annealed
Params = PyTree
Metrics = dict[str, Array]


@part
class Transition:
    """One step of every stream; after `to_sequences` the leading axes are [M, L], in a loss [N]."""

    obs: PyTree  # [T, B, ...] raw observation at step t
    action: PyTree  # [T, B, ...] what was sampled, before any squashing or clipping
    log_prob: Array  # [T, B] under the policy that acted
    value: Array  # [T, B] V(obs_t)
    reward: Array  # [T, B] as the environment gave it
    terminated: Array  # [T, B] ended for good after this step: no value beyond
    truncated: Array  # [T, B] cut after this step: the value beyond still counts
    first: Array  # [T, B] obs_t opens an episode: forget the carry
    valid: Array  # [T, B] False: autoreset step or absent agent, weight 0
    carry: PyTree  # [T / L, B, ...] memory before each sequence's first step, cut: [M, 1, ...]; no leaves without one
    action_mask: PyTree | None = None  # [T, B, n] True = allowed; a tree like the action (masks.py)
    final_value: Array | None = None  # [T, B] V of a truncated episode's last observation, where the next row lacks it

    @property
    def ended(self) -> Array:
        """[T, B] no later step of this stream belongs to the same episode: the trace is cut here."""
        return self.terminated | self.truncated


class Rollout(NamedTuple):
    """`num_steps` steps of all streams."""

    steps: Transition  # [T, B]
    last_value: Array  # [B] V of the observation after the last step
    reward_trace: Array  # [T, B] running discounted return, for reward scaling


class Targets(NamedTuple):
    """What an advantage estimator gives: `value = advantage + V`, the critic's regression goal."""

    advantage: Array  # [T] for one stream
    value: Array  # [T]


class Batch(NamedTuple):
    """Rollout and targets, cut into sequences, or flattened to rows for a loss."""

    steps: Transition  # [M, L] or [N]
    targets: Targets
    weights: Any = None  # [N] terms.RowWeights, in a loss; None: 1 for every row


class MinibatchIndices(NamedTuple):
    """The sequences of every gradient step of an epoch."""

    index: Array  # type: ignore[assignment]  # [num_minibatches, m]
    weight: Array | None = None  # [num_minibatches, m] importance weight of each sequence in all of the loss; None: 1
    advantage_weight: Array | None = None  # [num_minibatches, m] of its standardised advantages alone; None: 1


class Decision(NamedTuple):
    """What the agent did at one step of every stream."""

    carry: PyTree  # [B, ...] memory after this observation
    action: PyTree  # [B, ...] as sampled; stored
    env_action: PyTree  # [B, ...] as the environment receives it; always inside its space
    log_prob: Array  # [B]
    value: Array  # [B]


class Episodes(NamedTuple):
    """Sums over the episodes that each stream finished during a rollout."""

    count: Array  # type: ignore[assignment]  # [B] number of finished episodes
    return_sum: Array  # [B] sum of their undiscounted returns
    length_sum: Array  # [B] sum of their lengths, in steps


class LearnerState(NamedTuple):
    """A policy's checkpoint: what `update` needs and changes."""

    params: Params
    opt_state: PyTree
    obs_stats: PyTree  # running statistics of observations; None when off
    reward_stats: PyTree  # running statistics of discounted returns; None when off
    control: PyTree = ()  # what the agent adapts by itself, as its learning rate (kl_control.py); () when off
    critic: PyTree = ()  # what the critic keeps, as statistics of its targets (critics/); () when nothing


class ActorState(NamedTuple):
    """Where collection left off."""

    env_state: PyTree
    obs: PyTree  # [B, ...] the observation to act on next
    first: Array  # [B]
    action_mask: PyTree | None  # [B, n]
    carry: PyTree  # [B, ...]
    episode_return: Array  # [B] of the running episode
    episode_length: Array  # [B]
    reward_trace: Array  # [B] discounted return so far, for reward scaling


@part
class TrainState:
    """A run's checkpoint: nothing that training needs lives outside it."""

    learner: LearnerState
    actor: ActorState
    key: Key
    iteration: Array  # [] int32, iterations done
    env_steps: Array  # [2] uint32, valid steps done: low and high word (counter.py)
    num_steps: int = static()  # length of a rollout
    iterations_per_env_reset: int | None = static(default=None)  # collect.restart; None: only the run's start resets


class EnvReset(NamedTuple):
    """The start of an episode, one environment, no batch axis."""

    state: PyTree
    obs: PyTree  # [A, ...] with an agent axis, else [...]
    action_mask: PyTree | None = None
    global_state: PyTree | None = None  # what a central critic may see, arrays without an agent axis


class EnvStep(NamedTuple):
    """One step of one environment, no autoreset. With agents, reward and flags are [A]."""

    state: PyTree
    obs: PyTree
    reward: Array  # [] or [A] float32
    terminated: Array  # [] or [A] bool
    truncated: Array  # [] or [A] bool
    action_mask: PyTree | None = None
    global_state: PyTree | None = None


class Environment(Protocol):
    """One native environment: pure functions of (state, action, key). It never resets itself."""

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one agent's observation."""

    @property
    def action_space(self) -> spaces.Space:
        """Space of one agent's action."""

    @property
    def num_agents(self) -> int | dict[str, int] | None:
        """Length of the agent axis; None: there is no such axis; a dict: groups of unlike agents (envs/groups.py)."""

    def reset(self, key: Key) -> EnvReset:
        """Begin an episode, with fresh randomness from `key`."""

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Advance by one step. `terminated` and `truncated` may both be set: then termination wins."""


class VectorStep(NamedTuple):
    """One step of every stream, with next-step autoreset."""

    state: PyTree
    obs: PyTree  # [B, ...] the next observation, in every case
    reward: Array  # [B]
    terminated: Array  # [B]
    truncated: Array  # [B]
    valid: Array  # [B] False: this call did not act for this stream (autoreset or absent agent)
    first: Array  # [B] `obs` opens an episode
    action_mask: PyTree | None = None  # [B, n]


class Distribution(Protocol):
    """A distribution over actions. Arrays may have leading batch axes; results have just those."""

    def sample(self, key: Key) -> PyTree:
        """Draw an action, before squashing and clipping."""

    def log_prob(self, action: PyTree) -> Array:
        """Log of the density or probability of a drawn action."""

    def entropy(self) -> Array:
        """Entropy in nats."""

    def mode(self) -> PyTree:
        """The most likely action: what a deterministic policy does."""

    def kl(self, other: Any) -> Array:
        """KL(self || other), `other` of the same class."""

    def env_action(self, action: PyTree) -> PyTree:
        """What the environment receives for `action`: inside its space."""


class Outputs(NamedTuple):
    """What a network decides from one feature vector."""

    distribution: Distribution
    value: Array  # [num_values] what the critic makes V of


class Memory(NamedTuple):
    """A carry and the features that came out with it."""

    carry: PyTree
    features: PyTree  # [L, ...]


class Network(Protocol):
    """Encode one observation, remember over a sequence, decide from one feature vector."""

    def init(self, key: Key, num_values: int = 1) -> Params:
        """Fresh parameters, a plain nested dict of arrays; the critic ends in `num_values` numbers."""

    def initial_carry(self) -> PyTree:
        """Memory at the start of an episode, for one stream; without leaves where there is none."""

    def encode(self, params: Params, obs: PyTree) -> PyTree:
        """Features of one observation."""

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """One stream's sequence [L, ...]; where `first`, the carry is forgotten before that step."""

    def decide(self, params: Params, features: PyTree, action_mask: PyTree | None) -> Outputs:
        """Distribution and value from one feature vector."""

    def rescale_value(self, params: Params, scale: Scalar, shift: Scalar) -> Params:
        """Parameters with which the critic ends in scale [] times its numbers plus shift, [] or [num_values]."""


class Advantage(Protocol):
    """Advantages and value targets of one stream."""

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Of steps [T, ...] and V after each of them [T]; `ratio` [T]: actions' probability now over then, None: 1."""


class LossOutput(NamedTuple):
    """A scalar to descend, and metrics: means over valid rows, or extremes that `metrics.reduced` declares."""

    loss: Array
    metrics: Mapping[str, Array]


class Loss(Protocol):
    """The objective of one gradient step. `PPO.kl` reads its metric `approx_kl`."""

    def __call__(self, distribution: Any, value_error: Array, batch: Batch) -> LossOutput:
        """Rows [N]: the new policy and the critic's own loss against the batch, weighed as in `terms.objective`."""


class Minibatches(Protocol):
    """Which sequences make up each gradient step of an epoch."""

    @property
    def num_minibatches(self) -> int:
        """Gradient steps in one epoch."""

    def size(self, sequences: int) -> int:
        """Places for sequences in each minibatch of a rollout of so many; ConfigError where that cannot be."""

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Indices [num_minibatches, size] of sequences in a batch [M, L]; M, one beyond, is an empty place."""


class Optimizer(Protocol):
    """Learning rate -> optax.GradientTransformation."""

    @property
    def elementwise(self) -> bool:
        """Whether it may see all parameters as one vector; otherwise it gets the tree."""

    def __call__(self, learning_rate: Scalar) -> Any:
        """The transformation for one learning rate."""


Schedule = Callable[[Any, Array, Array], Any]  # (agent, progress in [0, 1], env-steps so far) -> agent


class ConfigError(ValueError):
    """Something in a configuration cannot work; the message says what to write instead."""
