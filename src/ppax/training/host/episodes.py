"""Evaluation on host environments: whole episodes on separate environments, or step by step for rendering."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from ppax.core.protocols import Agent
from ppax.core.types import Key, LearnerState, Outcome, StepResult
from ppax.envs import HostEnv
from ppax.envs.hosting.arrays import element_of
from ppax.envs.hosting.host_env import reset_seeds
from ppax.envs.hosting.rendering import RenderedEnv
from ppax.envs.hosting.stepper import HostStep
from ppax.training.host.policy import HostPolicy, PolicyInputs, make_policy
from ppax.training.host.streams import hold_carry
from ppax.training.watching import watcher_of_evaluations

BLOCK = 1024  # steps whose random numbers are drawn at once


class HostActor:
    """Policy at play in host environments, from a reset on, without training.

    The caller must close the environments after any exception.
    """

    def __init__(self, agent: Agent, env: HostEnv, learner: LearnerState, key: Key, policy: HostPolicy):
        start_key, self._key = jax.random.split(key)
        self._parameters, self._env, self._steps = (agent, learner), env, [0] * len(env.host.batches)
        self._policy = policy
        self.latest = env.host.reset(
            reset_seeds(start_key, env.num_envs)
        )  # latest observations of each batch of environments
        self._carry = [jax.tree.map(np.asarray, agent.start_carry(len(one.first))) for one in self.latest]
        self._before = list(self._carry)  # before the step that runs

    def send(self, number: int) -> None:
        """Choose actions for batch `number` of environments, from their latest observations, and start their step."""
        t, env, step = self._steps[number], self._env, self.latest[number]
        if t % BLOCK == 0 and t == max(self._steps):  # the first batch to reach this block of steps
            self._policy.begin(*self._parameters, BLOCK, jax.random.fold_in(self._key, t // BLOCK))
        obs = element_of(env.observation_space, iter(step.obs))
        inputs = PolicyInputs(self._carry[number], obs, step.first, step.mask)
        acted = self._policy.act(t % BLOCK, env.host.batches[number], inputs)
        self._before[number], self._carry[number] = self._carry[number], acted.carry
        self._steps[number] += 1
        env.host.send(number, acted.env_action)

    def receive(self, number: int) -> HostStep:
        """Return the result of the step that `send` started for batch `number` of environments, once it is done.

        Raises EnvError if the step failed.
        """
        self.latest[number] = step = self._env.host.receive(number)
        if self._env.host.spec.turns:
            self._carry[number] = hold_carry(self._env, step.valid, self._before[number], self._carry[number])
        return step


class HostEpisodes:
    """Whole episodes in host environments, for evaluation; environments are created once, at most as many as `env` has.

    If the user passed in existing environments, the episodes are played in these. At each reset of all environments the
    episodes that are still to be played are divided evenly among the streams (one agent in one environment), so that
    the sample is not biased towards short episodes. When an episode is cut, at `max_steps`, its environment cannot be
    reset alone: the stream waits until all others have played their episodes or wait, too. Then all environments are
    reset.
    """

    def __init__(self, agent: Agent, env: HostEnv, episodes: int, deterministic: bool):
        self._agent, self._env = agent, env.recreate(min(-(-episodes // env.num_agents), env.num_envs))
        self._borrowed = self._env.host is env.host
        self._episodes, self._deterministic = episodes, deterministic
        self._policy: HostPolicy | None = None

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the environment's metrics, such as "is_success"."""
        return self._env.host.spec.metrics

    def __call__(self, learner: LearnerState, key: Key, max_steps: int) -> Outcome:
        """Return the results of the episodes of this learner, from fresh resets, each cut after `max_steps` steps."""
        agent, env = self._agent, self._env
        try:
            if self._policy is None:
                self._policy = make_policy(agent, env, learner, self._deterministic)
            run = _Episodes(
                env.num_streams, env.num_agents, self._episodes, max_steps, self.metrics, env.host.spec.turns
            )
            begun, batches, watcher = 0, env.host.batches, watcher_of_evaluations()
            while (run.left > 0).any():
                own_key = jax.random.fold_in(key, begun) if begun else key
                actor = HostActor(agent, env, learner, own_key, self._policy)
                for number in range(len(batches)):
                    actor.send(number)
                while run.playing.any():
                    for number, rows in enumerate(batches):
                        run.count(rows, actor.receive(number))
                        actor.send(number)
                    if watcher is not None:
                        watcher(run.ended, run.steps)
                for number in range(len(batches)):
                    actor.receive(number)
                run.begin_again()
                begun += 1
            return run.outcome()
        except BaseException:
            env.close()
            raise

    def close(self) -> None:
        """Close the environments that were created for these episodes; those passed in by the user stay open."""
        if not self._borrowed:
            self._env.close()


