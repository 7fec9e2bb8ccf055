"""Protocol of agents."""

from __future__ import annotations

from typing import Any, Protocol, Self

from jax import Array

from ppax.core.types import Decision, ForwardPass, Key, PyTree, Requirements, Rollout, Scalar, Transition, Update


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
        """Settings of self-play (agents.opponents.Pool); None without self-play."""

    @property
    def program(self) -> Any:
        """Layout of the compiled program (program.layout.Program); of groups, the first one's."""

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
