"""Whole episodes on host environments of their own."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ppax.envs import HostEnv
from ppax.envs.arrays import element_of
from ppax.envs.host_env import begin_seeds
from ppax.envs.stepper import Seen
from ppax.host.policy import Observed, make_policy
from ppax.ppo import PPO
from ppax.types import Key, LearnerState

BLOCK = 1024  # steps for which randomness is drawn at once


class Outcome(NamedTuple):
    """Of each episode, [episodes]."""

    returns: np.ndarray
    lengths: np.ndarray
    finished: np.ndarray  # False: cut after `max_steps`


def play_episodes(
    agent: PPO, env: HostEnv, learner: LearnerState, key: Key, episodes: int, deterministic: bool, max_steps: int
) -> Outcome:
    """`episodes` whole episodes of one stream each, spread over as many environments as `env` has, or fewer.

    How many each plays is fixed before, so that short episodes are no likelier than long ones to be counted.
    """
    others = env.again(min(-(-episodes // (env.num_agents or 1)), env.num_envs))
    start_key, act_key = jax.random.split(key)
    try:
        run = _Episodes(others.num_streams, episodes, max_steps)
        policy = make_policy(agent, others, learner, deterministic)
        host, groups = others.host, list(enumerate(others.host.groups))
        seen = host.reset(begin_seeds(start_key, others.num_envs))
        carry = [jax.tree.map(np.asarray, agent.initial_carry(len(one.first))) for one in seen]
        steps = 0
        while run.left.any():
            if steps % BLOCK == 0:
                policy.begin(agent, learner, BLOCK, jax.random.fold_in(act_key, steps // BLOCK))
            for number, rows in groups:
                if steps:
                    seen[number] = host.receive(number)
                    run.count(rows, seen[number])
                one = seen[number]
                obs = element_of(others.observation_space, iter(one.obs))
                acted = policy.act(steps % BLOCK, rows, Observed(carry[number], obs, one.first, one.mask))
                carry[number] = acted.carry
                host.send(number, acted.env_action)
            steps += 1
        for number, _ in groups:
            host.receive(number)
        return run.outcome()
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
        self._done: list[list[tuple[float, int, bool]]] = [[] for _ in range(streams)]

    def count(self, rows: slice, seen: Seen) -> None:
        """One step of some streams."""
        reward, ended = np.where(seen.valid, seen.reward, 0.0), seen.terminated | seen.truncated
        if seen.tally is not None:
            reward, ended = seen.tally
        self._returns[rows] += reward
        self._lengths[rows] += seen.valid
        stuck = ~ended & (self._lengths[rows] >= self.max_steps)
        for i in rows.start + np.flatnonzero(ended | stuck):
            if self.left[i] > 0:
                self._done[i].append((self._returns[i], self._lengths[i], not stuck[i - rows.start]))
                self.left[i] = 0 if stuck[i - rows.start] else self.left[i] - 1
            self._returns[i] = self._lengths[i] = 0

    def outcome(self) -> Outcome:
        """All of them, stream by stream."""
        returns, lengths, finished = zip(*(one for done in self._done for one in done), strict=True)
        return Outcome(np.array(returns, np.float32), np.array(lengths, np.int32), np.array(finished))