def counted(step: HostStep, turns: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return reward and episode end, [e] each, of one step of e streams, as the results of an evaluation count them.

    A stream is one agent in one environment. Where a wrapper changed rewards or episode ends, they are the unmodified
    ones. In turn-based environments (`turns`), rewards of agents that wait count, too.
    """
    if step.episode_stats is not None:
        return step.episode_stats
    return np.where(step.valid | turns, step.reward, 0.0), step.terminated | step.truncated


class _Episode(NamedTuple):
    """Result of one episode of one agent; `ret` is its undiscounted return.

    `game` is the number of the environment's episode (the game of all its agents) in which the agent played it; -1 for
    a game of which another agent's episode is not recorded.
    """

    ret: float
    length: int
    finished: bool
    terminated: bool
    final_reward: float
    metrics: list[float]
    game: int


class _Episodes:
    """Running episodes of every stream (one agent in one environment), and results of the finished ones."""

    def __init__(
        self,
        streams: int,
        num_agents: int,
        episodes: int,
        max_steps: int,
        metrics: Sequence[str] = (),
        turns: bool = False,
    ):
        quota = np.full(streams, episodes // streams) + (np.arange(streams) < episodes % streams)
        self.left, self.max_steps = quota, max_steps  # episodes still to play [B]
        self._begun = quota.copy()  # those at the last reset of all environments
        self._returns, self._lengths = np.zeros(streams), np.zeros(streams, int)
        self._absent, self._unplayed = np.zeros(streams, int), 0
        self._waits = np.zeros(streams, bool)  # for the next reset of all environments, as its episode was cut
        self._turns, self._num_agents = turns, num_agents
        self._quota, self._games = quota.copy(), np.zeros(streams, int)  # games to play, and number of the running one
        self._names, nothing = metrics, np.zeros((streams, len(metrics)))
        self._last = nothing  # latest metrics [B, k]
        # flags and reward of each stream's latest step [B]; a recorder inside of a time limit reports the end of an
        # episode that the limit cuts one step later, at the reset
        self._terminated, self._truncated = np.zeros(streams, bool), np.zeros(streams, bool)
        self._reward = np.zeros(streams)
        self.ended, self.steps = 0, 0  # of all streams so far, for those who wait
        self._done: list[list[_Episode]] = [[] for _ in range(streams)]

    @property
    def playing(self) -> np.ndarray:
        """Mask [B] of the streams that have episodes to play before the next reset of all environments.

        Other streams have played all of theirs, or wait for that reset, as their last episode was cut.
        """
        return (self.left > 0) & ~self._waits

    def begin_again(self) -> None:
        """Divide the episodes that are still to be played among all environments, separately for each agent.

        It is called when all environments are reset, so that no episode is running.
        """
        left = self.left.reshape(-1, self._num_agents)
        num_envs, total = len(left), left.sum(axis=0)
        self.left = (total // num_envs + (np.arange(num_envs)[:, None] < total % num_envs)).reshape(-1)
        self._waits[:], self._begun = False, self.left.copy()
        self._returns[:], self._lengths[:], self._absent[:] = 0.0, 0, 0
        self._games += 1

    def count(self, rows: slice, step: HostStep) -> None:
        """Add one step of the streams `rows`, one agent in one environment each, to their running episodes."""
        reward, ended = counted(step, self._turns)
        resets = ~step.valid.reshape(-1, self._num_agents).any(axis=1)  # in which nobody acts
        self._games[rows] += resets.repeat(self._num_agents)
        self._returns[rows] += reward
        if step.metrics is not None:
            self._last[rows] = step.metrics
        self._lengths[rows] += step.valid
        self.steps += int(step.valid.sum())
        self._absent[rows] = np.where(step.valid, 0, self._absent[rows] + 1)
        flagged = step.terminated | step.truncated
        latest = ((self._terminated, step.terminated), (self._truncated, step.truncated), (self._reward, reward))
        for kept, now in latest:
            kept[rows] = np.where(step.valid | flagged, now, kept[rows])
        stuck = ~ended & ~flagged & (self._lengths[rows] >= self.max_steps)
        missing = self._absent[rows] >= self.max_steps  # the agent has been absent for `max_steps` steps
        for i in rows.start + np.flatnonzero(ended | stuck | missing):
            if self.playing[i] and not missing[i - rows.start]:
                here = i - rows.start
                # info gives metrics where an episode ends
                row = [math.nan] * len(self._names) if stuck[here] else self._last[i].tolist()
                over = bool(self._terminated[i] or not self._truncated[i])  # a game may end without either
                finished = not stuck[here]
                self._done[i].append(
                    _Episode(
                        self._returns[i],
                        self._lengths[i],
                        finished,
                        over and finished,
                        float(self._reward[i]),
                        row,
                        self._game(i),
                    )
                )
                self.left[i] -= 1
                self.ended += 1
            team = slice(i - i % self._num_agents, i - i % self._num_agents + self._num_agents)
            if missing[i - rows.start] and self._waits[team].any() and self.left[i] < self._begun[i]:
                self._waits[i] = True  # it has played, and will again after the reset that its team awaits
            elif missing[i - rows.start]:
                self._unplayed += self.left[i]
                self.left[i] = 0
            if stuck[i - rows.start]:  # others go on, in games of which this agent is not recorded
                self._quota[team] = np.minimum(self._quota[team], self._games[i])
                self._waits[i] = True
            self._returns[i] = self._lengths[i] = 0

    def _game(self, stream: int) -> int:
        """Return the number of a stream's running game, among the games of all environments; -1 for an incomplete game.

        A stream is one agent in one environment. A game is an episode of all agents of an environment; it is incomplete
        if the episode of one of them is not part of the results.
        """
        num_envs, number = len(self.left) // self._num_agents, int(self._games[stream])
        return stream // self._num_agents + num_envs * number if number < self._quota[stream] else -1

    def outcome(self) -> Outcome:
        """Return the results of the episodes that have ended, ordered by stream (one agent in one environment)."""
        alone = self._num_agents == 1  # without a reset between two games, if a vector environment resets at once
        agents = [stream % self._num_agents for stream, done in enumerate(self._done) for _ in done]
        played = [one for done in self._done for one in done]

        def column(name: str, dtype: type) -> np.ndarray:
            return np.array([getattr(one, name) for one in played], dtype)

        rows = np.array([one.metrics for one in played], np.float32).reshape(len(played), len(self._names))
        return Outcome(
            returns=column("ret", np.float32),
            lengths=column("length", np.int32),
            finished=column("finished", bool),
            terminated=column("terminated", bool),
            final_rewards=column("final_reward", np.float32),
            agents=np.array(agents, int),
            metrics=dict(zip(self._names, rows.T, strict=True)),
            games=np.arange(len(played)) if alone else column("game", int),
            unplayed=int(self._unplayed),
        )


class HostScene:
    """One environment on the host and the policy that acts in it, stepped and rendered for films and `ppax play`."""

    def __init__(self, host_actor: HostActor, one: RenderedEnv):
        self._host_actor, self._one = host_actor, one
        self._ended = np.zeros(one.env.num_streams, bool)

    def picture(self) -> np.ndarray:
        """Return a picture of the environment's current state, [H, W, 3]."""
        return self._one.picture()

    def move(self, t: int) -> StepResult:
        """Return reward and flags of a new step of the scene, for which the policy chooses the action.

        The call makes the step; `t`, its number, has no effect. The step after the end of an episode resets the
        environment instead.
        """
        if self._ended.all():
            self._ended[:] = False
        self._host_actor.send(0)
        step = self._host_actor.receive(0)
        reward, ended = counted(step, self._one.env.host.spec.turns)
        self._ended = self._ended | ended
        return StepResult(np.array(reward), bool(step.valid.any()), bool(self._ended.all()))
