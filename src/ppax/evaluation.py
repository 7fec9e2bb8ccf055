"""Evaluate a policy over whole episodes, on environments and keys of its own, with frozen statistics."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.agents.multi_agent import Agent, agent_columns, require_host_agent
from ppax.collection import start_actor
from ppax.envs import Env, HostEnv
from ppax.envs.vector import VectorEnv
from ppax.host import play_episodes
from ppax.types import ActorState, Key, LearnerState, VectorStep


class Evaluation(NamedTuple):
    """Undiscounted, unscaled returns of whole episodes; those of an environment's agents one after the other."""

    returns: np.ndarray  # [episodes]
    lengths: np.ndarray  # [episodes]
    finished: np.ndarray  # [episodes] False: still running when `max_steps` was reached; not in the means
    num_agents: int = 1  # in an environment
    sizes: tuple[tuple[str, int], ...] = ()  # of its groups
    agents: np.ndarray | None = None  # [episodes] whose they are; None: of all agents in turn
    unplayed: int = 0  # episodes that are missing: one before them was still running at `max_steps`, on the host

    def __repr__(self) -> str:
        done = int(np.sum(self.finished))
        left = f", unfinished={len(self.finished) - done}" if done < len(self.finished) else ""
        returns = f"mean_return={self.mean_return:.2f}, std_return={self.std_return:.2f}"
        return f"Evaluation({returns}, mean_length={self.mean_length:.1f}, episodes={done}{left})"

    @property
    def by_agent(self) -> dict[str, Evaluation]:
        """What each agent and group did, by its name in the logs; {} where there is one agent."""
        agent = np.arange(len(self.returns)) % self.num_agents if self.agents is None else self.agents
        every = {name: np.isin(agent, places) for name, places in agent_columns(self.num_agents, self.sizes).items()}
        rows = {name: (self.returns[own], self.lengths[own], self.finished[own]) for name, own in every.items()}
        return {name: Evaluation(*row) for name, row in rows.items()}

    @property
    def mean_return(self) -> float:
        """Mean over the finished episodes; NaN where none finished."""
        return float(self.returns[self.finished].mean()) if self.finished.any() else float("nan")

    @property
    def std_return(self) -> float:
        """Population standard deviation over the finished episodes."""
        return float(self.returns[self.finished].std()) if self.finished.any() else float("nan")

    @property
    def mean_length(self) -> float:
        """Mean length of the finished episodes, in steps."""
        return float(self.lengths[self.finished].mean()) if self.finished.any() else float("nan")


class Running(NamedTuple):
    """The first episode of every stream, so far."""

    actor: ActorState
    returns: Array  # [B]
    lengths: Array  # [B]
    finished: Array  # [B]
    elapsed: Array  # []
    key: Key


def evaluate(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    key: Key,
    episodes: int = 128,
    deterministic: bool = True,
    max_steps: int = 100_000,
) -> Evaluation:
    """Play `episodes` whole episodes and report each one's return.

    `deterministic` takes the most likely action; otherwise actions are sampled. Nothing of the training run changes:
    not its environments, keys or statistics. `max_steps` bounds environments that never end.

    Native environments are as many as episodes. Of host environments as many are made as the run has, and closed again;
    a vector environment that the user has made is used itself, and training, if it goes on, begins new episodes.
    """
    if isinstance(env, HostEnv):
        out = play_episodes(require_host_agent(agent), env, learner, key, episodes, deterministic, max_steps)
        if out.unplayed:
            warnings.warn(
                f"{out.unplayed} of {episodes} episodes were not played: their environments did not end an episode, or "
                f"their agents did not appear, within max_steps = {max_steps}",
                stacklevel=2,
            )
        return Evaluation(*out[:3], env.num_agents, agents=out.agents, unplayed=out.unplayed)
    env = dataclasses.replace(env, num_envs=-(-episodes // env.num_agents))
    out = run_episodes(agent, env, learner, key, deterministic, max_steps)
    returns, lengths, finished = (np.asarray(x)[:episodes] for x in (out.returns, out.lengths, out.finished))
    return Evaluation(returns, lengths, finished, env.num_agents, env.sizes)


class Moved(NamedTuple):
    """Every stream one step further, and that step."""

    actor: ActorState
    step: VectorStep


def act_and_step(
    agent: Agent, env: VectorEnv, learner: LearnerState, actor: ActorState, deterministic: bool, key: Key
) -> Moved:
    """One step of all streams with the policy: its most likely actions if `deterministic`, else sampled ones."""
    act_key, env_key = jax.random.split(key)
    policy = agent.policy(learner, actor.carry, actor.obs, actor.first, actor.action_mask)
    distribution = policy.distribution
    action = distribution.mode() if deterministic else distribution.sample(act_key)
    out = env.step(actor.env_state, distribution.env_action(action), env_key)
    actor = actor._replace(
        env_state=out.state,
        obs=out.obs,
        first=out.first,
        action_mask=out.action_mask,
        carry=policy.carry,
    )
    return Moved(actor, out)


@functools.partial(jax.jit, static_argnames=("deterministic",))
def run_episodes(
    agent: Agent, env: VectorEnv, learner: LearnerState, key: Key, deterministic: bool, max_steps: int
) -> Running:
    """The first episode of every stream, to its end; pure."""

    def running(now: Running) -> Array:
        return ~now.finished.all() & (now.elapsed < max_steps)

    def step(now: Running) -> Running:
        key, step_key = jax.random.split(now.key)
        actor, out = act_and_step(agent, env, learner, now.actor, deterministic, step_key)
        counts = out.valid & ~now.finished
        return Running(
            actor=actor,
            returns=now.returns + jnp.where(counts, out.reward, 0.0),
            lengths=now.lengths + counts,
            finished=now.finished | out.terminated | out.truncated,
            elapsed=now.elapsed + 1,
            key=key,
        )

    start_key, run_key = jax.random.split(key)
    actor = start_actor(agent, env, start_key)
    zeros = jnp.zeros(env.num_streams, jnp.float32)
    idle = jnp.zeros(env.num_streams, bool)
    return jax.lax.while_loop(
        running, step, Running(actor, zeros, zeros.astype(jnp.int32), idle, jnp.int32(0), run_key)
    )
