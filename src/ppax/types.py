"""Central types: data passed between the parts, and the Protocols that parts implement.

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
Key = Array  # typed PRNG key: jax.random.key
Scalar = float | Array  # number in an equation: a float, or a traced array in a sweep or a schedule
Params = PyTree
Metrics = dict[str, Array]


@part
class Transition:
    """One step of every stream; after `to_sequences` the leading axes are [M, L], in a loss [N]."""

    obs: PyTree  # [T, B, ...] raw observation at step t
    action: PyTree  # [T, B, ...] as sampled, before squashing or clipping
    log_prob: Array  # [T, B] action log-probability under the policy that acted
    value: Array  # [T, B] V(obs_t)
    reward: Array  # [T, B] as returned by the environment
    terminated: Array  # [T, B] episode terminated after this step: bootstrap value 0
    truncated: Array  # [T, B] episode truncated after this step: bootstrapped from the next value
    first: Array  # [T, B] obs_t is the first of an episode: the carry is reset
    valid: Array  # [T, B] False: autoreset step or absent agent; weight 0
    carry: PyTree  # [T / L, B, ...] before each sequence's first step, after the cut [M, 1, ...]; () if feedforward
    action_mask: PyTree | None = None  # [T, B, n] True = allowed; a tree like the action (arrays/masks.py)
    final_value: Array | None = None  # [T, B] V of a truncated episode's last observation; None: the next row has it

    @property
    def ended(self) -> Array:
        """Episode end, terminated or truncated, [T, B]: traces and sums are cut after this step."""
        return self.terminated | self.truncated


class Rollout(NamedTuple):
    """`num_steps` steps of all streams."""

    steps: Transition  # [T, B]
    last_value: Array  # [B] V of the observation after the last step
    reward_trace: Array  # [T, B] running discounted return, for reward normalisation


class Targets(NamedTuple):
    """Result of an advantage estimator: advantages for the policy, regression targets for the critic."""

    advantage: Array  # [T] for one stream
    value: Array  # [T] value target


class Batch(NamedTuple):
    """Rollout and targets, cut into sequences [M, L], or flattened to rows [N] for a loss."""

    steps: Transition  # [M, L] or [N]
    targets: Targets
    weights: Any = None  # losses.base.RowWeights [N], in a loss; None: 1 for every row


class MinibatchIndices(NamedTuple):
    """Indices of the sequences in every minibatch of an epoch; index M of M sequences is padding."""

    index: Array  # type: ignore[assignment]  # [num_minibatches, m]
    weight: Array | None = None  # [num_minibatches, m] importance weights on the whole loss; None: 1
    advantage_weight: Array | None = None  # [num_minibatches, m] on the advantages alone; None: 1


class Decision(NamedTuple):
    """Actions of one step of every stream, with their log-probabilities and values."""

    carry: PyTree  # [B, ...] after this observation
    action: PyTree  # [B, ...] as sampled; stored in the rollout
    env_action: PyTree  # [B, ...] as passed to the environment; inside its action space
    log_prob: Array  # [B]
    value: Array  # [B]


class Episodes(NamedTuple):
    """Sums over the episodes that each stream finished during a rollout."""

    count: Array  # type: ignore[assignment]  # [B] number of finished episodes
    return_sum: Array  # [B] sum of their undiscounted returns
    length_sum: Array  # [B] sum of their lengths, in steps


class LearnerState(NamedTuple):
    """State of learning that `update` reads and changes: parameters, optimiser state, running statistics."""

    params: Params
    opt_state: PyTree
    obs_stats: PyTree  # running statistics of observations; None when off
    reward_stats: PyTree  # running statistics of discounted returns; None when off
    control: PyTree = ()  # adaptive learning rate and KL coefficient (learning/kl_control.py); () when off
    critic: PyTree = ()  # state of the critic, such as PopArt's statistics (critics/); () if it has none


class ActorState(NamedTuple):
    """State of collection: environments, current observations, carries and running episodes."""

    env_state: PyTree
    obs: PyTree  # [B, ...] observation of the next action
    first: Array  # [B]
    action_mask: PyTree | None  # [B, n]
    carry: PyTree  # [B, ...]
    episode_return: Array  # [B] of the running episode, undiscounted
    episode_length: Array  # [B] of the running episode, in steps
    reward_trace: Array  # [B] running discounted return, for reward normalisation


@part
class TrainState:
    """Complete state of a training run, as saved in a checkpoint."""

    learner: LearnerState
    actor: ActorState
    key: Key
    iteration: Array  # [] int32, iterations done
    env_steps: Array  # [2] uint32, valid steps done: low and high word (arrays/counter.py)
    num_steps: int = static()  # length of a rollout
    iterations_per_env_reset: int | None = static(default=None)  # None: only at the run's start (collection.restart)


class EnvReset(NamedTuple):
    """Result of `Environment.reset`: one environment, no batch axis."""

    state: PyTree
    obs: PyTree  # [A, ...] with an agent axis, else [...]
    action_mask: PyTree | None = None
    global_state: PyTree | None = None  # input of a centralised critic: arrays without an agent axis


class EnvStep(NamedTuple):
    """Result of `Environment.step`: one environment, no autoreset. With agents, reward and flags are [A]."""

    state: PyTree
    obs: PyTree
    reward: Array  # [] or [A] float32
    terminated: Array  # [] or [A] bool
    truncated: Array  # [] or [A] bool
    action_mask: PyTree | None = None
    global_state: PyTree | None = None


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


class VectorStep(NamedTuple):
    """Result of one step of every stream, with next-step autoreset."""

    state: PyTree
    obs: PyTree  # [B, ...] next observation: final or first of an episode too
    reward: Array  # [B]
    terminated: Array  # [B]
    truncated: Array  # [B]
    valid: Array  # [B] False: autoreset step or absent agent, the action was ignored
    first: Array  # [B] `obs` is the first of an episode
    action_mask: PyTree | None = None  # [B, n]


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


class Outputs(NamedTuple):
    """Outputs of a network's heads for one feature vector."""

    distribution: Distribution
    value: Array  # [num_values] value outputs: the critic computes V from them


class Memory(NamedTuple):
    """Result of `Network.remember`: next carry and output features."""

    carry: PyTree
    features: PyTree  # [L, ...]


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


class Advantage(Protocol):
    """Advantage estimator protocol: advantages and value targets of one stream."""

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] from steps [T], V of each next observation [T] and `ratio` [T].

        `ratio` is the probability of each action under the current policy over that under the policy that acted;
        None: 1.
        """


class LossOutput(NamedTuple):
    """Scalar loss, and metrics: means over valid rows, or extremes that `arrays.metrics.reduced` declares."""

    loss: Array
    metrics: Mapping[str, Array]


class Loss(Protocol):
    """Loss protocol: the objective of one gradient step. `PPO.kl` reads its metric `approx_kl`."""

    def __call__(self, distribution: Any, value_error: Array, batch: Batch) -> LossOutput:
        """Loss of rows [N] from the current policy's distribution, the critic's per-row losses [N] and the batch.

        Rows are weighted as in `losses.base.objective`.
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


class ConfigError(ValueError):
    """Invalid configuration; the message says what to write instead."""
