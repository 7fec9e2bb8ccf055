"""Collect rollouts: step every stream `num_steps` times with the agent's policy."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.envs import Env, require_native
from ppax.envs.vector import VectorEnv
from ppax.learning.exploration import remembered
from ppax.program import sharding
from ppax.program.platforms import rules
from ppax.protocols import Agent
from ppax.types import (
    ActorState,
    Collected,
    Decision,
    Episodes,
    ForwardPass,
    Key,
    LearnerState,
    PyTree,
    Rollout,
    Scalar,
    Transition,
)

Running = tuple[
    ActorState, Episodes
]  # state between two steps: the actor, and statistics of the episodes finished in this rollout


class Row(NamedTuple):
    """One step of all streams: its transitions and discounted returns so far; stacked to [T, B] by `collect`."""

    steps: Transition  # [B]
    reward_trace: Array  # [B] discounted sum of the episode's rewards so far, for reward normalization
    metrics: Mapping[str, Array]  # [B] of the environment, in steps that end an episode; else 0


def start_actor(agent: Agent, env: Env, key: Key) -> ActorState:
    """Reset every environment and return the state before the first step; `key` is one key, or [E]."""
    env_state, obs, action_mask = env.reset(key)
    zeros = jnp.zeros(env.num_streams, jnp.float32)
    return ActorState(
        env_state=env_state,
        obs=obs,
        first=jnp.ones(env.num_streams, bool),
        action_mask=action_mask,
        carry=agent.start_carry(env.num_streams),
        episode_return=zeros,
        episode_length=jnp.zeros(env.num_streams, jnp.int32),
        reward_trace=zeros,
        **agent.initial_streams(env.num_streams)._asdict(),
    )


def one_step(
    agent: Agent, env: VectorEnv, learner: LearnerState, deterministic: bool = False
) -> Callable[[Running, Array], tuple[Running, Row]]:
    """Return the scan body that steps all streams once; its input is keys [E, 1 + A], as `stream_keys` makes them."""

    def step(state: Running, key: Array) -> tuple[Running, Row]:
        actor, episodes = state
        env_key, act_key = key[:, 0], key[:, 1:].reshape(-1)
        seen = learner, actor.carry, actor.obs, actor.first, actor.action_mask
        decision = mode_of(agent.policy(*seen)) if deterministic else agent.act(*seen, act_key)
        out = env.step(actor.env_state, decision.env_action, env_key)
        steps = Transition(
            obs=actor.obs,
            action=decision.action,
            log_prob=decision.log_prob,
            value=decision.value,
            reward=out.reward,
            terminated=out.terminated,
            truncated=out.truncated,
            first=actor.first,
            valid=out.valid,
            carry=(),  # `collect` keeps the carry at the start of each sequence only
            action_mask=actor.action_mask,
        )
        actor = actor._replace(
            env_state=out.state, obs=out.obs, first=out.first, action_mask=out.action_mask, carry=decision.carry
        )
        state, trace = update_episode_stats(
            agent.discount(env.num_streams), (actor, episodes), out.reward, steps.ended, out.valid
        )
        metrics = {name: jnp.where(steps.ended, x, 0.0) for name, x in out.metrics.items()}
        return state, Row(steps, trace, metrics)

    return step


def mode_of(policy: ForwardPass) -> Decision:
    """Return the decisions of a deterministic policy: the modes of its distributions."""
    action, distribution = policy.distribution.mode(), policy.distribution
    return Decision(policy.carry, action, distribution.env_action(action), distribution.log_prob(action), policy.value)


def update_episode_stats(
    gamma: Scalar,
    state: Running,
    reward: Array,
    ended: Array,
    valid: Array,
    episode_stats: tuple[Array, Array] | None = None,
) -> tuple[Running, Array]:
    """Add one step [B] to the episode statistics; return them and the discounted return so far [B], this step included.

    `episode_stats` is (reward, ended) [B] of the unmodified environment. Logged returns and lengths use it where the
    agent is trained on other rewards or episode ends (clipped rewards, one episode per life).
    """
    actor, episodes = state
    # Reset after the last step of an episode: the trace of that step includes its reward
    trace = gamma * actor.reward_trace + reward
    reset_trace = ended
    reward, ended = (reward, ended) if episode_stats is None else episode_stats
    returns = actor.episode_return + reward
    lengths = actor.episode_length + valid
    # Welford 1962, https://doi.org/10.1080/00401706.1962.10490022: squares of large returns would lose their deviations
    deviation = returns - episodes.return_sum / jnp.maximum(episodes.count, 1)
    square = deviation**2 * episodes.count / (episodes.count + 1)
    episodes = episodes._replace(
        count=episodes.count + ended,
        return_sum=episodes.return_sum + jnp.where(ended, returns, 0.0),
        length_sum=episodes.length_sum + jnp.where(ended, lengths, 0),
        return_squares=episodes.return_squares + jnp.where(ended, square, 0.0),
        return_min=jnp.where(ended, jnp.minimum(episodes.return_min, returns), episodes.return_min),
        return_max=jnp.where(ended, jnp.maximum(episodes.return_max, returns), episodes.return_max),
    )
    actor = actor._replace(
        episode_return=jnp.where(ended, 0.0, returns),
        episode_length=jnp.where(ended, 0, lengths),
        reward_trace=jnp.where(reset_trace, 0.0, trace),
    )
    return (actor, episodes), trace


def no_episodes(num_streams: int) -> Episodes:
    """Return empty statistics: no stream [B] has finished an episode."""
    none, zeros = jnp.zeros(num_streams, jnp.int32), jnp.zeros(num_streams, jnp.float32)
    return Episodes(none, zeros, none, zeros, zeros + jnp.inf, zeros - jnp.inf)


def collect(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    actor: ActorState,
    num_steps: int,
    key: Key,
    deterministic: bool = False,
) -> Collected:
    """Step all streams `num_steps` times in one scan and return the rollout [T, B].

    `deterministic` (static) takes the mode of the policy instead of a sample, as for data of a trained policy; such a
    rollout is not for `update`. Numbers of environments are those of `env` and `actor`: `start_actor` makes another.
    Raises ConfigError for host environments, which a compiled program cannot step.
    """
    env = require_native(
        env, "ppax.collect", "call ppax.fit, or ppax.compile(agent, env, state), which collects a rollout and updates"
    )
    step = one_step(agent, env, learner, deterministic)

    def sequence(state: Running, keys: Array) -> tuple[Running, tuple[PyTree, Row]]:
        carry = remembered(state[0].carry)
        state, rows = jax.lax.scan(step, state, keys, unroll=agent.program.unroll)
        return state, (carry, rows)

    keys = stream_keys(key, num_steps, env)
    # The update starts each sequence from its first carry; storing the carry of every step would take `seq_len` times
    # the memory
    length = agent.sequence_length(num_steps) if jax.tree.leaves(remembered(actor.carry)) else num_steps
    sequence_keys = keys.reshape(-1, length, *keys.shape[1:])
    (actor, episodes), (carry, rows) = jax.lax.scan(
        sequence, (actor, no_episodes(env.num_streams)), sequence_keys, unroll=length == num_steps
    )
    rows = jax.tree.map(lambda x: x.reshape(num_steps, *x.shape[2:]), rows)
    steps = dataclasses.replace(rows.steps, carry=carry)
    if values_apart(agent, env, actor):
        steps = dataclasses.replace(steps, value=agent.evaluate_rollout(learner, steps)[0])
    return with_last_value(agent, learner, (actor, episodes), Row(steps, *rows[1:]))


def values_apart(agent: Agent, env: Env, actor: ActorState) -> bool:
    """Return whether V of a rollout is computed after it, for all steps at once: few streams, and no memory.

    Past selves of self-play act with values of their own.
    """
    few = env.num_streams <= rules().few_streams
    return few and agent.pool is None and not jax.tree.leaves(remembered(actor.carry))


def with_last_value(agent: Agent, learner: LearnerState, state: Running, rows: Row) -> Collected:
    """Return the rollout of `rows` [T, B] with its bootstrap value: V [B] of the observation after the last step."""
    actor, episodes = state
    episodes = episodes._replace(metrics={name: x.sum(axis=0) for name, x in rows.metrics.items()})
    # The new carry is dropped: the next rollout evaluates this observation again, from the same carry
    last = agent.policy(learner, actor.carry, actor.obs, actor.first, actor.action_mask)
    rollout = Rollout(rows.steps, last.value, rows.reward_trace, actor.obs, actor.intrinsic, actor.auxiliary)
    return Collected(actor, rollout, episodes)


def force_reset(agent: Agent, env: Env, collected: Collected, due: Array, key: Key) -> Collected:
    """Truncate every running episode at the rollout's last step and reset all environments, if `due` [].

    The bootstrap value is `last_value`, V of the observation after that step, and no step is spent on the reset. The
    truncated episodes are not counted in `episodes`.
    """
    actor, rollout, episodes = collected
    steps = rollout.steps
    cut = due & steps.valid[-1] & ~steps.terminated[-1]
    steps = dataclasses.replace(steps, truncated=steps.truncated.at[-1].set(steps.truncated[-1] | cut))
    if steps.final_value is not None:
        last = jnp.where(cut & ~collected.rollout.steps.ended[-1], rollout.last_value, steps.final_value[-1])
        steps = dataclasses.replace(steps, final_value=steps.final_value.at[-1].set(last))
    actor = jax.lax.cond(due, lambda: start_actor(agent, env, stream_keys(key, 1, env)[0, :, 0]), lambda: actor)
    return Collected(actor, rollout._replace(steps=steps), episodes)


def stream_keys(key: Key, num_steps: int, env: Env) -> Array:
    """Return keys for every step of every environment, [T, E, 1 + A]: the environment's, then one per agent.

    A key depends on the environment's index over all devices, so sharding does not change it. All keys of a rollout
    are made at once, outside the scan.
    """
    agents = env.num_streams // env.num_envs
    steps, envs, users = (jnp.arange(n, dtype=jnp.uint32) for n in (num_steps, env.num_envs, 1 + agents))
    envs = envs + jnp.uint32(sharding.part_index() * env.num_envs)
    # A unique number for each key. Environments are the slowest axis, so adding more leaves these numbers unchanged
    numbers = (envs[None, :, None] * num_steps + steps[:, None, None]) * (1 + agents) + users[None, None, :]
    return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers.reshape(-1)).reshape(numbers.shape)
