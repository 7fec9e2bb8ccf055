"""Players that learn apart: every one has parameters, optimiser, statistics and KL control of its own.

De Witt et al., "Is independent learning all you need in the StarCraft multi-agent challenge?", 2020,
https://arxiv.org/abs/2011.09533. Shared weights need nothing of this: there all agents of all environments are streams
of one PPO.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays.metrics import Table, reductions_of
from ppax.learning.diagnostics import Update
from ppax.learning.forward import Policy
from ppax.ppo import PPO
from ppax.program.layout import Program
from ppax.types import ConfigError, Decision, Key, LearnerState, PyTree, Rollout, part, static

Tree = TypeVar("Tree")
NAMED = 16  # with more players than that, logs have only what is of all of them


@part
class Independent:
    """`agent` for each of `num_agents` players: the verbs of PPO, mapped over a leading axis [A] of the learner.

    A number of `agent` is one for all players, or an array [A], one for each. Streams are environment by environment,
    B = E * A, so that stream e * A + a is player a.
    """

    agent: PPO
    num_agents: int = static("players in an environment", low=1)

    def init(self, observation_space: spaces.Space, key: Key) -> LearnerState:
        """A fresh learner for each player, [A, ...]."""
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
        """Sample an action for every stream by its player's policy; all arguments are [B, ...], `key` too, or one."""
        key = jax.random.split(key, first.shape[0]) if key.ndim == 0 else key
        decision: Decision = self._each(PPO.act, learner, (carry, obs, first, action_mask, key))
        return decision

    def policy(
        self, learner: LearnerState, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None
    ) -> Policy:
        """Distribution, value and next carry for the current observation of every stream, [B, ...]."""
        policy: Policy = self._each(PPO.policy, learner, (carry, obs, first, action_mask))
        return policy

    def update(self, learner: LearnerState, rollout: Rollout, key: Key) -> Update:
        """Every player learns from its own streams; `key` is one, or one for each epoch."""
        steps, last_value, trace = rollout
        own = Rollout(self.own(steps), jnp.moveaxis(self._apart(last_value, 0), 1, 0), self.own(trace))
        key = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        players = jnp.arange(self.num_agents)
        keys = jax.vmap(lambda one: jax.vmap(jax.random.fold_in, (None, 0))(one, players))(key)  # [num_epochs, A]
        learner, metrics = jax.vmap(PPO.update, (0, 0, 0, 1))(self.players(), learner, own, keys)
        return Update(learner, of_players(metrics, self.num_agents))

    def initial_carry(self, num_streams: int) -> PyTree:
        """Memory at the start of an episode, [B, ...]."""
        return self.agent.initial_carry(num_streams)

    def sequence_length(self, num_steps: int) -> int:
        """L, the same for all."""
        return self.agent.sequence_length(num_steps)

    def annealed(self, progress: Array, env_steps: Array) -> Independent:
        """Every player's agent at this progress of training."""
        agents = jax.vmap(PPO.annealed, (0, None, None))(self.players(), progress, env_steps)
        return dataclasses.replace(self, agent=agents)

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Who learns, and from how many of the streams: all players alike, from their share."""
        return ((self.player(0), num_streams // self.num_agents),)

    def discount(self, num_streams: int) -> Array:
        """Discount of each stream's rewards, [B]."""
        gamma = jnp.broadcast_to(self.agent.gamma, (self.num_agents,))
        return jnp.tile(gamma, num_streams // self.num_agents)

    def check(self) -> None:
        """Raise ConfigError for numbers that are not one for each player, or exclude each other."""
        self.players()
        for player in range(self.num_agents):
            jax.tree.map(float, self.player(player)).check()

    def player(self, place: int) -> PPO:
        """One player's agent."""
        own: PPO = jax.tree.map(lambda x: x if np.ndim(x) == 0 else x[place], self.agent)
        return own

    @property
    def num_epochs(self) -> int:
        """Passes over each rollout."""
        return self.agent.num_epochs

    @property
    def program(self) -> Program:
        """How the compiled program is laid out."""
        return self.agent.program

    def players(self) -> PPO:
        """The agent with every number [A]."""

        def spread(path: Any, x: Any) -> Array:
            if np.shape(x) in ((), (self.num_agents,)):
                return jnp.broadcast_to(x, (self.num_agents,))
            where = jax.tree_util.keystr(path, simple=True, separator=".")
            sizes = f"must be one number, or {self.num_agents}, one for each player"
            raise ConfigError(f"agent.{where} has shape {np.shape(x)}: {sizes}")

        players: PPO = jax.tree_util.tree_map_with_path(spread, self.agent)
        return players

    def own(self, steps: Tree) -> Tree:
        """Each player's steps, [A, T, E, ...], of those of all streams, [T, B, ...]."""
        return jax.tree.map(lambda x: jnp.moveaxis(self._apart(x, 1), 2, 0), steps)

    def together(self, steps: Tree) -> Tree:
        """Undo `own`."""
        return jax.tree.map(lambda x: jnp.moveaxis(x, 0, 2).reshape(x.shape[1], -1, *x.shape[3:]), steps)

    def _apart(self, x: Array, axis: int) -> Array:
        """[..., B, ...] as [..., E, A, ...]."""
        return x.reshape(*x.shape[:axis], -1, self.num_agents, *x.shape[axis + 1 :])

    def _each(self, verb: Callable[..., Any], learner: LearnerState, arguments: PyTree) -> Any:
        """`verb` of every player for its streams; arguments and results are [B, ...]."""
        apart = jax.tree.map(lambda x: self._apart(x, 0), arguments)
        mapped: Callable[..., Any] = jax.vmap(lambda agent, learner, own: verb(agent, learner, *own), (0, 0, 1), 1)
        out = mapped(self.players(), learner, apart)
        return jax.tree.map(lambda x: x.reshape(x.shape[0] * self.num_agents, *x.shape[2:]), out)


def of_players(metrics: Mapping[str, Array], num_agents: int) -> Table:
    """Metrics [A] of each player as those of all under the plain name, and of each as `name/agent_0`."""
    kinds, players = dict(reductions_of(metrics)), names(num_agents)
    whole = {name: joined(kinds.get(name, "mean"), x) for name, x in metrics.items()}
    own = {f"{name}/{player}": x[place] for name, x in metrics.items() for place, player in enumerate(players)}
    reductions = [(f"{name}/{player}", kind) for name, kind in kinds.items() for player in players]
    return Table(whole | own, (*kinds.items(), *reductions))


def joined(reduction: str, each: Array) -> Array:
    """A metric of all from that of each, [n]."""
    over: dict[str, Callable[[Array], Array]] = {"mean": jnp.mean, "max": jnp.max, "min": jnp.min}
    return over.get(reduction, jnp.mean)(each)


def names(num_agents: int | None) -> tuple[str, ...]:
    """What players are called in metrics; () where there is one, or more than NAMED."""
    return tuple(f"agent_{i}" for i in range(num_agents)) if num_agents and 1 < num_agents <= NAMED else ()
