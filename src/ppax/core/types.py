"""Types of the data that parts pass to each other; `ppax.protocols` has the interfaces of the parts.

Axes: T steps of a rollout, B = num_envs * num_agents streams (one agent in one environment each), M = T * B / L
sequences of L steps, m of them in a minibatch, N = m * L flat rows in its loss, E environments, A agents.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from ppax.core.parts import number as number
from ppax.core.parts import part as part
from ppax.core.parts import static as static

PyTree = Any
Key = Array  # typed PRNG key: jax.random.key
Scalar = float | Array  # number in an equation: a float, or a traced array in a sweep or a schedule
Params = PyTree
Metrics = dict[str, Array]


@part
class Transition:
    """Steps of B streams (one agent in one environment each), T of each, as arrays with leading axes [T, B].

    After `to_sequences` the leading axes are [M, L], in a loss [N].
    """

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
    final_value: Array | None = None  # [T, B] V of a truncated episode's last observation; None: the next row's value
    extras: PyTree = ()  # [T, B, ...] further inputs of each row by extension, in an update; () if there are none

    @property
    def ended(self) -> Array:
        """Whether an episode terminated or was truncated with this step, [T, B]: traces and sums end there."""
        return self.terminated | self.truncated


class Played(NamedTuple):
    """Record [T, B] of every step, in the order of play, of an environment whose agents act in turns.

    Returns of episodes and ratings of self-play are computed from this record. The rollout, from which an update
    learns, has only the steps in which a player (an agent inside the environment) acts, each with all rewards until
    that player's next decision.
    """

    reward: Array  # [T, B]
    terminated: Array  # [T, B]
    truncated: Array  # [T, B]
    first: Array  # [T, B] the stream has not acted in its episode before
    valid: Array  # [T, B] the stream acts; False: it waits for others, is absent or is reset
    until: Array  # [T, B] for each row of the rollout, the last step whose reward it has

    @property
    def ended(self) -> Array:
        """Whether an episode terminated or was truncated with this step, [T, B]."""
        return self.terminated | self.truncated


class Rollout(NamedTuple):
    """Steps of all streams that an update learns from: `num_steps` of each stream (one agent in one environment)."""

    steps: Transition  # [T, B]
    last_value: Array  # [B] V of the observation after the last step
    reward_trace: Array  # [T, B] running discounted return, for reward normalisation
    last_obs: PyTree = None  # [B, ...] observation after the last step
    extensions: PyTree = ()  # [B, ...] `ActorState.extensions` before the rollout
    played: Played | None = None  # of an environment in which agents act in turns; None: all steps are rows


class Targets(NamedTuple):
    """Result of an advantage estimator: advantages for the policy, regression targets for the critic."""

    advantage: Array  # [T] for one stream
    value: Array  # [T] value target


class Batch(NamedTuple):
    """Rollout and targets of an update, cut into M sequences of L steps [M, L], or flattened to rows [N] for a loss."""

    steps: Transition  # [M, L] or [N]
    targets: Targets
    weights: Any = None  # losses.RowWeights [N], in a loss; None: 1 for every row


class MinibatchIndices(NamedTuple):
    """Indices of the sequences in every minibatch of an epoch; index M of M sequences is padding."""

    index: Array  # type: ignore[assignment]  # [num_minibatches, m]
    weight: Array | None = None  # [num_minibatches, m] importance weights on the whole loss; None: 1
    advantage_weight: Array | None = None  # [num_minibatches, m] on the advantages alone; None: 1


class Decision(NamedTuple):
    """Actions that a policy chose for one step of each of B streams, with their log-probabilities and values.

    A stream is one agent in one environment.
    """

    carry: PyTree  # [B, ...] after this observation
    action: PyTree  # [B, ...] as sampled; stored in the rollout
    env_action: PyTree  # [B, ...] as passed to the environment; inside its action space
    log_prob: Array  # [B]
    value: Array  # [B]


class ForwardPass(NamedTuple):
    """Result of a network's forward pass: action distributions, value outputs, V, and the memory's next carry.

    In an update, the inputs are m sequences of L steps, and the results of all steps are N = m * L rows, sequence by
    sequence. In acting, the inputs are one step of each of B streams: m = N = B.
    """

    carry: PyTree  # [m, ...] after each sequence
    distribution: Any  # [N] rows: m * L steps
    value_outputs: Array  # [N, num_values] of the network's value head
    value: Array  # [N] V
    features: PyTree = ()  # [N, ...] input of `Network.decide`
    noise_basis: PyTree = ()  # [N, F, d] `Outputs.noise_basis`


class Update(NamedTuple):
    """Result of an agent's update: the new learner, metrics, and what the update changes in streams.

    A stream is one agent in one environment. In self-play, `current` says in which streams the current learners act,
    and `replaced` in which streams a past self was exchanged. `extensions` are the new states of the agent's extensions
    in each stream.
    """

    learner: PyTree
    metrics: Any  # arrays.metrics.Table
    current: Array | None = None  # [B] streams of current learners, whose episodes are logged; None: all
    replaced: PyTree | None = None  # by group [E * A_g] past selves that were replaced: carries restart; None: none
    extensions: PyTree = ()  # [B, ...] the next `ActorState.extensions`


class Requirements(NamedTuple):
    """Sizes that an agent requires of its environment; None stands for any number."""

    num_agents: int | None = None
    sizes: tuple[tuple[str, int], ...] = ()  # name and number of agents of each group; () without groups
    num_envs: int | None = None


class Episodes(NamedTuple):
    """Number, and sums of returns, lengths and metrics, of the episodes that each of B streams finished in a rollout.

    A stream is one agent in one environment.
    """

    count: Array  # type: ignore[assignment]  # [B] number of finished episodes
    return_sum: Array  # [B] sum of their undiscounted returns
    length_sum: Array  # [B] sum of their lengths, in steps
    return_squares: Array  # [B] sum of squared deviations of their returns from the stream's mean
    return_min: Array  # [B] smallest return; undefined without an episode
    return_max: Array  # [B] largest return
    metrics: Mapping[str, Array] = {}  # [B] sums of the environment's metrics at their last steps
    running_metrics: Mapping[str, Array] = {}  # [B] its metrics at the rollout's last step, where an episode may run on


class ExtensionState(NamedTuple):
    """State of an extension of PPO (such as an intrinsic reward) within a learner."""

    state: PyTree = ()  # networks, optimiser, statistics; () if it has none
    params: Params = ()  # trained by the loss with the network's; () if it has none


class LearnerState(NamedTuple):
    """State of learning that `update` reads and changes: parameters, optimiser state, running statistics."""

    params: Params  # of the network
    opt_state: PyTree
    obs_stats: PyTree  # running statistics of observations; None when off
    reward_stats: PyTree  # running statistics of discounted returns; None when off
    critic: PyTree = ()  # state of the critic, such as PopArt's statistics (ppo/critics.py); () if it has none
    extensions: Mapping[str, ExtensionState] = {}  # of each extension, by name


# Fields of a LearnerState that acting does not read, with the empty values that replace them
OF_LEARNING: Mapping[str, Any] = {"opt_state": (), "reward_stats": None, "extensions": {}}


class ActorState(NamedTuple):
    """State of collection: environments, current observations, carries (memories' states) and running episodes."""

    env_state: PyTree
    obs: PyTree  # [B, ...] observation of the next action
    first: Array  # [B]
    action_mask: PyTree | None  # [B, n]
    carry: PyTree  # [B, ...]
    episode_return: Array  # [B] of the running episode, undiscounted
    episode_length: Array  # [B] of the running episode, in steps
    reward_trace: Array  # [B] running discounted return, for reward normalisation
    extensions: PyTree = ()  # [B, ...] states of each extension by name; by group with groups


class Collected(NamedTuple):
    """Result of collecting a rollout: the next actor state, the rollout, and statistics of the episodes that ended."""

    actor: ActorState
    rollout: Rollout
    episodes: Episodes


class Gathered(NamedTuple):
    """Rollout, with the actor state before it (`start`) and, in `collected`, the actor state after it.

    `start` is the actor state that the caller passed to the function of `Backend.rollouts`. It differs only if host
    environments were not in that state, as after a resume, and had to be reset.
    """

    start: ActorState
    collected: Collected


class Outcome(NamedTuple):
    """Results of evaluation episodes, one entry of each array [episodes] for each episode."""

    returns: np.ndarray
    lengths: np.ndarray
    finished: np.ndarray  # False: cut at `max_steps`; also of an agent that did not appear, whose length is 0
    terminated: np.ndarray  # ended by the environment; the other finished ones were truncated
    final_rewards: np.ndarray  # reward of the last step
    agents: np.ndarray | None  # index of the agent that played it; None: 0, 1, ..., repeating
    metrics: dict[str, np.ndarray]  # of the environment, at the last steps
    # number of the game (the environment's episode), the same for agents who played in it together; -1: a game beyond
    # those that were asked for, which is played where an agent did not appear in one of them
    games: np.ndarray
    unplayed: int  # number of episodes not played, as their agent did not appear within `max_steps`


class StepResult(NamedTuple):
    """Reward and flags of one step of an environment that is rendered, such as for a film."""

    reward: np.ndarray  # [A]
    counts: bool  # False: an autoreset step, which is not counted
    ended: bool  # the episode ended with this step


@part
class TrainState:
    """Complete state of a training run, as saved in a checkpoint."""

    learner: PyTree  # of the agent: a LearnerState, or a tree of them
    actor: ActorState
    key: Key
    iteration: Array  # [] int32, iterations done
    env_steps: Array  # [2] uint32, valid steps done: low and high word (arrays/counter.py)
    num_steps: int = static()  # length of a rollout
    iterations_per_env_reset: int | None = static(default=None)  # None: only at the start (collection.force_reset)
    ranges: PyTree = ()  # ranges of the environment's numbers that adapt (envs/adaptive_ranges.py); () without


class EnvReset(NamedTuple):
    """Result of resetting one environment: state and first observation, without a batch axis."""

    state: PyTree
    obs: PyTree  # [A, ...] with an agent axis, else [...]
    action_mask: PyTree | None = None
    global_state: PyTree | None = None  # input of a centralised critic: arrays without an agent axis


class EnvStep(NamedTuple):
    """Result of one step of one environment, without autoreset.

    With an agent axis, rewards, flags and metrics are [A].
    """

    state: PyTree
    obs: PyTree
    reward: Array  # [] or [A] float32
    terminated: Array  # [] or [A] bool
    truncated: Array  # [] or [A] bool
    action_mask: PyTree | None = None
    global_state: PyTree | None = None
    # [] or [A] numbers by name, such as "is_success"; their values at an episode's last step are logged, as means
    metrics: Mapping[str, Array] = {}


class VectorStep(NamedTuple):
    """Result of one step of each of B streams, with next-step autoreset.

    A stream is one agent in one environment. The step after the end of an episode ignores its action and resets.
    """

    state: PyTree
    obs: PyTree  # [B, ...] next observation: may be the last of an episode, or the first of the next
    reward: Array  # [B]
    terminated: Array  # [B]
    truncated: Array  # [B]
    valid: Array  # [B] False: autoreset step or absent agent, the action was ignored
    first: Array  # [B] `obs` is the first of an episode
    action_mask: PyTree | None = None  # [B, n]
    metrics: Mapping[str, Array] = {}  # [B] float32
    logged: Array | None = None  # [B] False: an episode that ends with this step is not logged; None: all are


class Outputs(NamedTuple):
    """Outputs of a network's heads for one feature vector: action distribution and value outputs."""

    distribution: Any  # a `protocols.Distribution`
    value: Array  # [num_values] value outputs: the critic computes V from them
    noise_basis: Any = ()  # [F, d] of gSDE (extensions/held_noise.py); () without


class Acting(NamedTuple):
    """Carry of a policy during collection, if extensions act: the network's memory and the extensions' states.

    A carry is what is passed from one step to the next.
    """

    memory: PyTree  # [B, ...] carry of the network
    extensions: Mapping[str, PyTree]  # [B, ...]


class Memory(NamedTuple):
    """Result of running a network's memory over a sequence: the next recurrent state and output features [L, ...]."""

    carry: PyTree
    features: PyTree  # [L, ...]


class LossOutput(NamedTuple):
    """Result of a loss: the scalar, and metrics by name, each a mean over valid rows, a minimum or a maximum.

    Minima and maxima are declared by `arrays.metrics.reduced`. A row is valid if it is no autoreset step.
    """

    loss: Array
    metrics: Mapping[str, Array]


def printable(text: str, kept: str = "") -> str:
    """Return `text` with each control character, which could change how a terminal shows it, replaced by U+FFFD.

    Characters in `kept` are not replaced.
    """
    return "".join(sign if sign.isprintable() or sign in kept else "\N{REPLACEMENT CHARACTER}" for sign in text)


class Quoting(Exception):
    """Error whose message may quote a file from somebody else, so that control characters in it are replaced."""

    def __str__(self) -> str:
        return printable(super().__str__(), "\n\t")


class ConfigError(Quoting, ValueError):
    """Error of an invalid configuration, whose message says what to write instead."""
