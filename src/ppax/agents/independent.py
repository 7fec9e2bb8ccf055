"""Independent learning: every player has its own parameters, optimiser, statistics and extensions.

De Witt et al., "Is independent learning all you need in the StarCraft multi-agent challenge?", 2020,
https://arxiv.org/abs/2011.09533. Parameter sharing needs no such class: there all agents of all environments are
streams of one PPO.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.agents.metrics import of_players
from ppax.core.types import (
    ConfigError,
    Decision,
    ForwardPass,
    Key,
    LearnerState,
    PyTree,
    Requirements,
    Rollout,
    Transition,
    Update,
    part,
    static,
)
from ppax.devices.layout import Program
from ppax.ppo.ppo import PPO

Tree = TypeVar("Tree")


@part
class Independent:
    """Agent with one PPO per player: the methods of `agent`, mapped by `jax.vmap` over an axis [A] of the learner.

    A player is one of the A agents of an environment. A hyperparameter of `agent` is a scalar, shared by all players,
    or an array [A] with one value per player. A stream is one player in one environment; the streams [B], B = E * A,
    are ordered by environment: stream e * A + a is player a of environment e.
    """

    agent: PPO
    num_agents: int = static("number of players per environment", low=1)
    sharing: ClassVar[str] = "independent"
    pool: ClassVar[None] = None

    def init(self, observation_space: spaces.Space, key: Key) -> LearnerState:
        """Return new learners, one for each player (agent of an environment), stacked to [A, ...].

        Raises ConfigError where options contradict each other.
        """
        keys = jax.random.split(key, self.num_agents)
        learner: LearnerState = jax.vmap(lambda agent, key: agent.init(observation_space, key))(self.players(), keys)
        return learner

    def act(
        self,
        learner: LearnerState,
        carry: PyTree,
        obs: PyTree,
        first: Array,
        action_mask: PyTree | None,
        key: Key,
    ) -> Decision:
        """Return a sampled action for every stream, with log-probability, V and next carry, by its player's policy.

        A stream is one player (agent of an environment) in one environment. Arguments are [B, ...]: `carry` are the
        memories, and `first` marks first steps of episodes. `key` is one key, or one for each stream [B].
        """
        key = jax.random.split(key, first.shape[0]) if key.ndim == 0 else key
        decision: Decision = self._each(type(self.agent).act, learner, (carry, obs, first, action_mask, key))
        return decision

    def policy(
        self, learner: LearnerState, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None
    ) -> ForwardPass:
        """Return action distribution, V and next carry for the observation of every stream, [B, ...].

        A stream is one player (agent of an environment) in one environment; the player's own policy acts in it. `carry`
        are the memories, and `first` marks first steps of episodes.
        """
        policy: ForwardPass = self._each(type(self.agent).policy, learner, (carry, obs, first, action_mask))
        return policy

    def update(self, learner: LearnerState, rollout: Rollout, key: Key) -> Update:
        """Return the players' learners after each has learned from its own streams of the rollout, and the metrics.

        A player is an agent of an environment. `key` is one key, or a key for each epoch [num_epochs].
        """
        own = self.rollouts(rollout)
        key = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        players = jnp.arange(self.num_agents)
        keys = jax.vmap(lambda one: jax.vmap(jax.random.fold_in, (None, 0))(one, players))(key)  # [num_epochs, A]
        update: Update = jax.vmap(type(self.agent).update, (0, 0, 0, 1))(self.players(), learner, own, keys)
        streams = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:]), update.extensions)
        return Update(update.learner, of_players(update.metrics, self.num_agents), extensions=streams)

    def rollouts(self, rollout: Rollout) -> Rollout:
        """Return a rollout split by player (agent of an environment): arrays get a leading axis of the A players.

        Arrays [T, B, ...] become [A, T, E, ...], and arrays without a step axis, [B, ...], become [A, E, ...], for E
        environments and B = E * A streams (one player in one environment).
        """

        def by_player(x: Array) -> Array:
            return jnp.moveaxis(self._apart(x, 0), 1, 0)

        return Rollout(
            steps=self.own(rollout.steps),
            last_value=by_player(rollout.last_value),
            reward_trace=self.own(rollout.reward_trace),
            last_obs=jax.tree.map(by_player, rollout.last_obs),
            extensions=jax.tree.map(by_player, rollout.extensions),
            played=self.own(rollout.played),
        )

    def evaluate_rollout(self, learner: LearnerState, steps: Transition) -> tuple[Array, Array]:
        """Return V and the log-probability of the stored action, both [T, B], of the steps [T, B] of a rollout.

        B is the number of streams (one player, an agent of an environment, in one environment). `learner` has a learner
        for each player, which is used for the player's streams.
        """
        evaluate = jax.vmap(type(self.agent).evaluate_rollout)
        evaluated: tuple[Array, Array] = evaluate(self.players(), learner, self.own(steps))
        return self.together(evaluated)

    def initial_carry(self, num_streams: int) -> PyTree:
        """Return the network's memory at the start of an episode for each stream, [B, ...].

        A stream is one player (agent of an environment) in one environment.
        """
        return self.agent.initial_carry(num_streams)

    def start_carry(self, num_streams: int) -> PyTree:
        """Return the carry, which the players' policies keep from step to step, at the start of collection, [B, ...].

        A player is an agent of an environment. The carry is the network's memory, and where extensions change actions,
        states of the extensions, too.
        """
        return self.agent.start_carry(num_streams)

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the initial states that extensions keep for each stream, [B, ...], by the extensions' names.

        A stream is one player (agent of an environment) in one environment.
        """
        return self.agent.init_streams(num_streams)

    def sequence_length(self, num_steps: int) -> int:
        """Return the number of steps of a sequence for rollouts of `num_steps`; it is the same for all players.

        A player is an agent of an environment, with its own PPO.
        """
        return self.agent.sequence_length(num_steps)

    def annealed(self, progress: Array, env_steps: Array) -> Independent:
        """Return this agent with the numbers, such as the learning rate, that the schedule sets for each player.

        A player is an agent of an environment. The schedule is evaluated at `progress` of training, in [0, 1], and at
        `env_steps`, the number of valid environment steps so far.
        """
        agents = jax.vmap(type(self.agent).annealed, (0, None, None))(self.players(), progress, env_steps)
        return dataclasses.replace(self, agent=agents)

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Return the first player's PPO, which stands for all players, with one player's share of the `num_streams`.

        A player is an agent of an environment. Callers read from the PPO only sizes and options in which players do not
        differ.
        """
        return ((self.player(0), num_streams // self.num_agents),)

    def discount(self, num_streams: int) -> Array:
        """Return the discount factor of each stream's rewards, [B], which is that of the stream's player.

        A stream is one player (agent of an environment) in one environment.
        """
        gamma = jnp.broadcast_to(self.agent.discount(num_streams // self.num_agents), (self.num_agents,))
        return jnp.tile(gamma, num_streams // self.num_agents)

    def check(self) -> None:
        """Raise ConfigError where a player's hyperparameters contradict each other, or are arrays not of shape [A].

        A is the number of players, the agents of an environment.
        """
        self.players()
        for player in range(self.num_agents):
            jax.tree.map(float, self.player(player)).check()

    def player(self, index: int) -> PPO:
        """Return the PPO of the player (agent of an environment) with this index, with scalar hyperparameters."""
        player: PPO = jax.tree.map(lambda x: x if np.ndim(x) == 0 else x[index], self.agent)
        return player

    @property
    def requires(self) -> Requirements:
        """Requirements of independent players on the environment: the number of its agents."""
        return Requirements(num_agents=self.num_agents)

    @property
    def num_epochs(self) -> int:
        """Number of epochs of one update, the same for all players (agents of an environment)."""
        return self.agent.num_epochs

    @property
    def program(self) -> Program:
        """Layout of the compiled training program (`ppax.devices.layout.Program`), the same for all agents' PPOs."""
        return self.agent.program

    def players(self) -> PPO:
        """Return the PPO with every hyperparameter as an array [A], one value for each of A players.

        A player is an agent of an environment. A hyperparameter that is one number is repeated. Raises ConfigError for
        an array of another shape than [A].
        """

        def broadcast(path: Any, x: Any) -> Array:
            if np.shape(x) in ((), (self.num_agents,)):
                return jnp.broadcast_to(x, (self.num_agents,))
            where = jax.tree_util.keystr(path, simple=True, separator=".")
            sizes = f"must be one number, or {self.num_agents}, one for each player"
            raise ConfigError(f"agent.{where} has shape {np.shape(x)}: {sizes}")

        players: PPO = jax.tree_util.tree_map_with_path(broadcast, self.agent)
        return players

    def own(self, steps: Tree) -> Tree:
        """Return steps [T, B, ...] of all players in all environments, split by player, [A, T, E, ...].

        A is the number of players (agents of an environment), E that of environments, and B = E * A.
        """
        return jax.tree.map(lambda x: jnp.moveaxis(self._apart(x, 1), 2, 0), steps)

    def together(self, steps: Tree) -> Tree:
        """Return steps split by player, [A, T, E, ...], joined to those of all players and environments, [T, B, ...].

        A is the number of players (agents of an environment), E that of environments, and B = E * A. It is the inverse
        of `own`.
        """
        return jax.tree.map(
            lambda x: jnp.moveaxis(x, 0, 2).reshape(x.shape[1], x.shape[2] * x.shape[0], *x.shape[3:]), steps
        )

    def _apart(self, x: Array, axis: int) -> Array:
        """Return `x` [..., B, ...] as [..., E, A, ...], by environment and player (agent of an environment).

        The axis `axis` is that of B = E * A, all players in all environments.
        """
        num_envs = x.shape[axis] // self.num_agents  # not -1: a window of one step has a carry without numbers
        return x.reshape(*x.shape[:axis], num_envs, self.num_agents, *x.shape[axis + 1 :])

    def _each(self, verb: Callable[..., Any], learner: LearnerState, arguments: PyTree) -> Any:
        """Return the results of a method of PPO, called for every player (agent of an environment) on its streams.

        `verb` is the method. A stream is one player in one environment; arguments and results are [B, ...], of all
        streams.
        """
        apart = jax.tree.map(lambda x: self._apart(x, 0), arguments)
        mapped: Callable[..., Any] = jax.vmap(lambda agent, learner, own: verb(agent, learner, *own), (0, 0, 1), 1)
        out = mapped(self.players(), learner, apart)
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * self.num_agents, *x.shape[2:]), out)
