"""Self-play: in a fraction of the environments one group is played by past selves from a pool, rated by Elo.

Policies trained against current opponents only may lose to earlier ones: Bansal et al. 2018, "Emergent
complexity via multi-agent competition", https://arxiv.org/abs/1710.03748.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.agents.groups import Groups
from ppax.agents.opponents import START, by_opponent, win_probability, without_streams
from ppax.agents.opponents import Pool as Pool
from ppax.arrays.metrics import reduced
from ppax.arrays.sequences import where_rows
from ppax.learning.diagnostics import Update
from ppax.learning.forward import Policy
from ppax.ppo import PPO
from ppax.program.layout import Program
from ppax.types import ConfigError, Decision, Episodes, Key, Metrics, PyTree, Rollout, Scalar, part, static


class SelfPlayState(NamedTuple):
    """Current learners, pool of past selves, ratings, and running scores of the episodes."""

    now: dict[str, Any]  # current learner of each group
    pool: dict[str, Any]  # [P, ...] snapshots of each group's learner, without training state such as the optimiser's
    kept: Array  # [] int32 number of snapshots taken; the newest is at index (kept - 1) % P
    opponents: dict[str, Array]  # [K] pool indices of the past selves that play
    elo: dict[str, Array]  # [] Elo rating of the current learner
    past_elo: dict[str, Array]  # [P] Elo ratings of the past selves
    returns: Array  # [E, A] returns of the running episodes
    counts: Array  # [E] whether the running episode began with its present opponents
    iteration: Array  # [] int32


@part
class SelfPlay:
    """Groups trained against each other and against past selves of each other.

    A fraction `pool.share` of the environments, the last ones, is divided among the groups. In its block, a group is
    played by past selves, whose rows are left out of the update. A group wins an episode if its mean return is higher
    than that of the other agents. Runs on one device. `num_envs` must be that of the environment. Evaluation uses the
    current learners.
    """

    agent: Groups
    pool: Pool
    num_envs: int = static("number of parallel environments", low=1)

    def init(self, observation_space: spaces.Dict, key: Key) -> Any:
        """Initialise the learners; the pool starts with a snapshot of them."""
        now = self.agent.init(observation_space, key)
        names, size = [name for name, _ in self.sizes], self.pool.size
        return SelfPlayState(
            now=now,
            pool=jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), _frozen(now)),
            kept=jnp.int32(1),
            opponents={name: jnp.zeros(self.pool.opponents, jnp.int32) for name in names},
            elo={name: jnp.float32(START) for name in names},
            past_elo={name: jnp.full(size, START, jnp.float32) for name in names},
            returns=jnp.zeros((self.num_envs, self.num_agents), jnp.float32),
            counts=jnp.zeros(self.num_envs, bool),
            iteration=jnp.int32(0),
        )

    def act(
        self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None, key: Key
    ) -> Decision:
        """Sample actions of all groups, in past selves' rows from their own policies; see `Groups.act`."""
        key = jax.random.split(key, first.shape[0]) if key.ndim == 0 else key
        decision = self.agent.act(learner.now, carry, obs, first, action_mask, key)
        firsts, keys = self.agent.apart(first), self.agent.apart(jax.random.clone(key))
        for name, rows in self._rows().items():
            if rows.start == rows.stop:
                continue
            mask = None if action_mask is None else action_mask[name]
            seen = (carry[name], obs[name], firsts[name], mask, keys[name])
            inputs = jax.tree.map(lambda x, rows=rows: by_opponent(x[rows], self.pool.opponents), seen)
            past = jax.tree.map(lambda x, name=name: x[learner.opponents[name]], learner.pool[name])
            acted = jax.vmap(self.agent.agents[name].act)(past, *inputs)
            for field in ("carry", "action", "env_action"):
                before, after = getattr(decision, field), getattr(acted, field)
                merged = jax.tree.map(
                    lambda x, y, rows=rows: x.at[rows].set(y.reshape(x[rows].shape)), before[name], after
                )
                decision = decision._replace(**{field: before | {name: merged}})
        return decision

    def policy(self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None) -> Policy:
        """Return the current policies of all groups; see `Groups.policy`."""
        return self.agent.policy(learner.now, carry, obs, first, action_mask)

    def update(self, learner: Any, rollout: Rollout, key: Key) -> Update:
        """Update every group on its own rows, then the Elo ratings and, every `pool.every` iterations, the pool."""
        key = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        seen = {name: without_streams(self.agent.rollout(name, rollout), rows) for name, rows in self._rows().items()}
        now, metrics = self.agent.learn(learner.now, seen, key)
        learners: Any = now
        rated = self._rate(learner, rollout)
        draw_key = jax.random.fold_in(key[0], self.num_agents)  # larger than any number folded in by players and groups
        learner = self._keep(rated._replace(now=learners, iteration=learner.iteration + 1), draw_key)
        return Update(learner, metrics | reduced("last", self._ratings(learner)))

    def _rate(self, learner: SelfPlayState, rollout: Rollout) -> SelfPlayState:
        """Update Elo ratings from the episodes that ended in a rollout.

        An episode ends at the autoreset step, in which no agent acts. An episode that starts without one was
        truncated by a forced reset and is not rated.
        """
        weights = self._margin_weights()

        def step(state: tuple[Array, Array], inputs: tuple[Array, Array, Array]) -> Any:
            returns, counts = state
            reward, first, ended = inputs
            margin = (returns * weights).sum(axis=1)
            over = ended & counts
            score = jnp.where(margin > 0.0, 1.0, jnp.where(margin < 0.0, 0.0, 0.5))
            returns = jnp.where((first | ended)[:, None], 0.0, returns) + reward
            return (returns, counts | first), (over, jnp.where(over, score, 0.0))

        steps, shape = rollout.steps, (self.num_envs, self.num_agents)
        reward = jnp.where(steps.valid, steps.reward, 0.0).reshape(-1, *shape)
        first = steps.first.reshape(-1, *shape)[:, :, 0]
        ended = ~steps.valid.reshape(-1, *shape).any(axis=2)
        (returns, counts), (games, wins) = jax.lax.scan(step, (learner.returns, learner.counts), (reward, first, ended))
        games, wins = games.sum(axis=0, dtype=jnp.float32), wins.sum(axis=0)  # [E]
        elo, past_elo = dict(learner.elo), dict(learner.past_elo)
        for name, block in self._blocks().items():
            played, won = (by_opponent(x[block], self.pool.opponents).sum(axis=1) for x in (games, wins))  # [K]
            seats = learner.opponents[name]
            surprise = won / jnp.maximum(played, 1.0) - self._chance(learner, name)[seats]
            gain = jnp.where(played > 0.0, self.pool.elo_step * surprise, 0.0)
            past_elo[name] = past_elo[name].at[seats].add(gain)
            for other in elo:
                if other != name:
                    elo[other] = elo[other] - gain.sum() / (len(elo) - 1)
        return learner._replace(elo=elo, past_elo=past_elo, returns=returns, counts=counts)

    def _keep(self, learner: SelfPlayState, key: Key) -> SelfPlayState:
        """Every `pool.every` iterations, add a snapshot of the learners to the pool and draw new opponents."""
        size = self.pool.size
        due = learner.iteration % (self.pool.every or 1) == 0
        place = learner.kept % size
        kept = learner.kept + 1
        age = (kept - 1 - jnp.arange(size)) % size  # 0: the newest
        keys = jax.random.split(key, len(self.sizes))
        past_elo = {name: x.at[place].set(learner.elo[name]) for name, x in learner.past_elo.items()}
        after = learner._replace(
            pool=jax.tree.map(lambda x, new: x.at[place].set(new), learner.pool, _frozen(learner.now)),
            past_elo=past_elo,
            kept=kept,
            counts=jnp.zeros_like(learner.counts),
        )
        opponents = {}
        for (name, _), key in zip(self.sizes, keys, strict=True):
            logits = jnp.where(jnp.arange(size) < kept, self.pool.logits(self._chance(after, name), age), -jnp.inf)
            drawn = jax.random.categorical(key, logits, shape=(self.pool.opponents,))
            opponents[name] = drawn.astype(jnp.int32)
        after = after._replace(opponents=opponents)
        return jax.tree.map(lambda new, old: jnp.where(due, new, old), after, learner)

    def _chance(self, learner: SelfPlayState, name: str) -> Array:
        """Return the win probability of each past self [P] of a group against the others' current learners."""
        others = [elo for other, elo in learner.elo.items() if other != name]
        return win_probability(learner.past_elo[name], jnp.stack(others).mean())

    def _ratings(self, learner: SelfPlayState) -> Metrics:
        table = {f"elo/{name}": learner.elo[name] for name, _ in self.sizes}
        for name, _ in self.sizes:
            table |= {f"elo/{name}_past_{place}": learner.past_elo[name][place] for place in range(self.pool.size)}
        return table

    def own_episodes(self, episodes: Episodes) -> Episodes:
        """Return the episode statistics [B] with those of past selves set to 0."""
        current = np.ones((self.num_envs, self.num_agents), bool)
        begin = 0
        for name, size in self.sizes:
            current[self._blocks()[name], begin : begin + size] = False
            begin += size
        kept: Episodes = jax.tree.map(lambda x: jnp.where(current.reshape(-1), x, 0), episodes)
        return kept

    def reset_swapped_carries(
        self, before: SelfPlayState, after: SelfPlayState, carry: dict[str, Any]
    ) -> dict[str, Any]:
        """Return carries after an update: initial ones for past selves that replace another during an episode."""
        drawn, place = after.kept != before.kept, before.kept % self.pool.size
        carries = dict(carry)
        for name, rows in self._rows().items():
            seats = after.opponents[name]
            # `place` in the pool now has a new snapshot
            other = drawn & ((seats != before.opponents[name]) | (seats == place))
            other = jnp.repeat(other, (rows.stop - rows.start) // self.pool.opponents)
            initial = self.agent.agents[name].initial_carry(rows.stop - rows.start)
            own = where_rows(other, initial, jax.tree.map(lambda x, rows=rows: x[rows], carry[name]))
            carries[name] = jax.tree.map(lambda x, y, rows=rows: x.at[rows].set(y), carry[name], own)
        return carries

    def _blocks(self) -> dict[str, slice]:
        """Return the block of environments in which each group is played by past selves."""
        groups = len(self.sizes)
        length = int(self.num_envs * self.pool.share / groups) // self.pool.opponents * self.pool.opponents
        begin = self.num_envs - groups * length
        return {name: slice(begin + i * length, begin + (i + 1) * length) for i, (name, _) in enumerate(self.sizes)}

    def _rows(self) -> dict[str, slice]:
        """Return the blocks of `_blocks` as rows of each group's streams."""
        sizes = dict(self.sizes)
        return {name: slice(b.start * sizes[name], b.stop * sizes[name]) for name, b in self._blocks().items()}

    def _margin_weights(self) -> np.ndarray:
        """Weights [E, A] that turn returns into the margin of the past self's group over the other agents' mean."""
        weights, begin = np.zeros((self.num_envs, self.num_agents), np.float32), 0
        for name, size in self.sizes:
            block = self._blocks()[name]
            weights[block] = -1.0 / max(1, self.num_agents - size)
            weights[block, begin : begin + size] = 1.0 / size
            begin += size
        return weights

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Return every PPO that is trained, with its number of streams (past selves left out), on one device."""
        learners: list[tuple[PPO, int]] = []
        for name, size in self.sizes:
            block = self._blocks()[name]
            streams = (self.num_envs - (block.stop - block.start)) * size
            learners += self.agent.agents[name].learners(streams)
        return tuple(
            (dataclasses.replace(one, program=_on_one_device(one.program)), streams) for one, streams in learners
        )

    def check(self) -> None:
        """Raise ConfigError for fewer than two groups, several devices, or too few environments for the opponents."""
        self.agent.check()
        if len(self.sizes) < 2:
            raise ConfigError(
                "self_play: takes at least two groups that play against each other; this environment has one"
            )
        for one in (learner for agent in self.agent.agents.values() for learner, _ in agent.learners(1)):
            if one.program.devices not in (None, 1):
                raise ConfigError(f"program.devices = {one.program.devices}: self-play runs on one; write 1")
        block = next(iter(self._blocks().values()))
        if self.pool.share > 0.0 and block.start == block.stop:
            least = int(np.ceil(len(self.sizes) * self.pool.opponents / self.pool.share))
            raise ConfigError(
                f"self_play: a share of {self.pool.share:g} of {self.num_envs} environments has no room for "
                f"{self.pool.opponents} past selves of each of {len(self.sizes)} groups; nearest num_envs: {least}"
            )

    def annealed(self, progress: Array, env_steps: Array) -> SelfPlay:
        """Return this agent with every group annealed to `progress` (0 to 1) and `env_steps`."""
        return dataclasses.replace(self, agent=self.agent.annealed(progress, env_steps))

    def initial_carry(self, num_streams: int) -> PyTree:
        """Return the carry at the start of an episode, by group."""
        return self.agent.initial_carry(num_streams)

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


def _frozen(learners: dict[str, Any]) -> dict[str, Any]:
    """Return learners without their training state (optimiser, reward statistics, KL control)."""
    nothing: dict[str, Any] = {"opt_state": (), "reward_stats": None, "control": ()}
    return {name: learner._replace(**nothing) for name, learner in learners.items()}
