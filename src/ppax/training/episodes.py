"""Whole episodes in compiled environments: all at once for evaluation, and step by step for rendering."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.protocols import Agent
from ppax.core.types import ActorState, Key, LearnerState, Outcome, PyTree, Scalar, StepResult, VectorStep
from ppax.devices import sharding
from ppax.devices.tracing import renewed
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers.wrapper import render
from ppax.training.collection import start_actor


class PlayedEpisodes(NamedTuple):
    """Results of whole episodes as JAX arrays, one entry of each array [episodes] for each episode.

    An episode is one agent's; the episodes of the agents of one environment are adjacent.
    """

    returns: Array  # [episodes] undiscounted sums of unscaled rewards
    lengths: Array  # [episodes] steps
    finished: Array  # [episodes] False: cut at `max_steps`, which counts as truncated
    terminated: Array  # [episodes] ended by the environment
    final_rewards: Array  # [episodes] reward of the last step
    metrics: dict[str, Array]  # [episodes] the environment's metrics at each episode's last step

    @property
    def truncated(self) -> Array:
        """Mask of the episodes that a time limit or `max_steps` has cut, [episodes]."""
        return ~self.terminated & (self.finished | (self.lengths > 0))


class Running(NamedTuple):
    """State of the loop in `first_episodes`: the results so far of every stream's first episode.

    A stream is one agent in one environment.
    """

    actor: ActorState
    returns: Array  # [B] undiscounted
    lengths: Array  # [B]
    finished: Array  # [B]
    terminated: Array  # [B] the episode ended in a terminal state
    final_reward: Array  # [B] reward of the last step
    elapsed: Array  # [] steps
    key: Key
    metrics: Mapping[str, Array]  # [B] at the last step


class Moved(NamedTuple):
    """Actor state after one step of all streams (one agent in one environment each), and the environments' results."""

    actor: ActorState
    step: VectorStep
    action: PyTree  # [B, ...] as the environments take it


def act_and_step(
    agent: Agent, env: VectorEnv, learner: LearnerState, actor: ActorState, deterministic: bool, key: Key
) -> Moved:
    """Return the state of all streams after one step with the policy, and the step's results.

    A stream is one agent in one environment. `deterministic` takes the mode of the action distribution, else a sample.
    """
    act_key, env_key = jax.random.split(key)
    policy = agent.policy(learner, actor.carry, actor.obs, actor.first, actor.action_mask)
    distribution = policy.distribution
    action = distribution.mode() if deterministic else distribution.sample(act_key)
    env_action = distribution.env_action(action)
    out = env.step(actor.env_state, env_action, env_key)
    actor = actor._replace(
        env_state=out.state,
        obs=out.obs,
        first=out.first,
        action_mask=out.action_mask,
        carry=policy.carry,
    )
    return Moved(actor, out, env_action)


