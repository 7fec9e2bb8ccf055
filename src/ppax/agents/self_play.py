"""Self-play: in a fraction of the environments one group is played by past selves from a pool, rated by Elo.

Policies trained against current opponents only may lose to earlier ones: Bansal et al. 2018, "Emergent
complexity via multi-agent competition", https://arxiv.org/abs/1710.03748.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.agents import ratings, seating
from ppax.agents.groups import Groups
from ppax.agents.members import without_extensions
from ppax.agents.opponents import Pool as Pool
from ppax.agents.opponents import SelfPlayState as SelfPlayState
from ppax.agents.opponents import by_opponent, pool_of, win_chance, with_snapshot, with_streams, without_streams
from ppax.arrays.metrics import reduced
from ppax.core.types import (
    ConfigError,
    Decision,
    ForwardPass,
    Key,
    Metrics,
    PyTree,
    Requirements,
    Rollout,
    Scalar,
    Transition,
    Update,
    part,
    static,
)
from ppax.devices.layout import Program
from ppax.ppo.ppo import PPO


@part
class SelfPlay:
    """Groups trained against each other and against past selves of each other.

    A fraction `pool.share` of the environments, the last ones, is divided among the groups. In its block, a group is
    played by past selves, whose rows are left out of the update. A group wins an episode if its mean return is higher
    than that of the other agents. Runs on one device, with `num_envs` of the environment; evaluates current learners.
    """

    agent: Groups
    pool: Pool
    num_envs: int = static("number of parallel environments", low=1)

    def init(self, observation_space: Any, key: Key) -> Any:
        """Initialise the learners; the pool starts with a snapshot of them."""
        current = self.agent.init(observation_space, key)
        names, size = [name for name, _ in self.sizes], self.pool.size
        return SelfPlayState(
            current=current,
            pool=pool_of(current, size),
            num_snapshots=jnp.int32(1),
            opponents={name: jnp.zeros(self.pool.opponents, jnp.int32) for name in names},
            elo={name: jnp.float32(ratings.START) for name in names},
            past_elo={name: jnp.full(size, ratings.START, jnp.float32) for name in names},
            returns=jnp.zeros((self.num_envs, self.num_agents), jnp.float32),
            counts=jnp.zeros(self.num_envs, bool),
            iteration=jnp.int32(0),
        )

    def act(
        self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key
    ) -> Decision:
        """Sample actions of all groups, in past selves' rows from their own policies; see `Groups.act`."""
        key = jax.random.split(key, first.shape[0]) if key.ndim == 0 else key
        decision = self.agent.act(learner.current, carry, obs, first, action_mask, key)
        firsts, keys = self.agent.apart(first), self.agent.apart(jax.random.clone(key))
        for name, _, _, rows in self._blocks():
            if rows.start == rows.stop:
                continue
            inputs = (carry[name], obs[name], firsts[name], action_mask and action_mask[name], keys[name])
            own = jax.tree.map(lambda x, rows=rows: by_opponent(x[rows], self.pool.opponents), inputs)
            past = jax.tree.map(lambda x, name=name: x[learner.opponents[name]], learner.pool[name])
            acted = jax.vmap(without_extensions(self.agent.agents[name]).act)(past, *own)
            for field in ("carry", "action", "env_action"):
                before, after = getattr(decision, field), getattr(acted, field)
                merged = jax.tree.map(
                    lambda x, y, rows=rows: x.at[rows].set(y.reshape(x[rows].shape)), before[name], after
                )
                decision = decision._replace(**{field: before | {name: merged}})
        return decision

    def policy(self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None) -> ForwardPass:
        """Return the current policies of all groups; see `Groups.policy`."""
        return self.agent.policy(learner.current, carry, obs, first, action_mask)

    def update(self, learner: Any, rollout: Rollout, key: Key) -> Update:
        """Update every group on its own rows, then the Elo ratings and, every `pool.every` iterations, the pool."""
        key = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        whole = {block.name: self.agent.rollout(block.name, rollout) for block in self._blocks()}
        rollouts = {block.name: without_streams(whole[block.name], block.rows) for block in self._blocks()}
        learned = self.agent.learn(learner.current, rollouts, key)
        draw_key = jax.random.fold_in(key[0], self.num_agents)  # larger than any number folded in by players and groups
        rated = self._rate(learner, rollout)._replace(current=learned.learner, iteration=learner.iteration + 1)
        after = with_snapshot(self.pool, rated, [name for name, _ in self.sizes], draw_key)
        metrics = learned.metrics | reduced("last", self._ratings(after))
        current = seating.current_agents(self._blocks(), self.num_envs, self.num_agents)
        streams = with_streams(whole, learned, {block.name: block.rows for block in self._blocks()})
        return Update(after, metrics, jnp.asarray(current.reshape(-1)), self.replaced(learner, after), streams)

    def _rate(self, learner: SelfPlayState, rollout: Rollout) -> SelfPlayState:
        """Update Elo ratings from the episodes that ended in a rollout: at autoreset steps, in which no agent acts."""
        steps, shape = rollout.played or rollout.steps, (self.num_envs, self.num_agents)
        reward = steps.reward if rollout.played else jnp.where(steps.valid, steps.reward, 0.0)
        reward, begun, acting = (x.reshape(-1, *shape) for x in (reward, steps.first, steps.valid))
        # absent agents count as begun: they may appear later; in turns, those that wait for theirs do not
        first = begun.all(axis=2) if rollout.played else (begun | ~acting).all(axis=2) & begun.any(axis=2)
        ended = ~acting.any(axis=2)
        weights = seating.margin_weights(self._blocks(), *shape)
        games = ratings.play(reward, first, ended, weights, learner.returns, learner.counts)
        elo, past_elo = dict(learner.elo), dict(learner.past_elo)
        for name, envs, _, _ in self._blocks():
            played, won = (by_opponent(x[envs], self.pool.opponents).sum(axis=1) for x in games[:2])  # [K]
            seats = learner.opponents[name]
            gain = ratings.gain(played, won, win_chance(learner, name)[seats], self.pool.elo_step)
            past_elo[name] = past_elo[name].at[seats].add(gain)
            for other in elo:
                if other != name:
                    elo[other] = elo[other] - gain.sum() / (len(elo) - 1)
        return learner._replace(elo=elo, past_elo=past_elo, returns=games.returns, counts=games.counts)

    def _ratings(self, learner: SelfPlayState) -> Metrics:
        table = {f"elo/{name}": learner.elo[name] for name, _ in self.sizes}
        for name, _ in self.sizes:
            filled = jnp.arange(self.pool.size) < learner.num_snapshots
            past = jnp.where(filled, learner.past_elo[name], jnp.nan)  # NaN: no past self there yet
            table |= {f"elo/{name}_past_{place}": past[place] for place in range(self.pool.size)}
        return table

    def replaced(self, before: SelfPlayState, after: SelfPlayState) -> dict[str, Array]:
        """Return masks [E * A_g] of the streams in which another past self plays after an update, by group."""
        drawn, place = after.num_snapshots != before.num_snapshots, before.num_snapshots % self.pool.size
        masks = {}
        for name, _, members, rows in self._blocks():
            seats = after.opponents[name]
            # `place` in the pool now has a new snapshot
            other = drawn & ((seats != before.opponents[name]) | (seats == place))
            other = jnp.repeat(other, (rows.stop - rows.start) // self.pool.opponents)
            streams = self.num_envs * (members.stop - members.start)
            masks[name] = jnp.zeros(streams, bool).at[rows].set(other)
        return masks

    def _blocks(self) -> tuple[seating.Block, ...]:
        return tuple(seating.blocks(self.num_envs, self.sizes, self.pool.share, self.pool.opponents))

    @property
    def requires(self) -> Requirements:
        """Groups and number of environments that the environment must have."""
        return self.agent.requires._replace(num_envs=self.num_envs)

    @property
    def sharing(self) -> str:
        """Parameter sharing within the groups."""
        return self.agent.sharing

    def evaluate_rollout(self, learner: Any, steps: Transition) -> tuple[Array, Array]:
        """Return V and action log-probability, both [T, B], of the steps of a rollout under the current learners."""
        return self.agent.evaluate_rollout(learner.current, steps)

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Return every PPO that is trained, with its number of streams (past selves left out), on one device."""
        learners: list[tuple[PPO, int]] = []
        for (name, size), block in zip(self.sizes, self._blocks(), strict=True):
            streams = (self.num_envs - (block.envs.stop - block.envs.start)) * size
            learners += self.agent.agents[name].learners(streams)
        return tuple(
            (dataclasses.replace(one, program=_on_one_device(one.program)), streams) for one, streams in learners
        )

    def check(self) -> None:
        """Raise ConfigError for fewer than two groups, several devices, or too few environments for the opponents."""
        self.agent.check()
        if isinstance(self.pool.every, str):
            raise ConfigError(f"self_play.every = {self.pool.every!r}: must be a number of iterations in Python")
        if len(self.sizes) < 2:
            raise ConfigError(
                "self_play: takes at least two groups that play against each other; this environment has one"
            )
        for one in (learner for agent in self.agent.agents.values() for learner, _ in agent.learners(1)):
            if one.program.devices not in (None, 1):
                raise ConfigError(f"program.devices = {one.program.devices}: self-play runs on one; write 1")
        block = self._blocks()[0].envs
        if self.pool.share > 0.0 and block.start == block.stop:
            least = int(np.ceil(len(self.sizes) * self.pool.opponents / self.pool.share))
            raise ConfigError(
                f"self_play: a share of {self.pool.share:g} of {self.num_envs} environments has no room for "
                f"{self.pool.opponents} past selves of each of {len(self.sizes)} groups; nearest num_envs: {least}"
            )

    def annealed(self, progress: Array, env_steps: Array) -> SelfPlay:
        """Return this agent with every group annealed to `progress` (0 to 1) and `env_steps`."""
        return dataclasses.replace(self, agent=self.agent.annealed(progress, env_steps))

    def start_carry(self, num_streams: int) -> PyTree:
        """Return the carry at the start of collection, by group."""
        return self.agent.start_carry(num_streams)

    def initial_carry(self, num_streams: int) -> PyTree:
        """Return the memory at the start of an episode, by group."""
        return self.agent.initial_carry(num_streams)

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the first states of extensions for each stream, by group and name."""
        return self.agent.init_streams(num_streams)

    def sequence_length(self, num_steps: int) -> int:
        """Steps between two carries that a rollout stores."""
        return self.agent.sequence_length(num_steps)

    def discount(self, num_streams: int) -> Scalar:
        """Return the discount of each stream, [B]."""
        return self.agent.discount(num_streams)

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Name and number of agents of each group."""
        return self.agent.sizes

    @property
    def num_agents(self) -> int:
        """Number of agents per environment."""
        return self.agent.num_agents

    @property
    def num_epochs(self) -> int:
        """Largest number of epochs of any group."""
        return self.agent.num_epochs

    @property
    def program(self) -> Program:
        """Layout of the compiled program: on one device."""
        return _on_one_device(self.agent.program)


def _on_one_device(program: Program) -> Program:
    return dataclasses.replace(program, devices=1)
