"""Protocols with shapes: agents, the parts of an agent, environments, backends, and what a run calls at its log rows.

Axes as in `types.py`: T steps of a rollout, B streams, M sequences of L steps, N = M * L flat rows.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import (
    ActorState,
    Batch,
    Decision,
    EnvReset,
    EnvStep,
    ForwardPass,
    Gathered,
    Key,
    Memory,
    Metrics,
    MinibatchIndices,
    Outcome,
    Outputs,
    Params,
    PyTree,
    Requirements,
    Rollout,
    Scalar,
    StepResult,
    Targets,
    TrainState,
    Transition,
    Update,
)


class Agent(Protocol):
    """Agent protocol: act in all streams and learn from their rollouts. PPO, Independent, Groups and SelfPlay.

    `learner` is the agent's own tree of what it has learned: LearnerState, a dict of them by group, or SelfPlayState.
    With groups, observations, actions, masks and carries are dicts by group, [E * A_g, ...] each.
    """

    @property
    def requires(self) -> Requirements:
        """Number of agents, groups and number of environments that the environment must have."""

    @property
    def sharing(self) -> str:
        """Parameter sharing as in run files: "shared" or "independent"."""

    @property
    def pool(self) -> Any:
        """Settings of self-play (agents.self_play.Pool); None without self-play."""

    @property
    def program(self) -> Any:
        """Layout of the compiled program (devices.layout.Program); of groups, the first one's."""

    @property
    def num_epochs(self) -> int:
        """Epochs of one update; of groups, the largest number."""

    def init(self, observation_space: Any, key: Key) -> PyTree:
        """Create a learner for observations of this space; ConfigError where options contradict each other."""

    def act(
        self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key
    ) -> Decision:
        """Sample an action for every stream; arguments are [B, ...], `key` is one key or [B]."""

    def policy(self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None) -> ForwardPass:
        """Return distribution, value and next carry for the current observation of every stream, [B, ...]."""

    def evaluate_rollout(self, learner: Any, steps: Transition) -> tuple[Array, Array]:
        """Return V and action log-probability, both [T, B], of the steps [T, B] of a rollout, from stored carries."""

    def update(self, learner: Any, rollout: Rollout, key: Key) -> Update:
        """Learn from one rollout [T, B]; `key` is one key, or [num_epochs]."""

    def annealed(self, progress: Array, env_steps: Array) -> Self:
        """Return this agent with schedules applied at `progress` of training, in [0, 1], after `env_steps` steps."""

    def initial_carry(self, num_streams: int) -> PyTree:
        """Return the memory at the start of an episode, [B, ...]."""

    def start_carry(self, num_streams: int) -> PyTree:
        """Return the carry at the start of collection, [B, ...]: the memory, and states of acting (`Acting`).

        `policy` and `act` take either; from a memory alone `act` draws independent noise, and the policy acts alone.
        """

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the first states of extensions for each stream, [B, ...], by name; with groups by group first."""

    def sequence_length(self, num_steps: int) -> int:
        """Return the number of steps between two carries that a rollout stores."""

    def discount(self, num_streams: int) -> Scalar:
        """Return the discount factor of the streams' rewards, [] or [B]."""

    def learners(self, num_streams: int) -> tuple[tuple[Any, int], ...]:
        """Return every PPO that is trained, with the number of streams that it is trained on.

        There is one for each group, in the order of `requires.sizes`; without groups, one.
        """

    def check(self) -> None:
        """Raise ConfigError for numbers that contradict each other; they must be concrete, without tracers."""


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


@runtime_checkable
class MadeForSpaces(Protocol):
    """Protocol of classes of parts whose instances are made for the spaces of an environment, as networks are."""

    def for_spaces(self, env: Any, **options: Any) -> Any:
        """Return a part, by a class method; `env` has `observation_space` and `action_space`."""


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


class Adapted(NamedTuple):
    """State of the critic, and the change of the value head that goes with it; None: no change."""

    state: PyTree
    rescale: Rescale | None


class Rescale(NamedTuple):
    """Change of the value head's last layer: its outputs become scale * outputs + shift."""

    scale: Scalar  # []
    shift: Scalar  # [] or [num_values]


class Advantage(Protocol):
    """Advantage estimator protocol: advantages and value targets of one stream."""

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Targets [T] from steps [T], V of each next observation [T] and `ratio` [T].

        `ratio` is the probability of each action under the current policy over that under the policy that acted;
        None: 1.
        """


class Loss(Protocol):
    """Loss protocol: policy objective of each row. Value and entropy terms are added in `losses.total_loss`."""

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Terms of rows [N] from the current policy's distribution and the batch; its advantages are standardised.

        Rows are neither masked nor weighted here: `losses.total_loss` takes the means.
        """


class PolicyTerms(NamedTuple):
    """Per-row terms of a policy objective, all [N]."""

    loss: Array  # minimised; its mean is the metric `policy_loss`
    log_ratio: Array  # log of the probability ratio, current policy over the policy that acted
    metrics: Mapping[str, Array] = {}  # further diagnostics, logged by name


