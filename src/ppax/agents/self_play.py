"""Self-play: in a fraction of the environments one group is played by past selves from a pool, rated by Elo.

A past self is a snapshot of a group's learner.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.agents.groups import Groups
from ppax.agents.policies import without_extensions
from ppax.arrays.metrics import MISSING, reduced
from ppax.core.parts import Interval
from ppax.core.types import (
    OF_LEARNING,
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
    number,
    part,
    static,
)
from ppax.devices.layout import Program
from ppax.ppo.ppo import PPO

START = 1000.0  # initial Elo rating
SCALE = 400.0  # rating difference that means odds of 10 to 1
ROUNDING = 1e-6  # margin, relative to the returns, up to which a game is drawn: sums in float32 differ by rounding


@part
class SelfPlay:
    """Agent of groups that are trained against each other and against past selves (snapshots) of each other.

    A fraction `pool.share` of the environments, the last ones, is divided into one block for each group. In its block,
    a group is played by past selves, whose rows are left out of the update. A group wins an episode if its mean return
    is higher than that of the other agents. Self-play runs on one device, with `num_envs` environments; evaluations are
    of the current learners.
    """

    agent: Groups
    pool: Pool
    num_envs: int = static("number of parallel environments", low=1)

    def init(self, observation_space: Any, key: Key) -> Any:
        """Return the first state of self-play: new learners, and a pool whose past selves are all snapshots of them."""
        current = self.agent.init(observation_space, key)
        names, size = [name for name, _ in self.sizes], self.pool.size
        return SelfPlayState(
            current=current,
            pool=pool_of(current, size),
            num_snapshots=jnp.int32(1),
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
        """Return sampled actions of all groups; in the rows of past selves, the past selves' policies choose them.

        Log-probabilities and V are those of current learners in all rows. Arguments are as in `Groups.act`: `first`
        [B], and dicts by group of [E * A_g, ...].
        """
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
        """Return action distributions, next carries and V [B] of the current learners, without past selves.

        Arguments and results are as in `Groups.policy`.
        """
        return self.agent.policy(learner.current, carry, obs, first, action_mask)

    def update(self, learner: Any, rollout: Rollout, key: Key) -> Update:
        """Return the state of self-play after an update, with new Elo ratings, and the metrics.

        Each group learns from its own rows. Every `pool.every` iterations, snapshots are added to the pool. `key` is
        one key, or a key for each epoch [num_epochs].
        """
        key = jax.random.split(key, self.num_epochs) if key.ndim == 0 else key
        whole = {block.name: self.agent.rollout(block.name, rollout) for block in self._blocks()}
        rollouts = {block.name: without_streams(whole[block.name], block.rows) for block in self._blocks()}
        learned = self.agent.learn(learner.current, rollouts, key)
        draw_key = jax.random.fold_in(key[0], self.num_agents)  # larger than any number folded in by players and groups
        rated = self._rate(learner, rollout)._replace(current=learned.learner, iteration=learner.iteration + 1)
        after = with_snapshot(self.pool, rated, [name for name, _ in self.sizes], draw_key)
        metrics = learned.metrics | reduced("last", self._ratings(after))
        current = current_agents(self._blocks(), self.num_envs, self.num_agents)
        streams = with_streams(whole, learned, {block.name: block.rows for block in self._blocks()})
        return Update(after, metrics, jnp.asarray(current.reshape(-1)), self.replaced(learner, after), streams)

    def _rate(self, learner: SelfPlayState, rollout: Rollout) -> SelfPlayState:
        """Return the state of self-play with Elo ratings updated by the episodes that ended in a rollout.

        Episodes end at autoreset steps, in which no agent acts.
        """
        steps, shape = rollout.played or rollout.steps, (self.num_envs, self.num_agents)
        reward = steps.reward if rollout.played else jnp.where(steps.valid, steps.reward, 0.0)
        reward, begun, acting = (x.reshape(-1, *shape) for x in (reward, steps.first, steps.valid))
        # absent agents count as begun: they may appear later; in turns, those that wait for theirs do not
        first = begun.all(axis=2) if rollout.played else (begun | ~acting).all(axis=2) & begun.any(axis=2)
        ended = ~acting.any(axis=2)
        weights = margin_weights(self._blocks(), *shape)
        games = play_games(reward, first, ended, weights, learner.returns, learner.counts)
        elo, past_elo = dict(learner.elo), dict(learner.past_elo)
        for name, envs, _, _ in self._blocks():
            played, won = (by_opponent(x[envs], self.pool.opponents).sum(axis=1) for x in games[:2])  # [K]
            seats = learner.opponents[name]
            gains = gain(played, won, win_chance(learner, name)[seats], self.pool.elo_step)
            past_elo[name] = past_elo[name].at[seats].add(gains)
            for other in elo:
                if other != name:
                    elo[other] = elo[other] - gains.sum() / (len(elo) - 1)
        return learner._replace(elo=elo, past_elo=past_elo, returns=games.returns, counts=games.counts)

    def _ratings(self, learner: SelfPlayState) -> Metrics:
        table = {f"elo/{name}": learner.elo[name] for name, _ in self.sizes}
        for name, _ in self.sizes:
            filled = jnp.arange(self.pool.size) < learner.num_snapshots
            past = jnp.where(filled, learner.past_elo[name], MISSING)  # where there is no past self yet
            table |= {f"elo/{name}_past_{place}": past[place] for place in range(self.pool.size)}
        return table

    def replaced(self, before: SelfPlayState, after: SelfPlayState) -> dict[str, Array]:
        """Return masks [E * A_g], a dict by group, of the streams whose past self was exchanged by an update.

        Training resets the memory in these streams, as it is that of another policy. A stream is one player (agent of
        an environment) in one environment. `before` and `after` are the states of self-play before and after the
        update.
        """
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

    def _blocks(self) -> tuple[Block, ...]:
        return tuple(past_self_blocks(self.num_envs, self.sizes, self.pool.share, self.pool.opponents))

    @property
    def requires(self) -> Requirements:
        """Requirements of self-play on the environment: its groups of agents, and the number of environments."""
        return self.agent.requires._replace(num_envs=self.num_envs)

    @property
    def sharing(self) -> str:
        """Parameter sharing: "independent" if all agents have parameters of their own, otherwise "shared"."""
        return self.agent.sharing

    def evaluate_rollout(self, learner: Any, steps: Transition) -> tuple[Array, Array]:
        """Return V and the log-probability of the stored action, both [T, B], under the current learners.

        `steps` are the steps [T, B] of a rollout.
        """
        return self.agent.evaluate_rollout(learner.current, steps)

    def learners(self, num_streams: int) -> tuple[tuple[PPO, int], ...]:
        """Return every PPO that self-play trains, with its number of streams; those of past selves do not count.

        A stream is one agent in one environment. The PPOs' programs are set to one device. `num_streams` has no effect.
        """
        learners: list[tuple[PPO, int]] = []
        for (name, size), block in zip(self.sizes, self._blocks(), strict=True):
            streams = (self.num_envs - (block.envs.stop - block.envs.start)) * size
            learners += self.agent.agents[name].learners(streams)
        return tuple(
            (dataclasses.replace(one, program=_on_one_device(one.program)), streams) for one, streams in learners
        )

    def check(self) -> None:
        """Raise ConfigError for fewer than two groups, several devices, or too few environments for the opponents.

        It is also raised where options of a group's agent contradict each other, and where `pool.every` is None or a
        number of steps ("50k steps"), which only run files can have.
        """
        self.agent.check()
        if self.pool.every is None:
            raise ConfigError("self_play.every = none: must be a number of iterations, as ppax.Pool(every=10)")
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
        """Return this agent with the numbers, such as the learning rate, that each group's schedule sets at this time.

        The time is `progress` of training, in [0, 1], and `env_steps`, the number of valid environment steps so far.
        """
        return dataclasses.replace(self, agent=self.agent.annealed(progress, env_steps))

    def start_carry(self, num_streams: int) -> PyTree:
        """Return the carry, which the groups' policies keep from step to step, at the start of collection.

        It is a dict by group of [E * A_g, ...], for E environments and A_g agents of group g.
        """
        return self.agent.start_carry(num_streams)

    def initial_carry(self, num_streams: int) -> PyTree:
        """Return the networks' memories at the start of an episode, a dict by group of [E * A_g, ...].

        E is the number of environments, and A_g that of group g's agents.
        """
        return self.agent.initial_carry(num_streams)

    def init_streams(self, num_streams: int) -> PyTree:
        """Return the initial states that extensions keep for each stream, by group and then by the extension's name.

        A stream is one player (agent of an environment) in one environment.
        """
        return self.agent.init_streams(num_streams)

    def sequence_length(self, num_steps: int) -> int:
        """Return the number of steps between two memory states that a rollout of `num_steps` stores."""
        return self.agent.sequence_length(num_steps)

    def discount(self, num_streams: int) -> Scalar:
        """Return the discount factor of each stream's rewards, [B], which is that of the stream's group.

        A stream is one agent in one environment.
        """
        return self.agent.discount(num_streams)

    @property
    def sizes(self) -> tuple[tuple[str, int], ...]:
        """Name and number of agents of each group."""
        return self.agent.sizes

    @property
    def num_agents(self) -> int:
        """Number of agents of an environment, in all groups together."""
        return self.agent.num_agents

    @property
    def num_epochs(self) -> int:
        """Number of epochs of one update: the largest of all groups."""
        return self.agent.num_epochs

    @property
    def program(self) -> Program:
        """Layout of the compiled training program (`ppax.devices.layout.Program`), which runs on one device."""
        return _on_one_device(self.agent.program)


@part
class Pool:
    """Settings of self-play: how many snapshots of the learners are kept, and how opponents are sampled from them.

    Sampling "hard" is prioritised fictitious self-play, Vinyals et al. 2019,
    https://doi.org/10.1038/s41586-019-1724-z.
    """

    every: Interval | None = static(
        'iterations between two snapshots for the pool, in a run file or option also "50k steps"; by default there is '
        "no self-play",
        default=None,
        low=1,
        interval=True,
    )
    size: int = static("pool size: number of newest snapshots kept of each group", default=8, low=1)
    share: float = static(
        "fraction of environments in which one group is played by a past self", default=0.5, low=0.0, high=1.0
    )
    opponents: int = static("number of past selves of each group that play at the same time", default=2, low=1)
    sampling: str = static(
        'sampling of opponents: "uniform", "recent" (newer more often) or "hard" (higher win rate more often)',
        default="uniform",
        choices=("uniform", "recent", "hard"),
    )
    elo_step: Scalar = number(
        "Elo K-factor: rating points per unit of actual minus expected score, as mean over the games of an update",
        default=16.0,
        low=0.0,
    )

    def logits(self, wins: Array, age: Array) -> Array:
        """Return the logits [P] by which the P past selves of a pool are sampled, by the option `sampling`.

        `wins` [P] are the past selves' probabilities of winning against the current learners of the other groups; `age`
        [P] is the number of snapshots taken since that of each past self.
        """
        if self.sampling == "recent":
            return -jnp.log1p(age.astype(jnp.float32))
        return 2.0 * jnp.log(wins) if self.sampling == "hard" else jnp.zeros_like(wins)


class SelfPlayState(NamedTuple):
    """State of self-play: current learners, pool of past selves, ratings, and running scores of the episodes."""

    current: dict[str, Any]  # current learner of each group
    pool: dict[str, Any]  # [P, ...] snapshots of each group's learner, without training state such as the optimiser's
    num_snapshots: Array  # [] int32 snapshots taken; the newest is at index (num_snapshots - 1) % P
    opponents: dict[str, Array]  # [K] pool indices of the past selves that play
    elo: dict[str, Array]  # [] Elo rating of the current learner
    past_elo: dict[str, Array]  # [P] Elo ratings of the past selves
    returns: Array  # [E, A] returns of the running episodes
    counts: Array  # [E] whether the running episode began with its present opponents
    iteration: Array  # [] int32


def with_snapshot(pool: Pool, learner: SelfPlayState, names: Sequence[str], key: Key) -> SelfPlayState:
    """Return the state of self-play with a snapshot of the learners in the pool and new opponents, if one is due.

    A snapshot is due every `pool.every` iterations; otherwise the state is unchanged. `names` are the groups' names.
    """
    size = pool.size
    due = learner.iteration % (pool.every or 1) == 0
    place = learner.num_snapshots % size
    count = learner.num_snapshots + 1
    age = (count - 1 - jnp.arange(size)) % size  # 0: the newest
    keys = jax.random.split(key, len(names))
    past_elo = {name: x.at[place].set(learner.elo[name]) for name, x in learner.past_elo.items()}
    after = learner._replace(
        pool=jax.tree.map(lambda x, new: x.at[place].set(new), learner.pool, snapshot(learner.current)),
        past_elo=past_elo,
        num_snapshots=count,
        counts=jnp.zeros_like(learner.counts),
    )
    opponents = {}
    for name, key in zip(names, keys, strict=True):
        logits = jnp.where(jnp.arange(size) < count, pool.logits(win_chance(after, name), age), -jnp.inf)
        opponents[name] = jax.random.categorical(key, logits, shape=(pool.opponents,)).astype(jnp.int32)
    after = after._replace(opponents=opponents)
    return jax.tree.map(lambda new, old: jnp.where(due, new, old), after, learner)


def with_own_games(own: SelfPlayState, learner: SelfPlayState, copied: Array) -> SelfPlayState:
    """Return the state of self-play `learner` with the running games (episodes) of the state `own`.

    This is for a run of a sweep that goes on with another run's `learner`, but keeps the games of its own environments.
    If `copied` is True (`learner` is another run's), running games do not count for the ratings, because they began
    with other opponents.
    """
    return learner._replace(returns=own.returns, counts=own.counts & ~copied)


def win_chance(learner: SelfPlayState, name: str) -> Array:
    """Return the win probability [P] of each past self of the group `name` against the other groups' learners.

    These are the current learners, with the mean of their ratings.
    """
    others = [elo for other, elo in learner.elo.items() if other != name]
    return win_probability(learner.past_elo[name], jnp.stack(others).mean())


def snapshot(learners: dict[str, Any]) -> dict[str, Any]:
    """Return the groups' learners without what only training needs: optimiser, reward statistics, extensions."""
    return {name: learner._replace(**OF_LEARNING) for name, learner in learners.items()}


def pool_of(learners: dict[str, Any], size: int) -> dict[str, Any]:
    """Return a pool [P, ...] whose past selves, `size` of them, are all snapshots of `learners`, a dict by group."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (size, *x.shape)), snapshot(learners))


def by_opponent(x: Array, opponents: int) -> Array:
    """Return `x` [n, ...], which has the rows of K past selves one after the other, as [K, n / K, ...].

    `opponents` is K.
    """
    return x.reshape(opponents, x.shape[0] // opponents, *x.shape[1:])


def without_streams(rollout: Rollout, rows: slice) -> Rollout:
    """Return `rollout` without the streams `rows`, which past selves play.

    A stream is one player (agent of an environment) in one environment.
    """

    def drop(x: Array, axis: int) -> Array:
        before = jax.lax.slice_in_dim(x, 0, rows.start, axis=axis)
        return jnp.concatenate([before, jax.lax.slice_in_dim(x, rows.stop, x.shape[axis], axis=axis)], axis)

    return Rollout(
        steps=jax.tree.map(lambda x: drop(x, 1), rollout.steps),
        last_value=drop(rollout.last_value, 0),
        reward_trace=drop(rollout.reward_trace, 1),
        last_obs=jax.tree.map(lambda x: drop(x, 0), rollout.last_obs),
        extensions=jax.tree.map(lambda x: drop(x, 0), rollout.extensions),
        played=jax.tree.map(lambda x: drop(x, 1), rollout.played),
    )


def with_streams(before: Mapping[str, Rollout], learned: Update, rows: Mapping[str, slice]) -> dict[str, PyTree]:
    """Return the states that extensions keep for each stream (one agent in one environment) after an update, by group.

    Past selves play in the streams `rows` of a group, which take no part in the update: their states are those of the
    group's rollout `before` the update. States of all other streams come from the result `learned` of the update.
    Arrays are [E * A_g, ...] for E environments and A_g agents of the group.
    """

    def one(old: Array, new: Array, own: slice) -> Array:
        return jnp.concatenate([new[: own.start], old[own], new[own.start :]])

    return {
        name: jax.tree.map(partial(one, own=own), before[name].extensions, learned.extensions[name])
        for name, own in rows.items()
    }


def _on_one_device(program: Program) -> Program:
    return dataclasses.replace(program, devices=1)


class Block(NamedTuple):
    """Environments in which one group is played by past selves, which are snapshots of the group's learner.

    The slices say which environments these are, which agents of an environment are in the group, and which of the
    group's streams [E * A_g] the past selves play.
    """

    name: str  # of the group
    envs: slice
    members: slice  # of the group, among an environment's agents
    rows: slice  # past selves, among the group's streams [E * A_g]


def past_self_blocks(num_envs: int, sizes: Sequence[tuple[str, int]], share: float, opponents: int) -> Iterator[Block]:
    """Yield each group's block: the environments in which the group is played by past selves.

    `sizes` has name and number of agents of each group. The blocks of all groups are a `share` of the `num_envs`
    environments, the last ones. The length of a block is a multiple of `opponents`, the number of past selves among
    which it is divided.
    """
    length = int(num_envs * share / len(sizes)) // opponents * opponents
    begin, agent = num_envs - len(sizes) * length, 0
    for name, size in sizes:
        end = begin + length
        yield Block(name, slice(begin, end), slice(agent, agent + size), slice(begin * size, end * size))
        begin, agent = end, agent + size


def current_agents(blocks: Sequence[Block], num_envs: int, num_agents: int) -> np.ndarray:
    """Return a mask [E, A] of the agents that are played by current learners, and not by past selves.

    `blocks` are the environments in which each group is played by past selves. E is `num_envs`, A is `num_agents`.
    """
    current = np.ones((num_envs, num_agents), bool)
    for block in blocks:
        current[block.envs, block.members] = False
    return current


def margin_weights(blocks: Sequence[Block], num_envs: int, num_agents: int) -> np.ndarray:
    """Return weights [E, A] of a game's returns; the weighted sum is above 0 if the past self won, below 0 if it lost.

    A past self plays for its group in the environments of the group's block in `blocks`, and wins if its group's mean
    return is higher than the mean return of the other agents. The weights are those of the difference of the two means,
    multiplied by both numbers of agents: as whole numbers, they let equal returns cancel exactly.
    """
    weights = np.zeros((num_envs, num_agents), np.float32)
    for block in blocks:
        size = block.members.stop - block.members.start
        weights[block.envs] = -size
        weights[block.envs, block.members] = max(1, num_agents - size)
    return weights


class Games(NamedTuple):
    """Games (episodes) of a rollout in each of E environments: results of ended games, returns of games that go on.

    A game's score is that of the past self which plays in it. Games that began before the present opponents were drawn
    are not rated, and count neither as played nor as won.
    """

    played: Array  # [E] number of games that ended
    won: Array  # [E] sum of their scores: 1 won, 0.5 drawn, 0 lost
    returns: Array  # [E, A] returns of the running episodes
    counts: Array  # [E] whether the running episode is rated at its end


def play_games(
    reward: Array, first: Array, ended: Array, margin_weights: np.ndarray, returns: Array, counts: Array
) -> Games:
    """Return number and total score [E] of the rated games that ended in a rollout, and returns [E, A] of running ones.

    A game is an episode in one of E environments of A agents. `reward` is [T, E, A]; the sum of a game's rewards,
    weighted by `margin_weights` [E, A], decides: above 0 the past self won. `first` [T, E] marks the first step of a
    game, `ended` [T, E] the autoreset step after its last step. For the games that were running before the rollout,
    `returns` [E, A] are the returns so far, and `counts` [E] says whether the game is rated at its end. A game that a
    forced reset truncates is not rated; there is no autoreset step after it.
    """

    def step(state: tuple[Array, Array], inputs: tuple[Array, Array, Array]) -> Any:
        returns, counts = state
        reward, first, ended = inputs
        weighted = returns * margin_weights
        margin, rounding = weighted.sum(axis=1), ROUNDING * jnp.abs(weighted).sum(axis=1)
        over = ended & counts
        scored = game_score(margin, rounding)
        returns = jnp.where((first | ended)[:, None], 0.0, returns) + reward
        return (returns, counts | first), (over, jnp.where(over, scored, 0.0))

    (returns, counts), (games, wins) = jax.lax.scan(step, (returns, counts), (reward, first, ended))
    return Games(games.sum(axis=0, dtype=jnp.float32), wins.sum(axis=0), returns, counts)


def game_score(margin: Any, rounding: Any) -> Array:
    """Return the score of games from the margin of the returns: 1 for won, 0.5 for drawn, 0 for lost.

    A game is won if its margin is above `rounding`, lost if it is below -`rounding`, and drawn between these two.
    """
    return jnp.where(margin > rounding, 1.0, jnp.where(margin < -rounding, 0.0, 0.5))


def win_probability(elo: Array, other: Array) -> Array:
    """Return the win probability of an agent with the Elo rating `elo` against one with the rating `other`.

    Elo, "The rating of chessplayers", 1978.
    """
    return 1.0 / (1.0 + 10.0 ** ((other - elo) / SCALE))


def gain(played: Array, won: Array, chance: Array, elo_step: Scalar) -> Array:
    """Return the Elo points gained in `played` games with total score `won`, if `chance` is the expected score of each.

    `chance` is the win probability before the games, and `elo_step` the Elo K-factor. The points are those of one game
    with the mean score. The sum of the gains of all games would overshoot: with the usual 16 points the ratings of two
    players diverge from 43 games an update on.
    """
    surprise = won / jnp.maximum(played, 1.0) - chance
    return jnp.where(played > 0.0, elo_step * surprise, 0.0)


class Ratings(NamedTuple):
    """Elo ratings of P players, and the standard errors of these ratings."""

    elo: np.ndarray  # [P]
    error: np.ndarray  # [P] of the difference to the players' mean rating


def fitted(won: np.ndarray, played: np.ndarray) -> Ratings:
    """Return the most likely Elo ratings of P players, with mean START, and their standard errors.

    Player i has the score `won[i, j]` from `played[i, j]` games with player j. The likelihood of Bradley and Terry
    1952, https://doi.org/10.1093/biomet/39.3-4.324, does not depend on the order of the games. Each pair that has met
    is given one more game, drawn: without it, a player that has won all games would have no finite rating.
    """
    met = played > 0
    won, played = won + 0.5 * met, played + 1.0 * met
    ratings, most = np.zeros(len(won)), SCALE / np.log(10.0)
    for _ in range(1000):  # Newton's method, with steps of limited length
        chance = 1.0 / (1.0 + np.exp(np.clip(ratings[None] - ratings[:, None], -50.0, 50.0)))
        slope, spread = (won - played * chance).sum(axis=1), played * chance * (1.0 - chance)
        covariance = np.linalg.pinv(np.diag(spread.sum(axis=1)) - spread, rcond=1e-10, hermitian=True)
        step = covariance @ slope
        ratings = ratings + step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-12:
            break
    return Ratings(START + most * (ratings - ratings.mean()), most * np.sqrt(np.diag(covariance)))
