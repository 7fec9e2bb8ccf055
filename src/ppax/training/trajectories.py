"""Trajectories: the states of compiled environments in which a policy acts, for pictures and analysis."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
from jax import Array

from ppax.core.options import require_whole
from ppax.core.protocols import Agent
from ppax.core.types import ActorState, ConfigError, Key, LearnerState, PyTree
from ppax.core.unknown_names import refusing_unknown
from ppax.devices import sharding
from ppax.envs import Env, ended, require_native
from ppax.envs.vector import VectorEnv
from ppax.envs.wrappers.wrapper import unwrapped
from ppax.training.arguments import require_arguments, require_players
from ppax.training.collection import start_actor
from ppax.training.episodes import act_and_step


class Trajectory(NamedTuple):
    """T steps of B streams (one agent in one environment each) of E environments, with a frame at every n-th step.

    A frame has the state before its step; frame f is that of step f * n. Rewards and flags are those of all steps.
    """

    env_state: PyTree  # [F, E, ...] of the environments themselves, inside their wrappers
    obs: PyTree  # [F, B, ...]
    action: PyTree  # [F, B, ...] as the environments take it
    reward: Array  # [T, B]
    terminated: Array  # [T, B]
    truncated: Array  # [T, B]
    valid: Array  # [T, B] False: autoreset step after the end of an episode, or absent agent; the action was ignored
    actor: ActorState  # state after the last step, from which another trajectory goes on


@refusing_unknown
def trajectory(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    num_steps: int,
    key: Key,
    *,
    every: int = 1,
    deterministic: bool = True,
    actor: ActorState | None = None,
) -> Trajectory:
    """Play `num_steps` steps in all environments of `env`, and return them with the state at every `every`-th step.

    The policy acts as in evaluations: current weights, frozen statistics, its memory reset where episodes begin; the
    mode of the action distribution, or a sample if not `deterministic`. Episodes follow each other: the step after an
    end resets the environment and is not `valid`. With groups of agents, `obs` and `action` are dicts by group.

    States, observations and actions of the steps between two frames are never kept, so that memory grows with
    `num_steps / every`. `actor` goes on from the end of an earlier trajectory, so that a long one can be played in
    parts. For one environment of many: `dataclasses.replace(env, num_envs=1)`. It is a pure function, which `jax.jit`
    (with `num_steps`, `every` and `deterministic` static) and `jax.vmap` take.

    Raises ConfigError for host environments, whose states ppax cannot read; where `num_steps` is no multiple of
    `every`; where agent, environment and `actor` do not fit.
    """
    native = require_native(
        env,
        "ppax.trajectory",
        "act with policy.act(obs) in a loop of your own, which can keep what it steps; or make a film: ppax.film",
    )
    for name, value in {"num_steps": num_steps, "every": every}.items():
        require_whole(value, name)
    if num_steps % every:
        nearest = max(1, round(num_steps / every)) * every
        raise ConfigError(
            f"num_steps = {num_steps}: must be a multiple of every = {every}; nearest valid value: {nearest}"
        )
    require_arguments(agent, native)
    # self-play requires its number of environments for learning alone
    require_players(agent, native)
    if actor is not None and len(actor.first) != native.num_streams:
        raise ConfigError(
            f"actor: has {len(actor.first)} streams, {native.name or 'the environment'} has {native.num_streams}: give "
            "the actor of a trajectory in as many environments, or none"
        )
    return _play(agent, ended(native), sharding.local(learner), actor, key, num_steps, every, deterministic)


@functools.partial(jax.jit, static_argnames=("num_steps", "every", "deterministic"))
def _play(
    agent: Agent,
    env: VectorEnv,
    learner: LearnerState,
    actor: ActorState | None,
    key: Key,
    num_steps: int,
    every: int,
    deterministic: bool,
) -> Trajectory:
    def step(actor: ActorState, key: Key) -> tuple[ActorState, tuple[PyTree, ...]]:
        actor, out, action = act_and_step(agent, env, learner, actor, deterministic, key)
        return actor, (action, out.reward, out.terminated, out.truncated, out.valid)

    def frame(actor: ActorState, keys: Key) -> tuple[ActorState, tuple[PyTree, ...]]:
        _, env_state = unwrapped(env.env, actor.env_state.env)
        seen = env_state, actor.obs
        actor, (action, *steps) = jax.lax.scan(step, actor, keys)
        return actor, (*seen, jax.tree.map(lambda x: x[0], action), *steps)

    start_key, run_key = jax.random.split(key)
    begin = start_actor(agent, env, start_key) if actor is None else actor
    keys = jax.random.split(run_key, num_steps).reshape(-1, every)
    end, (env_state, obs, action, *steps) = jax.lax.scan(frame, begin, keys)
    reward, terminated, truncated, valid = (x.reshape(num_steps, -1) for x in steps)
    return Trajectory(env_state, obs, action, reward, terminated, truncated, valid, end)