class Minibatches(Protocol):
    """Minibatch protocol: draw the sequences of every gradient step of an epoch."""

    @property
    def num_minibatches(self) -> int:
        """Gradient steps in one epoch."""

    def size(self, sequences: int) -> int:
        """Sequences in each minibatch, padding included, from a rollout of `sequences`; ConfigError if impossible."""

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Draw indices [num_minibatches, size] of sequences from a batch [M, L]; index M is padding."""


class GradientRule(Protocol):
    """Gradient protocol: gradient of a gradient step, from that of the minibatch's loss at any parameters."""

    def __call__(
        self, gradient: LossGradient, gradient_at: Callable[[Params], LossGradient], params: Params
    ) -> LossGradient:
        """Gradient [P] for the optimiser, before clipping, and further metrics; those of `gradient` are logged anyway.

        `gradient` is that of the loss at `params`, `gradient_at` computes it at other parameters: a forward and a
        backward pass over the whole minibatch, also with several devices and with gradient accumulation.
        """


class LossGradient(NamedTuple):
    """Gradient of a minibatch's loss, all terms included, and metrics by name, [] each."""

    vector: Array  # [P] in the order of `jax.flatten_util.ravel_pytree(params)`
    metrics: Mapping[str, Array] = {}  # logged as means over gradient steps, or as `arrays.metrics.reduced` declares


class Optimizer(Protocol):
    """Optimiser protocol: learning rate -> optax.GradientTransformation."""

    @property
    def elementwise(self) -> bool:
        """Whether the optimiser works on the flattened parameter vector; otherwise it gets the parameter tree."""

    def __call__(self, learning_rate: Scalar) -> Any:
        """Transformation for one learning rate."""


Schedule = Callable[[Any, Array, Array], Any]  # (agent, progress in [0, 1], env-steps so far) -> agent


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


class Backend(Protocol):
    """Backend protocol: all that differs between environments in compiled programs and on the host.

    There is one class for each kind of environment (training/backends.py); an instance serves one environment.
    """

    @property
    def name(self) -> str:
        """Kind of the environment: "compiled" or "host"."""

    @property
    def repeatable(self) -> bool:
        """Whether the same rollout can be collected again from its actor state and key."""

    @property
    def copyable(self) -> bool:
        """Whether further environments of the same kind can be made."""

    @property
    def factories(self) -> tuple[Callable[..., Any], ...] | None:
        """Functions that make host environments; None: the environment is a tree of parts, which can be compared."""

    @property
    def source(self) -> Callable[..., Any] | None:
        """The one function of the user's that makes each host environment; None where there is none."""

    def compile(self, agent: Agent, state: TrainState, stop: threading.Event | None = None) -> Training:
        """Compile training ahead of time; a loop on the host ends after the current iteration when `stop` is set."""

    def metric_names(self, agent: Agent, state: TrainState) -> tuple[str, ...]:
        """Return the names of the training metrics, without compiling; `state` may be shapes."""

    def rollouts(self, agent: Agent, state: TrainState) -> Callable[[PyTree, ActorState, Key], Gathered]:
        """Return a function of (learner, actor, key) that collects a rollout of `state.num_steps` steps."""

    def episodes(
        self, agent: Agent, learner: PyTree, episodes: int, deterministic: bool, max_steps: int
    ) -> contextlib.AbstractContextManager[WholeEpisodes]:
        """Return whole episodes, each cut after `max_steps` steps; of `learner` only shapes are read."""

    def scene(
        self, agent: Agent, learner: PyTree, key: Key, deterministic: bool
    ) -> contextlib.AbstractContextManager[Scene]:
        """Return the scene of one environment, which is closed afterwards; ConfigError if it cannot be rendered."""

    def first_picture(self, key: Key) -> np.ndarray:
        """Render the first state of one new environment; ConfigError if it cannot be rendered."""

    def copies(self, num_envs: int) -> contextlib.AbstractContextManager[Any]:
        """Return `num_envs` environments of the same kind, which are closed afterwards."""

    def clock(self, program: Any) -> Any:
        """Return a timer of the stages of a compiled training (host.timing.Clock); None if they cannot be timed."""


class Training(Protocol):
    """Compiled training protocol: called like `ppax.train`."""

    overlap: int  # 1: host rollouts are collected during the update from the previous rollout
    chunk_seconds: float  # an interruptible call returns after the iteration in which this time is exceeded
    compile_seconds: float
    metric_names: tuple[str, ...]

    @property
    def collect_seconds(self) -> float | None:
        """Seconds that the latest call spent on rollouts; None where they cannot be separated from updates."""

    def __call__(
        self, agent: Any, env: Any, state: TrainState, num_iterations: int, total_iterations: int | None = None
    ) -> Any:
        """Run `num_iterations` iterations; the result is that of `ppax.train`."""