def run_episodes(
    agent: Agent,
    env: VectorEnv,
    learner: LearnerState,
    key: Key,
    episodes: int,
    deterministic: bool,
    max_steps: Scalar,
) -> PlayedEpisodes:
    """Return the results of `episodes` whole episodes, each cut after `max_steps` steps.

    They are the first episodes of as many streams (one agent in one environment): all at once, or one set of
    environments after the other where the environment declares a largest number of them. This is a pure function, which
    can be compiled and mapped.
    """
    needed = -(-episodes // env.num_agents)
    env = dataclasses.replace(env, num_envs=min(needed, env.max_num_envs or needed))

    def of_set(key: Key) -> PlayedEpisodes:
        return first_episodes(agent, env, learner, key, deterministic, max_steps)

    num_sets = -(-episodes // env.num_streams)
    if num_sets == 1:
        played = of_set(key)
    else:
        played = jax.tree.map(jnp.concatenate, jax.lax.map(of_set, jax.random.split(key, num_sets)))
    # there may be more streams than episodes
    return jax.tree.map(lambda x: x[:episodes], played)


def first_episodes(
    agent: Agent, env: VectorEnv, learner: LearnerState, key: Key, deterministic: bool, max_steps: Scalar
) -> PlayedEpisodes:
    """Return the results of every stream's first episode, played to its end or for at most `max_steps` steps.

    A stream is one agent in one environment. This is a pure function, which can be compiled.
    """

    @functools.partial(jax.jit, inline=True)  # so that `eval_shape` and the loop trace it once
    def moved(actor: ActorState, key: Key) -> Moved:
        return act_and_step(agent, env, learner, actor, deterministic, key)

    def unfinished(state: Running) -> Array:
        return ~state.finished.all() & (state.elapsed < max_steps)

    def step(state: Running) -> Running:
        key, step_key = jax.random.split(state.key)
        actor, out, _ = moved(state.actor, step_key)
        counted = out.valid & ~state.finished
        return Running(
            actor=actor,
            returns=state.returns + jnp.where(counted, out.reward, 0.0),
            lengths=state.lengths + counted,
            finished=state.finished | out.terminated | out.truncated,
            terminated=state.terminated | (counted & out.terminated),
            final_reward=jnp.where(counted, out.reward, state.final_reward),
            elapsed=state.elapsed + 1,
            key=key,
            metrics={name: jnp.where(counted, x, state.metrics[name]) for name, x in out.metrics.items()},
        )

    start_key, run_key = jax.random.split(key)
    actor = start_actor(agent, env, start_key)
    zeros = jnp.zeros(env.num_streams, jnp.float32)
    unended = jnp.zeros(env.num_streams, bool)
    metrics = dict.fromkeys(jax.eval_shape(moved, actor, run_key).step.metrics, zeros)
    lengths = zeros.astype(jnp.int32)
    initial = Running(actor, zeros, lengths, unended, unended, zeros, jnp.int32(0), run_key, metrics)
    last = jax.lax.while_loop(unfinished, step, initial)
    return PlayedEpisodes(
        last.returns, last.lengths, last.finished, last.terminated, last.final_reward, dict(last.metrics)
    )


class CompiledEpisodes:
    """Evaluation in a compiled environment: a call plays whole episodes with one learner, by `run_episodes`."""

    def __init__(self, agent: Agent, env: VectorEnv, learner: PyTree, episodes: int, deterministic: bool):
        self._agent, self._env = agent, env
        self._shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), learner)
        self._episodes, self._deterministic = episodes, deterministic

    @functools.cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of the environment's metrics, found by tracing the program, without compiling it."""
        return tuple(self._program.eval_shape(*self._arguments(self._shapes, jax.random.key(0), 1)).metrics)

    def __call__(self, learner: PyTree, key: Key, max_steps: int) -> Outcome:
        """Return the results of the episodes, played with this learner on one device; the first call compiles.

        Episodes are cut after `max_steps` steps.
        """
        own = sharding.local(learner)  # else every device plays the same episodes
        played: Any = jax.device_get(self._program(*self._arguments(own, key, max_steps)))
        return Outcome(
            **played._asdict(), agents=None, games=np.arange(self._episodes) // self._env.num_agents, unplayed=0
        )

    @functools.cached_property
    def _program(self) -> Any:
        return jax.jit(renewed(run_episodes), static_argnames=("episodes", "deterministic"))

    def _arguments(self, learner: PyTree, key: Key, max_steps: int) -> tuple[Any, ...]:
        return self._agent, self._env, learner, key, self._episodes, self._deterministic, max_steps


class CompiledScene:
    """One compiled environment and the policy that acts in it, stepped and rendered for films and `ppax play`."""

    def __init__(self, agent: Agent, env: VectorEnv, learner: LearnerState, deterministic: bool, key: Key):
        start_key, self._key = jax.random.split(key)
        self._agent, self._env, self._learner = agent, dataclasses.replace(env, num_envs=1), learner
        self._deterministic = deterministic
        self._actor = jax.jit(renewed(start_actor))(agent, self._env, start_key)
        self._step = jax.jit(renewed(act_and_step), static_argnames="deterministic")

    def picture(self) -> np.ndarray:
        """Return a picture of the environment's current state, [H, W, 3]."""
        return render(self._env.env, jax.tree.map(lambda x: x[0], self._actor.env_state.env))

    def move(self, t: int) -> StepResult:
        """Return reward and flags of a new step of the scene, for which the policy chooses the action.

        The call makes the step; `t` is its number, which selects its random numbers. The step after the end of an
        episode resets the environment instead.
        """
        key = jax.random.fold_in(self._key, t)
        self._actor, out, _ = self._step(self._agent, self._env, self._learner, self._actor, self._deterministic, key)
        ended = bool(np.all(self._actor.env_state.ended))
        return StepResult(np.asarray(out.reward), not np.any(out.first), ended)
