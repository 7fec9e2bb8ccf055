"""Play a policy in one environment and look at it: pictures of whole episodes."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple, Protocol

import jax
import numpy as np

from ppax.agents.multi_agent import Agent, require_host_agent
from ppax.collection import start_actor
from ppax.envs import Env, HostEnv
from ppax.envs.hosting.filmed import Filmed, filmed
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers.rendering import render
from ppax.evaluation import act_and_step
from ppax.host import HostActor
from ppax.types import Key, LearnerState


class Played(NamedTuple):
    """Pictures of episodes, one after the other, and what each agent earned in each of them."""

    frames: list[np.ndarray]  # [H, W, 3] each, the first and the last state of every episode included
    returns: np.ndarray  # [episodes, A]
    lengths: np.ndarray  # [episodes] in steps
    finished: bool  # False: `max_steps` came before the last episode's end


class Moved(NamedTuple):
    """What came of one step."""

    reward: np.ndarray  # [A]
    counts: bool  # it was a step: no reset
    over: bool  # the episode is over after it


class Scene(Protocol):
    """One environment in which a policy acts."""

    def picture(self) -> np.ndarray:
        """How it looks now, [H, W, 3]."""

    def move(self, now: int) -> Moved:
        """One step, the `now`th; where an episode is over, the next one begins instead."""


def play(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    key: Key,
    episodes: int = 1,
    deterministic: bool = True,
    max_steps: int = 2000,
) -> Played:
    """Play `episodes` episodes in one environment, at most `max_steps` steps together, and draw every state.

    An environment on the host is made anew, with `render_mode = "rgb_array"`. Raises ConfigError where the environment
    cannot be drawn.
    """
    if not isinstance(env, HostEnv):
        scene = _Native(agent, env, learner, deterministic, key)
        return _film(scene, env.num_streams // env.num_envs, episodes, max_steps)
    one = filmed(env)
    with one.env:
        stage = _OnHost(HostActor(require_host_agent(agent), one.env, learner, key, deterministic), one)
        return _film(stage, one.env.num_streams, episodes, max_steps)


def _film(scene: Scene, agents: int, episodes: int, max_steps: int) -> Played:
    frames, returns, lengths, over = [scene.picture()], [np.zeros(agents)], [0], False
    for now in range(max_steps):
        moved = scene.move(now)
        frames.append(scene.picture())
        if over:  # this step only began the next episode
            returns.append(np.zeros(agents))
            lengths.append(0)
        returns[-1] = returns[-1] + moved.reward
        lengths[-1] += moved.counts
        over = moved.over
        if over and len(lengths) == episodes:
            break
    return Played(frames, np.stack(returns), np.array(lengths), over and len(lengths) == episodes)


class _Native:
    """An environment inside a compiled program."""

    def __init__(self, agent: Agent, env: VectorEnv, learner: LearnerState, deterministic: bool, key: Key):
        start_key, self._key = jax.random.split(key)
        self._agent, self._env, self._learner = agent, dataclasses.replace(env, num_envs=1), learner
        self._deterministic = deterministic
        self._actor = jax.jit(start_actor)(agent, self._env, start_key)
        self._step = jax.jit(act_and_step, static_argnames="deterministic")

    def picture(self) -> np.ndarray:
        """How it looks now."""
        return render(self._env.env, jax.tree.map(lambda x: x[0], self._actor.env_state.env))

    def move(self, now: int) -> Moved:
        """One step."""
        key = jax.random.fold_in(self._key, now)
        self._actor, out = self._step(self._agent, self._env, self._learner, self._actor, self._deterministic, key)
        over = bool(np.all(self._actor.env_state.ended))
        return Moved(np.asarray(out.reward), not np.any(out.first), over)


class _OnHost:
    """An environment on the host."""

    def __init__(self, performance: HostActor, one: Filmed):
        self._performance, self._one = performance, one
        self._ended = np.zeros(one.env.num_streams, bool)

    def picture(self) -> np.ndarray:
        """How it looks now."""
        return self._one.picture()

    def move(self, now: int) -> Moved:
        """One step."""
        if self._ended.all():
            self._ended[:] = False
        self._performance.send(0)
        seen = self._performance.receive(0)
        reward, ended = np.where(seen.valid, seen.reward, 0.0), seen.terminated | seen.truncated
        if seen.episode_stats is not None:
            reward, ended = seen.episode_stats
        self._ended = self._ended | ended
        return Moved(np.array(reward), bool(seen.valid.any()), bool(self._ended.all()))