class WholeEpisodes(Protocol):
    """Evaluation protocol: a fixed number of whole episodes, on environments of its own; programs compile once."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the environment's metrics."""

    def __call__(self, learner: Any, key: Key) -> Outcome:
        """Play the episodes with this learner, from fresh resets; equal keys give equal episodes."""


class Scene(Protocol):
    """Scene protocol: one environment with the policy that acts in it, rendered step by step."""

    def picture(self) -> np.ndarray:
        """Render the current state, [H, W, 3]."""

    def move(self, t: int) -> StepResult:
        """Act and step, for the `t`-th time; after the end of an episode, start the next one instead (autoreset)."""


Row = dict[str, Any]  # log row: numbers by name, among them `iteration` and `env_steps`; NaN for metrics without data


class Callback(Protocol):
    """Callback protocol: a function called at every log row, after the loggers and before the row's checkpoint."""

    def __call__(self, state: TrainState, row: Row, /) -> bool | None:
        """Return True to end the run after this row; it goes on after False and None.

        `row` has the metrics since the row before, `state` is the state after them. The next iterations reuse the
        memory of `state` (buffer donation): copy what you keep. An exception ends the run, and `fit` raises it.
        """


@runtime_checkable
class Logger(Protocol):
    """Logger protocol: receives every log row, in order, before the callbacks."""

    def log(self, row: Row) -> None:
        """Log one row. After an exception this logger gets no more rows: the run goes on, with a warning."""

    def close(self) -> None:
        """Release resources. Called once, at the end of the run, also of a run that failed."""


class LoggerPart(Protocol):
    """Logger part protocol: settings of a logger in a run file, hashable; `open` makes the logger of one run."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Kinds of artifacts that its loggers store."""

    def require(self, run_dir: object) -> None:
        """Raise ImportError, with the extra to install, or ConfigError if it needs a directory and there is none."""

    def open(self, run: LoggedRun) -> FileLogger:
        """Open the logger of `run`; it is closed at the end. An exception is handled as one of `Logger.log`."""


class LoggedRun(NamedTuple):
    """Run as its loggers see it at a start: names, options, and where it goes on."""

    name: str  # of the run directory, or of the environment
    path: Path | None  # run directory
    id: str  # of the run, in its directory; "" without one
    options: Mapping[str, Any]  # values by dotted path
    run_file: str  # text of the run file
    iteration: int  # iterations done; above 0: the run is resumed
    env_steps: int  # steps done


class FileLogger(Logger, Protocol):
    """Logger protocol of parts: logs rows and stores files."""

    def store(self, artifact: Artifact) -> None:
        """Store files of a kind that its part names. An exception is handled as one of `log`."""


class Artifact(NamedTuple):
    """Files of a run that belong together, for loggers that store files."""

    kind: str  # "policy" or "film"
    files: Mapping[str, Path]  # files by name
    env_steps: int  # at which they were made


@runtime_checkable
class StopCondition(Protocol):
    """Stop condition protocol: a value that may be used in many runs; its state is passed in and returned."""

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that it reads."""

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """State after a log row, from the state before it; `ConditionState()` before the first row."""


class ConditionState(NamedTuple):
    """State of a stop condition after a row: the verdict, and numbers that the next update compares with."""

    met: bool = False
    reason: str = ""  # conditions that are met, with the values of their metrics; "" if not met
    reference: float = math.nan  # value that later rows are compared with; NaN before the first one
    rows: int = 0  # consecutive rows that the comparison has held
    parts: tuple[Any, ...] = ()  # states of the conditions that it combines


@runtime_checkable
class Search(Protocol):
    """Search protocol: settings in the table `[search]`, hashable; decides over the members of a sweep as they train.

    Decisions are a pure function of the settings and of the standings: a resumed sweep makes them again.
    """

    @property
    def perturbs(self) -> bool:
        """Whether it is of populations: it decides over the members of each program, and returns `Copy`.

        Only traced numbers can be swept then. Others decide over all members at once, after all programs have trained
        to the same iteration, and return `Stop`.
        """

    def check(self, members: int, total: int) -> None:
        """Raise ConfigError where a sweep of `members` members and `total` iterations is too small for it."""

    def next_after(self, iteration: int, total: int) -> int:
        """Return the iteration of the next decisions after `iteration`; `total` or more: none before the end."""

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return decisions, at most one for each member that trains; the others go on."""


class Standings(NamedTuple):
    """Inputs of a search's decisions at an iteration: all that they may depend on."""

    iteration: int  # iterations done
    total: int  # iterations of the whole training
    members: int  # of the whole sweep, with those that train no more
    scores: Mapping[int, float]  # by number, of those that train, in this order; NaN where no episode ended
    values: Mapping[int, Mapping[str, Any]]  # of the swept options now, by number and dotted path
    swept: Mapping[str, Any]  # tuple of values, or distribution, of each swept option, as in the sweep's table
    limits: Mapping[str, Mapping[str, float]]  # low, high and above of each swept option that has any


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
