"""Protocols with the shapes of arrays: agents, their parts, environments, backends, loggers, callbacks and searches.

Axes as in `types.py`: T steps of a rollout, B streams (a stream is one agent in one environment), M sequences of L
steps, m of them in a minibatch, N = m * L flat rows in its loss.
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
    """Protocol of agents, which act in all streams and learn from their rollouts.

    PPO, Independent, Groups and SelfPlay are agents. A stream is one agent in one environment. `learner` is the agent's
    own tree of what it has learned: LearnerState, a dict of them by group, or SelfPlayState. With groups, observations,
    actions, masks and carries are dicts by group, of arrays [E * A_g, ...] for E environments with A_g agents of the
    group each.
    """

    @property
    def requires(self) -> Requirements:
        """Requirements of this agent on its environment: number of agents, groups with their sizes, and `num_envs`."""

    @property
    def sharing(self) -> str:
        """Sharing of parameters among the players, agents inside one environment: "shared" or "independent"."""

    @property
    def pool(self) -> Any:
        """Settings of self-play, an `agents.self_play.Pool`; None for an agent without self-play."""

    @property
    def program(self) -> Any:
        """Layout in which this agent's training program is compiled: devices, chunks of a minibatch, unrolling.

        It is a `devices.layout.Program`. An agent made of several groups of agents returns that of its first group.
        """

    @property
    def num_epochs(self) -> int:
        """Number of epochs in one update of this agent; of an agent of groups, the largest number."""

    def init(self, observation_space: Any, key: Key) -> PyTree:
        """Return a new learner for observations of this space; raise ConfigError where options contradict each other.

        The learner is the tree of what is learned: parameters, optimiser state and running statistics.
        """

    def act(
        self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key
    ) -> Decision:
        """Return a sampled action for every stream, with its log-probability, value and next carry.

        A stream is one agent in one environment; the arguments are [B, ...] for B streams. `first` says where an
        episode begins, so that the carry (the policy's memory) restarts. `key` is one key or [B].
        """

    def policy(self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None) -> ForwardPass:
        """Return distribution, value and next carry for the current observation of each of the B streams, all [B, ...].

        A stream is one agent in one environment. `first` says where an episode begins, so that the carry (the policy's
        memory) restarts.
        """

    def evaluate_rollout(self, learner: Any, steps: Transition) -> tuple[Array, Array]:
        """Return V and the log-probability of the action, both [T, B], of each step of a rollout, under `learner`.

        Memories start from the carries (recurrent states) that the rollout stores.
        """

    def update(self, learner: Any, rollout: Rollout, key: Key) -> Update:
        """Return the learner after one update from a rollout [T, B], with its metrics.

        `key` is one key, or one for each epoch, [num_epochs].
        """

    def annealed(self, progress: Array, env_steps: Array) -> Self:
        """Return this agent with schedules applied at `progress` of training, in [0, 1], after `env_steps` steps."""

    def initial_carry(self, num_streams: int) -> PyTree:
        """Return the policy's memory at the start of an episode, [B, ...] for B streams; () without a memory."""

    def start_carry(self, num_streams: int) -> PyTree:
        """Return the carry (state of memory and extensions) of B streams at the start of collection, [B, ...].

        A stream is one agent in one environment. If no extension takes part in acting, the carry is the network's
        memory, as from `initial_carry`. Otherwise it is an `Acting`: the memory and the extensions' states, such as
        held noise. `policy` and `act` take either. If `act` is given the memory only, no extension takes part, and
        noise is drawn anew at each step.
        """

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the first states of the agent's extensions in B streams, [B, ...], a dict by the extension's name.

        A stream is one agent in one environment. An agent of groups returns a dict by group of such dicts.
        """

    def sequence_length(self, num_steps: int) -> int:
        """Return L: a rollout of `num_steps` steps stores the carry (state of the memory) once every L steps."""

    def discount(self, num_streams: int) -> Scalar:
        """Return the discount factor of rewards, [] for all of the B streams or [B] for each.

        A stream is one agent in one environment.
        """

    def learners(self, num_streams: int) -> tuple[tuple[Any, int], ...]:
        """Return each PPO that this agent trains, paired with the number of streams that it is trained on.

        A stream is one agent in one environment. There is one PPO for each group, in the order of `requires.sizes`;
        without groups, one.
        """

    def check(self) -> None:
        """Raise ConfigError where numbers in this agent's settings contradict each other.

        The numbers must be concrete, not tracers.
        """


class Network(Protocol):
    """Protocol of networks: encode one observation, remember over a sequence, decide from one feature vector."""

    def init(self, key: Key, num_values: int = 1) -> Params:
        """Return new parameters, a nested dict of arrays; the value head has `num_values` outputs."""

    def initial_carry(self) -> PyTree:
        """Return the memory's carry (recurrent state) of one stream at the start of an episode; () without a memory.

        A stream is one agent in one environment.
        """

    def encode(self, params: Params, obs: PyTree) -> PyTree:
        """Return the features of one observation; neither has a batch or time axis."""

    def remember(self, params: Params, carry: PyTree, features: PyTree, first: Array) -> Memory:
        """Return output features [L, ...] and next carry of the memory, run over one stream's features [L, ...].

        A stream is one agent in one environment; the carry is the recurrent state, reset before each step where `first`
        [L] is True.
        """

    def decide(self, params: Params, features: PyTree, action_mask: PyTree | None) -> Outputs:
        """Return the action distribution and the value outputs for one feature vector.

        Where `action_mask` is None, every action is allowed.
        """

    def rescale_value(self, params: Params, scale: Scalar, shift: Scalar) -> Params:
        """Return parameters whose value outputs are scale * (old outputs) + shift.

        `scale` is [], and `shift` is [] or [num_values].
        """


class Distribution(Protocol):
    """Protocol of distributions over actions.

    Their arrays may have leading batch axes; results have the same batch axes.
    """

    def sample(self, key: Key) -> PyTree:
        """Return a sampled action, before squashing and clipping into the action space."""

    def log_prob(self, action: PyTree) -> Array:
        """Return the log-probability, or log-density, of an action as `sample` returns it, for each batch entry."""

    def entropy(self) -> Array:
        """Return the entropy of this distribution in nats; one number for each entry of its batch axes."""

    def mode(self) -> PyTree:
        """Return the most likely action, which a deterministic policy takes, in the form that `sample` returns."""

    def kl(self, other: Any) -> Array:
        """Return the KL divergence KL(self || other), in nats; `other` is of the same class."""

    def env_action(self, action: PyTree) -> PyTree:
        """Return the action for the environment, inside its action space, from an action as `sample` returns it."""

    def metrics(self) -> Mapping[str, Array]:
        """Return diagnostics for the log by name, one number per row: `policy_std` of continuous actions, else {}."""


@runtime_checkable
class MadeForSpaces(Protocol):
    """Protocol of classes, such as those of networks, whose instances are made for the spaces of an environment."""

    def for_spaces(self, env: Any, **options: Any) -> Any:
        """Return an instance made for `env.observation_space` and `env.action_space`.

        Classes have this as a class method. `options` are further settings of the instance.
        """


class Critic(Protocol):
    """Protocol of critics, which compute V and the value loss from the network's value outputs [num_values]."""

    @property
    def num_values(self) -> int:
        """Number of outputs that this critic needs of the network's value head."""

    def init(self) -> Adapted:
        """Return the critic's initial state, () if it has none, with the change that the initial value head needs.

        The agent applies the change to the value head's initial weights, for example so that V starts near 0; None
        stands for no change. Raises ConfigError for numbers (hyperparameters) that contradict each other.
        """

    def value(self, state: PyTree, value_outputs: Array) -> Array:
        """Return V of one observation, [], in units of the reward, from the value outputs [num_values].

        `state` is the critic's, such as running statistics of targets; () if it has none.
        """

    def error(self, state: PyTree, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Return the value loss of one row (one step of a minibatch), [], from its value outputs [num_values].

        `target` [] is the value target and `old_value` [] is V during collection, both in units of the reward.
        """

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """Return the critic's new state after a rollout with value targets [M, L], before the update's gradient steps.

        V must stay the same: if the new state would change it, the result also has a compensating change of the value
        head. `valid` [M, L] is False where a target does not count, such as at autoreset steps.
        """

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """Return the critic's metrics of one update by name, from its state and the value targets [M, L].

        A target counts where `valid` [M, L] is True.
        """


class Adapted(NamedTuple):
    """State of a critic, and the change of the value head that must go with it; `rescale` is None for no change."""

    state: PyTree
    rescale: Rescale | None


class Rescale(NamedTuple):
    """Change of the value head's last layer, whose outputs become scale * outputs + shift."""

    scale: Scalar  # []
    shift: Scalar  # [] or [num_values]


class Advantage(Protocol):
    """Protocol of advantage estimators, which return advantages and value targets of one stream.

    A stream is one agent in one environment.
    """

    def __call__(self, steps: Transition, next_value: Array, gamma: Scalar, ratio: Array | None = None) -> Targets:
        """Return advantages and value targets [T] from the steps [T] of one stream and V of each next observation [T].

        A stream is one agent in one environment; `gamma` is the discount factor. `ratio` [T] is the probability of each
        action under the current policy over that under the policy that acted; None stands for 1.
        """


class Loss(Protocol):
    """Protocol of policy losses, one number for each row (step of a minibatch).

    `losses.total_loss` takes their mean and adds the terms of values and entropy.
    """

    def __call__(self, distribution: Any, batch: Batch) -> PolicyTerms:
        """Return the policy loss of each of N rows, from the current policy's distribution and the batch of those rows.

        A row is one step of one stream. The batch's advantages are standardised already. Rows are neither masked nor
        weighted here: `losses.total_loss` takes the means.
        """


class PolicyTerms(NamedTuple):
    """Policy loss of each of N rows (steps of a minibatch), with log-ratio and diagnostics; all arrays are [N]."""

    loss: Array  # minimised; its mean is the metric `policy_loss`
    log_ratio: Array  # log of the probability ratio, current policy over the policy that acted
    metrics: Mapping[str, Array] = {}  # further diagnostics, logged by name


class Minibatches(Protocol):
    """Protocol of minibatch rules, which draw the sequences of every gradient step of an epoch."""

    @property
    def num_minibatches(self) -> int | None:
        """Number of minibatches (and of gradient steps) in one epoch; None: number of sequences divided by `size`."""

    def size(self, sequences: int, length: int) -> int:
        """Return the number of sequences in each minibatch, padding included, of a rollout of `sequences`.

        A sequence has `length` steps. Raises ConfigError where the rollout cannot be divided into minibatches of this
        size.
        """

    def __call__(self, batch: Batch, key: Key) -> MinibatchIndices:
        """Return indices [num_minibatches, size] of sequences, drawn for one epoch from a batch of M sequences [M, L].

        The index M stands for padding.
        """


class GradientRule(Protocol):
    """Protocol of a rule that computes the optimiser's gradient from gradients of the minibatch's loss.

    The rule gets the gradient at the current parameters, and may ask for it at any others.
    """

    def __call__(
        self, gradient: LossGradient, gradient_at: Callable[[Params], LossGradient], params: Params
    ) -> LossGradient:
        """Return the gradient for the optimiser, before clipping, and the rule's own metrics.

        The gradient is a vector [P] of all P parameters, in the order of `jax.flatten_util.ravel_pytree(params)`.
        `gradient` is that of the minibatch's loss at `params`; its metrics are logged by the caller. `gradient_at`
        returns the gradient at other parameters, which costs a forward and a backward pass over the whole minibatch,
        also with several devices and with gradient accumulation.
        """


class LossGradient(NamedTuple):
    """Gradient of a minibatch's loss, and the metrics of this loss by name, [] each.

    The loss includes all terms: policy, value, entropy and those of extensions.
    """

    vector: Array  # [P] in the order of `jax.flatten_util.ravel_pytree(params)`
    metrics: Mapping[str, Array] = {}  # logged as means over gradient steps, or as `arrays.metrics.reduced` declares


class Optimizer(Protocol):
    """Protocol of optimisers, functions from a learning rate to an optax.GradientTransformation."""

    @property
    def elementwise(self) -> bool:
        """Whether this optimiser may work on the flattened parameter vector; if not, it gets the parameters' tree."""

    def __call__(self, learning_rate: Scalar) -> Any:
        """Return the optax.GradientTransformation with this learning rate."""


Schedule = Callable[[Any, Array, Array], Any]  # (agent, progress in [0, 1], env-steps so far) -> agent


class Environment(Protocol):
    """Protocol of JAX environments: pure functions of (state, action, key) for one environment, without autoreset."""

    @property
    def observation_space(self) -> spaces.Space:
        """Space of one agent's observation in this environment, of Gymnasium's kinds."""

    @property
    def action_space(self) -> spaces.Space:
        """Space of one agent's action in this environment, of Gymnasium's kinds."""

    @property
    def num_agents(self) -> int | dict[str, int] | None:
        """Length of the agent axis; None without such an axis; a dict with one length for each group of agents."""

    def reset(self, key: Key) -> EnvReset:
        """Return state and observation of a new episode of one environment; `key` is its source of randomness."""

    def step(self, state: PyTree, action: PyTree, key: Key) -> EnvStep:
        """Return the result of one step of one environment.

        If `terminated` and `truncated` are both set, the step counts as terminated.
        """


class Backend(Protocol):
    """Protocol of backends: one interface for what differs between compiled environments and environments on the host.

    There is one class for each of the two kinds (training/backends.py). An instance serves one environment.
    """

    @property
    def name(self) -> str:
        """Kind of this backend's environment: "compiled" (in JAX) or "host" (in Python)."""

    @property
    def repeatable(self) -> bool:
        """Whether a rollout can be collected again from its actor state and key; True for environments in JAX."""

    @property
    def copyable(self) -> bool:
        """Whether further environments of the same kind as this backend's can be made, for example for evaluations."""

    @property
    def factories(self) -> tuple[Callable[..., Any], ...] | None:
        """Functions that each make one of the host environments, every function once; None for environments in JAX.

        They show whether a run file can name the host environments, as it can those of a library such as Gymnasium,
        without making the environments again, which could start processes. An environment in JAX is a pytree, which is
        compared with the environment made from the run file instead.
        """

    @property
    def source(self) -> Callable[..., Any] | None:
        """The user's function that makes each of the host environments; None if there are several, and in JAX.

        A run file names the environment by the import path of this function. `factories` may be wrappers of the
        function, which pass parameters to it.
        """

    def compile(self, agent: Agent, state: TrainState, stop: threading.Event | None = None) -> Training:
        """Return a function that trains `agent`, compiled ahead of time for arrays of the shapes in `state`.

        It is called like `ppax.train`. With host environments a call returns after the current iteration once `stop` is
        set; with environments in JAX `stop` is ignored.
        """

    def metric_names(self, agent: Agent, state: TrainState) -> tuple[str, ...]:
        """Return the names of the training metrics of this backend, without compiling; `state` may be shapes."""

    def rollouts(self, agent: Agent, state: TrainState) -> Callable[[PyTree, ActorState, Key], Gathered]:
        """Return a function of (learner, actor state, key) that collects a rollout of `state.num_steps` steps.

        Its result, a `Gathered`, has the rollout and the actor states before and after it.
        """

    @property
    def time_limit(self) -> int | None:
        """Steps of the agent after which a time limit truncates episodes; None if there is none, or it is not known."""

    @property
    def endless(self) -> bool:
        """Whether `terminated` and `truncated` are the constant False in the compiled step: episodes never end.

        Evaluations then need a limit of steps. The result is False where this cannot be seen, as for host environments.
        """

    def episodes(
        self, agent: Agent, learner: PyTree, episodes: int, deterministic: bool
    ) -> contextlib.AbstractContextManager[WholeEpisodes]:
        """Return a context whose value is a function that plays `episodes` whole episodes.

        The function takes (learner, key, max_steps), and cuts each episode after `max_steps` steps. It has environments
        of its own, which are closed with the context. Of `learner` only shapes are read.
        """

    def scene(
        self, agent: Agent, learner: PyTree, key: Key, deterministic: bool
    ) -> contextlib.AbstractContextManager[Scene]:
        """Return a context whose value is a Scene: one environment in which the policy acts, rendered step by step.

        The environment is closed with the context. Raises ConfigError if it cannot be rendered.
        """

    def first_picture(self, key: Key) -> np.ndarray:
        """Return a picture [H, W, 3] of the first state of a new environment.

        Raises ConfigError if it cannot be rendered.
        """

    def copies(self, num_envs: int) -> contextlib.AbstractContextManager[Any]:
        """Return a context whose value is a vectorised environment of `num_envs` copies of this backend's environment.

        It is closed when the context ends. Host environments that the user passed in cannot be copied: the value is
        these environments.
        """

    def clock(self, program: Any) -> Any:
        """Return a timer of the stages of an iteration, such as stepping and update; None for environments in JAX.

        `program` is the function that `compile` returned. The timer, a `host.timing.Clock`, measures its calls from now
        on. In JAX an iteration is one compiled program, whose stages cannot be timed.
        """


class Training(Protocol):
    """Protocol of the result of `Backend.compile`: a compiled function with the arguments and results of `ppax.train`.

    It is compiled for the shapes and static fields of one agent, environment and state.
    """

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
        """Return what `ppax.train` returns, after `num_iterations` iterations from `state`.

        `agent` and `env` may differ in numbers, such as the learning rate, from those that the function was compiled
        for, not in shapes or static fields. `total_iterations` is the length of the whole training, over which
        schedules run; None: it ends with these iterations.
        """


class WholeEpisodes(Protocol):
    """Protocol of an evaluation, which plays a fixed number of whole episodes on environments of its own.

    Programs compile once, at the first call.
    """

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the environment's metrics, such as "is_success"."""

    def __call__(self, learner: Any, key: Key, max_steps: int) -> Outcome:
        """Return the results of the whole episodes of `learner`, from fresh resets; equal keys give equal episodes.

        An episode that has not ended after `max_steps` steps is cut there.
        """


class Scene(Protocol):
    """Protocol of a scene: one environment with the policy that acts in it, rendered step by step."""

    def picture(self) -> np.ndarray:
        """Return a picture [H, W, 3] of the scene's current state."""

    def move(self, t: int) -> StepResult:
        """Return reward and flags of a new step of the scene, for which the policy chooses the action.

        The call makes the step; `t` is its number, which selects its random numbers. The step after the end of an
        episode starts the next one instead (autoreset).
        """


Row = dict[str, Any]  # log row: numbers by name, among them `iteration` and `env_steps`; NaN for metrics without data


class Callback(Protocol):
    """Protocol of callbacks: functions called at every log row, after the loggers and before the row's checkpoint."""

    def __call__(self, state: TrainState, row: Row, /) -> bool | None:
        """Return True to end the run after this row; it goes on after False and None.

        `row` has the metrics since the row before, `state` is the state after them. The next iterations reuse the
        memory of `state` (buffer donation): copy what you keep. An exception ends the run, and `fit` raises it.
        """


@runtime_checkable
class Logger(Protocol):
    """Protocol of loggers, which receive every log row, in order, before the callbacks."""

    def log(self, row: Row) -> None:
        """Log one row of metrics.

        If this raises an exception, the logger gets no more rows, and the run goes on with a warning.
        """

    def close(self) -> None:
        """Release the logger's resources. Called once, at the end of the run, also of a run that failed."""


@runtime_checkable
class FailureLogger(Protocol):
    """Protocol of a method that a logger may have, too: it is called before `close` if the run failed."""

    def fail(self, error: BaseException) -> None:
        """Note the exception with which the run ended, for services that show it. Ctrl-C is none: it stops a run."""


class LoggerPart(Protocol):
    """Protocol of the settings of a logger in a run file. They are hashable, and `open` makes the logger of one run."""

    @property
    def stores(self) -> tuple[str, ...]:
        """Kinds of artifacts (files of a run) that this part's loggers store: "policy" or "film", both, or neither."""

    def require(self, run_dir: object) -> None:
        """Raise ImportError where this logger's library is missing, ConfigError where it needs a missing run directory.

        The ImportError names the extra to install. `run_dir` is the run's directory or None.
        """

    def open(self, run: LoggedRun) -> FileLogger:
        """Return an opened logger for `run`, which its caller closes at the end.

        If this raises an exception, the run goes on without the logger, with a warning.
        """


class LoggedRun(NamedTuple):
    """Run as its loggers see it when it starts or resumes: names, options, and the step at which it goes on."""

    name: str  # of the run directory, or of the environment; of a member of a sweep SWEEP/NUMBER
    path: Path | None  # run directory
    id: str  # of the run, in its directory; "" without one
    options: Mapping[str, Any]  # values by dotted path
    run_file: str  # text of the run file
    iteration: int  # iterations done; above 0: the run is resumed; 0 also after a kill before the first checkpoint
    env_steps: int  # steps done
    group: str = ""  # sweep of which the run is a member: its name with a part that no other sweep has; "": none


class FileLogger(Logger, Protocol):
    """Protocol of loggers that a run file can name: they log rows, and store files of the run."""

    def store(self, artifact: Artifact) -> None:
        """Store the files of an artifact, whose kind is one of those in `LoggerPart.stores`.

        If this raises an exception, the logger gets nothing more, and the run goes on with a warning.
        """


class Artifact(NamedTuple):
    """Files of a run that belong together, such as those of a policy, for loggers that store files."""

    kind: str  # "policy" or "film"
    files: Mapping[str, Path]  # files by name
    env_steps: int  # at which they were made


@runtime_checkable
class StopCondition(Protocol):
    """Protocol of conditions that end a run. One condition can serve many runs, because it holds no state of a run.

    The state is passed to `update`, which returns the next one.
    """

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that this stop condition reads."""

    def update(self, before: ConditionState, state: TrainState, row: Row) -> ConditionState:
        """Return the condition's state after the log row `row`; `before` is its state after the previous row.

        At the first row, `before` is `ConditionState()`, and at the first row of a resumed run again. `state` is the
        training state at this row.
        """


class ConditionState(NamedTuple):
    """State of a stop condition after a log row: whether and why it is met, and numbers that the next update reads."""

    met: bool = False
    reason: str = ""  # conditions that are met, with the values of their metrics; "" if not met
    reference: float = math.nan  # value that later rows are compared with; NaN before the first one
    rows: int = 0  # consecutive rows that the comparison has held
    parts: tuple[Any, ...] = ()  # states of the conditions that it combines


@runtime_checkable
class Search(Protocol):
    """Protocol of searches, which decide during a sweep which of its members (runs) go on, and with what values.

    A search holds the settings of the table `[search]`, and is hashable. Its decisions are a pure function of these
    settings and of the standings (the members' scores and values), so that a resumed sweep makes them again.
    """

    @property
    def perturbs(self) -> bool:
        """Whether this search is population-based: True if it returns `Copy` decisions, False if `Stop` decisions.

        If True, it decides over the members (runs of the sweep) of one compiled program at a time, and only traced
        numbers can be swept. If False, it decides over all members at once, after all programs have trained to the same
        iteration.
        """

    def check(self, members: int, total: int) -> None:
        """Raise ConfigError where a sweep of `members` runs of `total` iterations each is too small for this search."""

    def next_after(self, iteration: int, total: int) -> int:
        """Return the iteration of the search's next decisions after `iteration`; `total` or more if none is left."""

    def decide(self, standings: Standings) -> list[Stop | Copy]:
        """Return the search's decisions, at most one for each member (run of the sweep) that still trains.

        `standings` has the members' scores and values. Members without a decision go on as they are.
        """


class Standings(NamedTuple):
    """Data for the decisions of a search at an iteration: scores and swept values of a sweep's members (runs)."""

    iteration: int  # iterations done
    total: int  # iterations of the whole training
    members: int  # of the whole sweep, with those that train no more
    scores: Mapping[int, float]  # by number, of those that train, in this order; NaN where no episode ended
    values: Mapping[int, Mapping[str, Any]]  # of the swept options now, by number and dotted path
    swept: Mapping[str, Any]  # tuple of values, or distribution, of each swept option, as in the sweep's table
    limits: Mapping[str, Mapping[str, float]]  # low, high and above of each swept option that has any


class Stop(NamedTuple):
    """Decision of a search that a member (a run of the sweep) trains no more."""

    member: int  # its number in the sweep
    reason: str


class Copy(NamedTuple):
    """Decision of a search that a member (a run of the sweep) goes on with another's learner and new swept values.

    The learner is that of the member `source`. The search chose `values` for `member`, usually by changing those of
    `source`.
    """

    member: int
    source: int
    values: Mapping[str, Any]  # of the swept options, by dotted path
    reason: str
