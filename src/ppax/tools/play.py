"""Play a policy in one environment and render whole episodes."""

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
    """Rendered episodes, one after the other, with the return of each agent."""

    frames: list[np.ndarray]  # [H, W, 3] each; one for every state, first and final ones included
    returns: np.ndarray  # [episodes, A]
    lengths: np.ndarray  # [episodes] in steps
    finished: bool  # False: `max_steps` was reached before the last episode ended


class StepResult(NamedTuple):
    """Reward and flags of one step."""

    reward: np.ndarray  # [A]
    counts: bool  # False: an autoreset step, which is not counted
    ended: bool  # the episode ended with this step


class Scene(Protocol):
    """One environment with the policy that acts in it."""

    def picture(self) -> np.ndarray:
        """Render the current state, [H, W, 3]."""

    def move(self, t: int) -> StepResult:
        """Act and step, for the `t`-th time; after the end of an episode, start the next one instead (autoreset)."""


def play(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    key: Key,
    episodes: int = 1,
    deterministic: bool = True,
    max_steps: int = 2000,
) -> Played:
    """Play `episodes` episodes in one environment, at most `max_steps` steps in all, and render every state.

    A host environment is constructed again with `render_mode = "rgb_array"`. Raises ConfigError where the environment
    cannot be rendered.
    """
    if not isinstance(env, HostEnv):
        scene = _Native(agent, env, learner, deterministic, key)
        return _film(scene, env.num_streams // env.num_envs, episodes, max_steps)
    one = filmed(env)
    with one.env:
        scene_on_host = _OnHost(HostActor(require_host_agent(agent), one.env, learner, key, deterministic), one)
        return _film(scene_on_host, one.env.num_streams, episodes, max_steps)


def _film(scene: Scene, agents: int, episodes: int, max_steps: int) -> Played:
    frames, returns, lengths, ended = [scene.picture()], [np.zeros(agents)], [0], False
    for t in range(max_steps):
        result = scene.move(t)
        frames.append(scene.picture())
        if ended:  # this step was the autoreset
            returns.append(np.zeros(agents))
            lengths.append(0)
        returns[-1] = returns[-1] + result.reward
        lengths[-1] += result.counts
        ended = result.ended
        if ended and len(lengths) == episodes:
            break
    return Played(frames, np.stack(returns), np.array(lengths), ended and len(lengths) == episodes)


class _Native:
    """Scene of a JAX-native environment."""

    def __init__(self, agent: Agent, env: VectorEnv, learner: LearnerState, deterministic: bool, key: Key):
        start_key, self._key = jax.random.split(key)
        self._agent, self._env, self._learner = agent, dataclasses.replace(env, num_envs=1), learner
        self._deterministic = deterministic
        self._actor = jax.jit(start_actor)(agent, self._env, start_key)
        self._step = jax.jit(act_and_step, static_argnames="deterministic")

    def picture(self) -> np.ndarray:
        """Render the current state."""
        return render(self._env.env, jax.tree.map(lambda x: x[0], self._actor.env_state.env))

    def move(self, t: int) -> StepResult:
        """Act and step."""
        key = jax.random.fold_in(self._key, t)
        self._actor, out = self._step(self._agent, self._env, self._learner, self._actor, self._deterministic, key)
        ended = bool(np.all(self._actor.env_state.ended))
        return StepResult(np.asarray(out.reward), not np.any(out.first), ended)


class _OnHost:
    """Scene of an environment on the host."""

    def __init__(self, host_actor: HostActor, one: Filmed):
        self._host_actor, self._one = host_actor, one
        self._ended = np.zeros(one.env.num_streams, bool)

    def picture(self) -> np.ndarray:
        """Render the current state."""
        return self._one.picture()

    def move(self, t: int) -> StepResult:
        """Act and step."""
        if self._ended.all():
            self._ended[:] = False
        self._host_actor.send(0)
        step = self._host_actor.receive(0)
        reward, ended = np.where(step.valid, step.reward, 0.0), step.terminated | step.truncated
        if step.episode_stats is not None:
            reward, ended = step.episode_stats
        self._ended = self._ended | ended
        return StepResult(np.array(reward), bool(step.valid.any()), bool(self._ended.all()))
