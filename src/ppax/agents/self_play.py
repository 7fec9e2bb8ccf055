"""Self-play: in a share of the environments one group is a past self, drawn from a pool on the device; Elo ratings.

Who plays only against what the others are now forgets how to beat what they were: Bansal et al. 2018, "Emergent
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
from ppax.agents.opponents import START, chance, seats_of, without
from ppax.agents.opponents import Pool as Pool
from ppax.arrays.metrics import reduced
from ppax.arrays.sequences import where_rows
from ppax.learning.diagnostics import Update
from ppax.learning.forward import Policy
from ppax.ppo import PPO
from ppax.program.layout import Program
from ppax.types import ConfigError, Decision, Episodes, Key, Metrics, PyTree, Rollout, Scalar, part, static


class SelfPlayState(NamedTuple):
    """Learners, and all that is remembered of what they were."""

    now: dict[str, Any]  # of each group, its learner
    pool: dict[str, Any]  # [P, ...] learners without what only learning needs
    kept: Array  # [] int32 how often the learners were kept; the newest is at place (kept - 1) % P
    opponents: dict[str, Array]  # [K] places in the pool of those who play
    elo: dict[str, Array]  # [] rating of what the group is now
    past_elo: dict[str, Array]  # [P] and of its past selves
    returns: Array  # [E, A] of the running episodes
    counts: Array  # [E] the running episode began with the opponents that it has
    iteration: Array  # [] int32


@part
class SelfPlay:
    """`agent`, whose groups also play against past selves of each other.

    The last `share` of the environments is dealt out to the groups: in its part, a group is a past self, from which
    nobody learns; its rows are left out of the update. Who has earned more in an episode than the others on average has
    won. Runs on one device. `num_envs` is that of the environment; evaluation is of what the groups are now.
    """

    agent: Groups
    pool: Pool
    num_envs: int = static("environments that are stepped together", low=1)

    def init(self, observation_space: spaces.Dict, key: Key) -> Any:
        """Fresh learners; the pool has them as its first."""
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
        """Sample an action of everyone, of past selves by their own policies; see `Groups.act`."""
        key = jax.random.split(key, first.shape[0]) if key.ndim == 0 else key
        decision = self.agent.act(learner.now, carry, obs, first, action_mask, key)
        firsts, keys = self.agent.apart(first), self.agent.apart(jax.random.clone(key))
        for name, rows in self._rows().items():
            if rows.start == rows.stop:
                continue
            mask = None if action_mask is None else action_mask[name]
            seen = (carry[name], obs[name], firsts[name], mask, keys[name])
            seats = jax.tree.map(lambda x, rows=rows: seats_of(x[rows], self.pool.opponents), seen)
            past = jax.tree.map(lambda x, name=name: x[learner.opponents[name]], learner.pool[name])
            acted = jax.vmap(self.agent.agents[name].act)(past, *seats)
            for field in ("carry", "action", "env_action"):
                before, after = getattr(decision, field), getattr(acted, field)
                merged = jax.tree.map(
                    lambda x, y, rows=rows: x.at[rows].set(y.reshape(x[rows].shape)), before[name], after
                )
                decision = decision._replace(**{field: before | {name: merged}})
        return decision

    def policy(self, learner: Any, carry: PyTree, obs: PyTree, first: Array, action_mask: PyTree | None) -> Policy:
        """What all groups are now."""
        return self.agent.policy(learner.now, carry, obs, first, action_mask)

    def update(self, learner: Any, rollout: Rollout, key: Key) -> Update:
        """Every group learns from where it is itself; ratings and, every so often, the pool follow."""
        key = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        seen = {name: without(self.agent.rollout(name, rollout), rows) for name, rows in self._rows().items()}
        now, metrics = self.agent.learn(learner.now, seen, key)
        learners: Any = now
        rated = self._rate(learner, rollout)
        draw_key = jax.random.fold_in(key[0], self.num_agents)  # players and groups have smaller numbers
        learner = self._keep(rated._replace(now=learners, iteration=learner.iteration + 1), draw_key)
        return Update(learner, metrics | reduced("last", self._ratings(learner)))

    def _rate(self, learner: SelfPlayState, rollout: Rollout) -> SelfPlayState:
        """Ratings after the episodes that ended in a rollout; who beats a better one gains more.

        An episode has ended where no agent acts and the environment begins anew. Where one begins without that, it was
        cut by a forced reset, and nobody has won.
        """
        weights = self._margin_weights()

        def step(state: tuple[Array, Array], now: tuple[Array, Array, Array]) -> Any:
            returns, counts = state
            reward, first, ended = now
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
            played, won = (seats_of(x[block], self.pool.opponents).sum(axis=1) for x in (games, wins))  # [K]
            seats = learner.opponents[name]
            surprise = won / jnp.maximum(played, 1.0) - self._chance(learner, name)[seats]
            gain = jnp.where(played > 0.0, self.pool.elo_step * surprise, 0.0)
            past_elo[name] = past_elo[name].at[seats].add(gain)
            for other in elo:
                if other != name:
                    elo[other] = elo[other] - gain.sum() / (len(elo) - 1)
        return learner._replace(elo=elo, past_elo=past_elo, returns=returns, counts=counts)

    def _keep(self, learner: SelfPlayState, key: Key) -> SelfPlayState:
        """Where it is time, the learners join the pool, and other past selves play."""
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
        """How likely each past self [P] of a group wins against what the others are now."""
        others = [elo for other, elo in learner.elo.items() if other != name]
        return chance(learner.past_elo[name], jnp.stack(others).mean())

    def _ratings(self, learner: SelfPlayState) -> Metrics:
        table = {f"elo/{name}": learner.elo[name] for name, _ in self.sizes}
        for name, _ in self.sizes:
            table |= {f"elo/{name}_past_{place}": learner.past_elo[name][place] for place in range(self.pool.size)}
        return table

    def own_episodes(self, episodes: Episodes) -> Episodes:
        """Those [B] of what the groups are now; none of past selves."""
        now = np.ones((self.num_envs, self.num_agents), bool)
        begin = 0
        for name, size in self.sizes:
            now[self._blocks()[name], begin : begin + size] = False
            begin += size
        return Episodes(*(jnp.where(now.reshape(-1), x, 0) for x in episodes))

    def settled(self, before: SelfPlayState, after: SelfPlayState, carry: dict[str, Any]) -> dict[str, Any]:
        """Memories after an update: empty for a past self that has taken the seat of another in mid-episode."""
        drawn, place = after.kept != before.kept, before.kept % self.pool.size
        memories = dict(carry)
        for name, rows in self._rows().items():
            seats = after.opponents[name]
            # at `place` of the pool there is another self now
            other = drawn & ((seats != before.opponents[name]) | (seats == place))
            other = jnp.repeat(other, (rows.stop - rows.start) // self.pool.opponents)
            empty = self.agent.agents[name].initial_carry(rows.stop - rows.start)
            own = where_rows(other, empty, jax.tree.map(lambda x, rows=rows: x[rows], carry[name]))
            memories[name] = jax.tree.map(lambda x, y, rows=rows: x.at[rows].set(y), carry[name], own)
        return memories

    def _blocks(self) -> dict[str, slice]:
        """The environments in which each group is a past self."""
        groups = len(self.sizes)
        length = int(self.num_envs * self.pool.share / groups) // self.pool.opponents * self.pool.opponents
        begin = self.num_envs - groups * length
        return {name: slice(begin + i * length, begin + (i + 1) * length) for i, (name, _) in enumerate(self.sizes)}

    def _rows(self) -> dict[str, slice]:
        """The same, as streams of the group."""
        sizes = dict(self.sizes)
        return {name: slice(b.start * sizes[name], b.stop * sizes[name]) for name, b in self._blocks().items()}

    def _margin_weights(self) -> np.ndarray:
        """What makes of returns [A] how much more the past self's group has than the others, [E, A]."""
        weights, begin = np.zeros((self.num_envs, self.num_agents), np.float32), 0
        for name, size in self.sizes:
            block = self._blocks()[name]
            weights[block] = -1.0 / max(1, self.num_agents - size)
            weights[block, begin : begin + size] = 1.0 / size
            begin += size
        return weights

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Who learns, and from how many of the streams: from those where it is no past self; on one device."""
        found: list[tuple[PPO, int]] = []
        for name, size in self.sizes:
            block = self._blocks()[name]
            streams = (self.num_envs - (block.stop - block.start)) * size
            found += self.agent.agents[name].learners(streams)
        alone = [(dataclasses.replace(one, program=_alone(one.program)), streams) for one, streams in found]
        return tuple(alone)

    def check(self) -> None:
        """Raise ConfigError for numbers that exclude each other."""
        self.agent.check()
        if len(self.sizes) < 2:
            raise ConfigError("self_play: takes at least two groups that play against each other; there is one")
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
        """Every group's agent at this progress of training."""
        return dataclasses.replace(self, agent=self.agent.annealed(progress, env_steps))

    def initial_carry(self, num_streams: int) -> PyTree:
        """Memories at the start of an episode."""
        return self.agent.initial_carry(num_streams)

    def sequence_length(self, num_steps: int) -> int:
        """Steps between memories that a rollout keeps."""
        return self.agent.sequence_length(num_steps)

    def discount(self, num_streams: int) -> Scalar:
        """Discount of each stream's rewards, [B]."""
        return self.agent.discount(num_streams)

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Name of each group, and how many are in it."""
        return self.agent.sizes

    @property
    def num_agents(self) -> int:
        """Agents in an environment."""
        return self.agent.num_agents

    @property
    def num_epochs(self) -> int:
        """The most passes over a rollout that a group makes."""
        return self.agent.num_epochs

    @property
    def program(self) -> Program:
        """How the compiled program is laid out: on one device."""
        return _alone(self.agent.program)


def _alone(program: Program) -> Program:
    return dataclasses.replace(program, devices=1)


def _frozen(learners: dict[str, Any]) -> dict[str, Any]:
    """What of learners acts."""
    nothing: dict[str, Any] = {"opt_state": (), "reward_stats": None, "control": ()}
    return {name: learner._replace(**nothing) for name, learner in learners.items()}
