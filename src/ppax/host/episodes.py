"""Whole episodes on host environments of their own."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ppax.agents.multi_agent import HostAgent
from ppax.envs import HostEnv
from ppax.envs.hosting.arrays import element_of
from ppax.envs.hosting.host_env import begin_seeds
from ppax.envs.hosting.stepper import Seen
from ppax.host.policy import Observed, make_policy
from ppax.types import Key, LearnerState

BLOCK = 1024  # steps for which randomness is drawn at once


class Outcome(NamedTuple):
    """Of each episode, [episodes]."""

    returns: np.ndarray
    lengths: np.ndarray
    finished: np.ndarray  # False: cut after `max_steps`
    agents: np.ndarray  # number of the agent whose episode it is
    unplayed: int  # episodes that are missing, because a stream reached `max_steps` before it had played its share


class HostActor:
    """A policy that acts in host environments from the beginning of an episode on, and learns nothing.

    Whatever goes wrong, the environments have to be closed.
    """

    def __init__(self, agent: HostAgent, env: HostEnv, learner: LearnerState, key: Key, deterministic: bool):
        start_key, self._key = jax.random.split(key)
        self._acting, self._env, self._steps = (agent, learner), env, [0] * len(env.host.groups)
        self._policy = make_policy(agent, env, learner, deterministic)
        self.seen = env.host.reset(begin_seeds(start_key, env.num_envs))  # of each group, the last that was received
        self._carry = [jax.tree.map(np.asarray, agent.initial_carry(len(one.first))) for one in self.seen]

    def send(self, number: int) -> None:
        """Act in a group of environments for what was seen last, and begin the step."""
        at, env, one = self._steps[number], self._env, self.seen[number]
        if at % BLOCK == 0 and at == max(self._steps):  # the first group to get there
            self._policy.begin(*self._acting, BLOCK, jax.random.fold_in(self._key, at // BLOCK))
        obs = element_of(env.observation_space, iter(one.obs))
        now = Observed(self._carry[number], obs, one.first, one.mask)
        acted = self._policy.act(at % BLOCK, env.host.groups[number], now)
        self._carry[number] = acted.carry
        self._steps[number] += 1
        env.host.send(number, acted.env_action)

    def receive(self, number: int) -> Seen:
        """What came of it."""
        self.seen[number] = self._env.host.receive(number)
        return self.seen[number]


def play_episodes(
    agent: HostAgent,
    env: HostEnv,
    learner: LearnerState,
    key: Key,
    episodes: int,
    deterministic: bool,
    max_steps: int,
) -> Outcome:
    """`episodes` whole episodes of one stream each, spread over as many environments as `env` has, or fewer.

    How many each plays is fixed before, so that short episodes are no likelier than long ones to be counted.
    """
    others = env.again(min(-(-episodes // env.num_agents), env.num_envs))
    try:
        run = _Episodes(others.num_streams, episodes, max_steps)
        performance, groups = HostActor(agent, others, learner, key, deterministic), others.host.groups
        for number in range(len(groups)):
            performance.send(number)
        while run.left.any():
            for number, rows in enumerate(groups):
                run.count(rows, performance.receive(number))
                performance.send(number)
        for number in range(len(groups)):
            performance.receive(number)
        return run.outcome(others.num_agents)
    except BaseException:
        others.close()
        raise
    finally:
        if others.host is not env.host:
            others.close()


class _Episodes:
    """The episodes of every stream, so far."""

    def __init__(self, streams: int, episodes: int, max_steps: int):
        quota = np.full(streams, episodes // streams) + (np.arange(streams) < episodes % streams)
        self.left, self.max_steps = quota, max_steps
        self._returns, self._lengths = np.zeros(streams), np.zeros(streams, int)
        self._absent, self._unplayed = np.zeros(streams, int), 0
        self._done: list[list[tuple[float, int, bool]]] = [[] for _ in range(streams)]

    def count(self, rows: slice, seen: Seen) -> None:
        """One step of some streams."""
        reward, ended = np.where(seen.valid, seen.reward, 0.0), seen.terminated | seen.truncated
        if seen.episode_stats is not None:
            reward, ended = seen.episode_stats
        self._returns[rows] += reward
        self._lengths[rows] += seen.valid
        self._absent[rows] = np.where(seen.valid, 0, self._absent[rows] + 1)
        stuck = ~ended & (self._lengths[rows] >= self.max_steps)
        gone = self._absent[rows] >= self.max_steps  # an agent that does not come
        for i in rows.start + np.flatnonzero(ended | stuck | gone):
            if self.left[i] > 0 and not gone[i - rows.start]:
                self._done[i].append((self._returns[i], self._lengths[i], not stuck[i - rows.start]))
                self.left[i] -= 1
            if stuck[i - rows.start] or gone[i - rows.start]:
                self._unplayed += self.left[i]
                self.left[i] = 0
            self._returns[i] = self._lengths[i] = 0

    def outcome(self, num_agents: int) -> Outcome:
        """All of them, stream by stream."""
        every = [(*one, stream % num_agents) for stream, done in enumerate(self._done) for one in done]
        returns, lengths, finished, agents = zip(*every, strict=True) if every else ((), (), (), ())
        numbers = np.array(returns, np.float32), np.array(lengths, np.int32), np.array(finished, bool)
        return Outcome(*numbers, np.array(agents, int), int(self._unplayed))
