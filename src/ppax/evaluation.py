"""Evaluate a policy over whole episodes, on separate environments and keys, with frozen normalization statistics."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Mapping
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
    """Undiscounted, unscaled returns and lengths of whole episodes; the agents of one environment are adjacent."""

    returns: np.ndarray  # [episodes]
    lengths: np.ndarray  # [episodes]
    finished: np.ndarray  # [episodes] False: cut at `max_steps`, and left out of the means
    num_agents: int = 1  # agents per environment
    sizes: tuple[tuple[str, int], ...] = ()  # name and number of agents of each group
    agents: np.ndarray | None = None  # [episodes] index of the agent; None: 0, 1, ..., repeating
    metrics: Mapping[str, np.ndarray] = {}  # [episodes] the environment's metrics at each episode's last step
    unplayed: int = 0  # host environments only: episodes not played, as an earlier one was cut at `max_steps`

    def __repr__(self) -> str:
        done = int(np.sum(self.finished))
        left = f", unfinished={len(self.finished) - done}" if done < len(self.finished) else ""
        returns = f"mean_return={self.mean_return:.2f}, std_return={self.std_return:.2f}"
        own = "".join(f", {name}={mean:.3g}" for name, mean in self.mean_metrics.items())
        return f"Evaluation({returns}, mean_length={self.mean_length:.1f}{own}, episodes={done}{left})"

    @property
    def by_agent(self) -> dict[str, Evaluation]:
        """Evaluation of each agent and group, by its name in the logs; {} for environments with one agent."""
        agent = np.arange(len(self.returns)) % self.num_agents if self.agents is None else self.agents
        every = {name: np.isin(agent, places) for name, places in agent_columns(self.num_agents, self.sizes).items()}
        rows = {name: (self.returns[own], self.lengths[own], self.finished[own]) for name, own in every.items()}
        metrics = {name: {key: x[own] for key, x in self.metrics.items()} for name, own in every.items()}
        return {name: Evaluation(*row, metrics=metrics[name]) for name, row in rows.items()}

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

    @property
    def mean_metrics(self) -> dict[str, float]:
        """Mean of each of the environment's metrics over the finished episodes, as `is_success`."""
        kept = self.finished if self.finished.any() else None
        return {name: float(x[kept].mean()) if kept is not None else float("nan") for name, x in self.metrics.items()}


class Running(NamedTuple):
    """Loop state of `run_episodes`: the first episode of every stream, so far."""

    actor: ActorState
    returns: Array  # [B] undiscounted
    lengths: Array  # [B]
    finished: Array  # [B]
    elapsed: Array  # [] steps
    key: Key
    metrics: Mapping[str, Array]  # [B] at the last step


def evaluate(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    key: Key,
    episodes: int = 128,
    deterministic: bool = True,
    max_steps: int = 100_000,
) -> Evaluation:
    """Play `episodes` whole episodes and return the return and length of each.

    `deterministic` takes the mode of the action distribution; otherwise actions are sampled. The state of the training
    run stays as it is: its environments, keys and statistics. An episode is cut after `max_steps` steps.

    Native environments: one per episode. Host environments: as many new ones as the run has, closed afterwards. A
    vector environment passed in by the user cannot be copied and is used itself; training then resets it. Raises
    ConfigError where host environments are given an agent that they cannot have (`Groups`, `SelfPlay`).
    """
    if isinstance(env, HostEnv):
        out = play_episodes(require_host_agent(agent), env, learner, key, episodes, deterministic, max_steps)
        if out.unplayed:
            warnings.warn(
                f"{out.unplayed} of {episodes} episodes were not played: an earlier episode did not end, or "
                f"an agent did not appear, within max_steps = {max_steps}",
                stacklevel=2,
            )
        return Evaluation(*out[:3], env.num_agents, agents=out.agents, metrics=out.metrics, unplayed=out.unplayed)
    env = dataclasses.replace(env, num_envs=-(-episodes // env.num_agents))
    out = run_episodes(agent, env, learner, key, deterministic, max_steps)
    returns, lengths, finished = (np.asarray(x)[:episodes] for x in (out.returns, out.lengths, out.finished))
    metrics = {name: np.asarray(x)[:episodes] for name, x in out.metrics.items()}
    return Evaluation(returns, lengths, finished, env.num_agents, env.sizes, metrics=metrics)


class Moved(NamedTuple):
    """Actor state after one step of all streams, and that step's result."""

    actor: ActorState
    step: VectorStep


def act_and_step(
    agent: Agent, env: VectorEnv, learner: LearnerState, actor: ActorState, deterministic: bool, key: Key
) -> Moved:
    """Step all streams once with the policy: the mode of its distribution if `deterministic`, else a sample."""
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
    """Play the first episode of every stream to its end, at most `max_steps` steps. A pure function."""

    @functools.partial(jax.jit, inline=True)  # so that `eval_shape` and the loop trace it once
    def moved(actor: ActorState, key: Key) -> Moved:
        return act_and_step(agent, env, learner, actor, deterministic, key)

    def unfinished(state: Running) -> Array:
        return ~state.finished.all() & (state.elapsed < max_steps)

    def step(state: Running) -> Running:
        key, step_key = jax.random.split(state.key)
        actor, out = moved(state.actor, step_key)
        counted = out.valid & ~state.finished
        return Running(
            actor=actor,
            returns=state.returns + jnp.where(counted, out.reward, 0.0),
            lengths=state.lengths + counted,
            finished=state.finished | out.terminated | out.truncated,
            elapsed=state.elapsed + 1,
            key=key,
            metrics={name: jnp.where(counted, x, state.metrics[name]) for name, x in out.metrics.items()},
        )

    start_key, run_key = jax.random.split(key)
    actor = start_actor(agent, env, start_key)
    zeros = jnp.zeros(env.num_streams, jnp.float32)
    unended = jnp.zeros(env.num_streams, bool)
    metrics = dict.fromkeys(jax.eval_shape(moved, actor, run_key).step.metrics, zeros)
    initial = Running(actor, zeros, zeros.astype(jnp.int32), unended, jnp.int32(0), run_key, metrics)
    return jax.lax.while_loop(unfinished, step, initial)
