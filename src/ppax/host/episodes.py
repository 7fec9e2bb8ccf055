"""Evaluation on host environments: whole episodes on separate environments."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np

from ppax.envs import HostEnv
from ppax.envs.hosting.arrays import element_of
from ppax.envs.hosting.host_env import reset_seeds
from ppax.envs.hosting.stepper import HostStep
from ppax.host.policy import PolicyInputs, make_policy
from ppax.protocols import Agent
from ppax.types import Key, LearnerState, Outcome

BLOCK = 1024  # steps whose random numbers are drawn at once


class HostActor:
    """Policy inference in host environments, from a reset on, without training.

    The caller must close the environments after any exception.
    """

    def __init__(self, agent: Agent, env: HostEnv, learner: LearnerState, key: Key, deterministic: bool):
        start_key, self._key = jax.random.split(key)
        self._parameters, self._env, self._steps = (agent, learner), env, [0] * len(env.host.batches)
        self._policy = make_policy(agent, env, learner, deterministic)
        # latest observations of each batch of environments
        self.latest = env.host.reset(reset_seeds(start_key, env.num_envs))
        self._carry = [jax.tree.map(np.asarray, agent.initial_carry(len(one.first))) for one in self.latest]

    def send(self, number: int) -> None:
        """Choose actions for the batch `number` from its latest observations and start its step."""
        t, env, step = self._steps[number], self._env, self.latest[number]
        if t % BLOCK == 0 and t == max(self._steps):  # the first batch to reach this block of steps
            self._policy.begin(*self._parameters, BLOCK, jax.random.fold_in(self._key, t // BLOCK))
        obs = element_of(env.observation_space, iter(step.obs))
        inputs = PolicyInputs(self._carry[number], obs, step.first, step.mask)
        acted = self._policy.act(t % BLOCK, env.host.batches[number], inputs)
        self._carry[number] = acted.carry
        self._steps[number] += 1
        env.host.send(number, acted.env_action)

    def receive(self, number: int) -> HostStep:
        """Wait for the step of the batch `number` and return its result. Raises EnvError if it failed."""
        self.latest[number] = self._env.host.receive(number)
        return self.latest[number]


def play_episodes(
    agent: Agent,
    env: HostEnv,
    learner: LearnerState,
    key: Key,
    episodes: int,
    deterministic: bool,
    max_steps: int,
) -> Outcome:
    """Play `episodes` whole episodes of one stream each, on at most as many new environments as `env` has.

    The number of episodes per stream is fixed in advance, so that the sample is not biased towards short episodes.
    """
    eval_env = env.recreate(min(-(-episodes // env.num_agents), env.num_envs))
    try:
        run = _Episodes(eval_env.num_streams, episodes, max_steps, env.host.spec.metrics)
        actor, batches = HostActor(agent, eval_env, learner, key, deterministic), eval_env.host.batches
        for number in range(len(batches)):
            actor.send(number)
        while run.left.any():
            for number, rows in enumerate(batches):
                run.count(rows, actor.receive(number))
                actor.send(number)
        for number in range(len(batches)):
            actor.receive(number)
        return run.outcome(eval_env.num_agents)
    except BaseException:
        eval_env.close()
        raise
    finally:
        if eval_env.host is not env.host:
            eval_env.close()


class _Episodes:
    """Running episodes of every stream, and results of the finished ones."""

    def __init__(self, streams: int, episodes: int, max_steps: int, metrics: Sequence[str] = ()):
        quota = np.full(streams, episodes // streams) + (np.arange(streams) < episodes % streams)
        self.left, self.max_steps = quota, max_steps  # episodes still to play [B]
        self._returns, self._lengths = np.zeros(streams), np.zeros(streams, int)
        self._absent, self._unplayed = np.zeros(streams, int), 0
        self._names, nothing = metrics, np.zeros((streams, len(metrics)))
        self._last = nothing  # latest metrics [B, k]
        self._done: list[list[tuple[float, int, bool, list[float]]]] = [[] for _ in range(streams)]

    def count(self, rows: slice, step: HostStep) -> None:
        """Add one step of the streams `rows`."""
        reward, ended = np.where(step.valid, step.reward, 0.0), step.terminated | step.truncated
        if step.episode_stats is not None:
            reward, ended = step.episode_stats
        self._returns[rows] += reward
        if step.metrics is not None:
            self._last[rows] = step.metrics
        self._lengths[rows] += step.valid
        self._absent[rows] = np.where(step.valid, 0, self._absent[rows] + 1)
        stuck = ~ended & (self._lengths[rows] >= self.max_steps)
        missing = self._absent[rows] >= self.max_steps  # the agent has been absent for `max_steps` steps
        for i in rows.start + np.flatnonzero(ended | stuck | missing):
            if self.left[i] > 0 and not missing[i - rows.start]:
                row = self._last[i].tolist()
                self._done[i].append((self._returns[i], self._lengths[i], not stuck[i - rows.start], row))
                self.left[i] -= 1
            if stuck[i - rows.start] or missing[i - rows.start]:
                self._unplayed += self.left[i]
                self.left[i] = 0
            self._returns[i] = self._lengths[i] = 0

    def outcome(self, num_agents: int) -> Outcome:
        """Return the finished episodes, ordered by stream."""
        played = [(*one, stream % num_agents) for stream, done in enumerate(self._done) for one in done]
        returns, lengths, finished, rows, agents = zip(*played, strict=True) if played else ((), (), (), (), ())
        numbers = np.array(returns, np.float32), np.array(lengths, np.int32), np.array(finished, bool)
        columns = np.array(rows, np.float32).reshape(len(rows), len(self._names)).T
        metrics = dict(zip(self._names, columns, strict=True))
        return Outcome(*numbers, np.array(agents, int), metrics, int(self._unplayed))
