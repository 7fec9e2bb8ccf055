"""Collection of rollouts: every stream is stepped `num_steps` times with the agent's policy.

E environments of A agents are B = E * A streams. An environment whose episode has ended is reset by its next step, the
autoreset step: its row has `valid` False, and its observation is the final one of the episode. V of that row is
therefore the value from which a truncated episode is bootstrapped, and `final_value` is None here; environments on the
host may give final observations instead (training/host/collection.py). `first` marks the first row of an episode, as
CleanRL's `dones[t]` does.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.core.protocols import Agent
from ppax.core.types import (
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
    TrainState,
    Transition,
)
from ppax.core.unknown_names import refusing_unknown
from ppax.devices import sharding
from ppax.devices.hoisting import Loop, hoisted
from ppax.devices.platforms import rules
from ppax.envs import Env, require_native
from ppax.envs.vector import VectorEnv
from ppax.ppo.forward import remembered
from ppax.training.arguments import require_rollout

MOST_HOISTED = 2**22  # most values computed before a rollout's scan instead of in its steps (devices/hoisting.py)


class Counts(NamedTuple):
    """Rewards, discounted rewards and valid steps of each stream's episode, summed up to and including one step.

    A stream is one agent in one environment. `collect` stacks the sums of all steps to [T, B].
    """

    reward_trace: Array  # [B] discounted sum of rewards, for reward normalization
    episode_return: Array  # [B] sum of rewards
    episode_length: Array  # [B] number of valid steps


class StreamRows(NamedTuple):
    """Record of one step of all B streams, one row of training data for each; `collect` stacks the records to [T, B].

    A stream is one agent in one environment. `logged` is False where an episode that ends with this step does not count
    in logged statistics, because a staggered start has cut it; None: all episodes count.
    """

    steps: Transition  # [B]
    counts: Counts  # [B]
    metrics: Mapping[str, Array]  # [B] of the environment; those of steps that end an episode are logged
    logged: Array | None = None  # [B] `VectorStep.logged`


def start_actor(agent: Agent, env: Env, key: Key) -> ActorState:
    """Return the state of all environments and memories before the first step, after a reset of every environment.

    `key` is one key, or one for each environment [E].
    """
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
        extensions=agent.init_streams(env.num_streams),
    )


def one_step(
    agent: Agent, env: VectorEnv, learner: LearnerState, deterministic: bool = False
) -> Callable[[ActorState, Array], tuple[ActorState, StreamRows]]:
    """Return the body of a scan that steps all streams once; its input is keys [E, 1 + A], as `stream_keys` makes them.

    A stream is one agent in one environment, of E environments with A agents. `deterministic` takes the mode of the
    policy instead of a sample.
    """

    def step(actor: ActorState, key: Array) -> tuple[ActorState, StreamRows]:
        env_key, act_key = key[:, 0], key[:, 1:].reshape(-1)  # a key for each environment, and for each stream
        if deterministic:
            decision = mode_of(agent.policy(learner, actor.carry, actor.obs, actor.first, actor.action_mask))
        else:
            decision = agent.act(learner, actor.carry, actor.obs, actor.first, actor.action_mask, act_key)
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
        actor, counts = count_step(agent.discount(env.num_streams), actor, out.reward, steps.ended, out.valid)
        return actor, StreamRows(steps, counts, out.metrics, out.logged)

    return step


def mode_of(policy: ForwardPass) -> Decision:
    """Return the decisions of a deterministic policy, [B, ...]: the modes of its distributions."""
    distribution = policy.distribution
    action = distribution.mode()
    return Decision(
        carry=policy.carry,
        action=action,
        env_action=distribution.env_action(action),  # squashed or clipped into the bounds
        log_prob=distribution.log_prob(action),
        value=policy.value,
    )


def count_step(
    gamma: Scalar,
    actor: ActorState,
    reward: Array,
    ended: Array,
    valid: Array,
    episode_stats: tuple[Array, Array] | None = None,
) -> tuple[ActorState, Counts]:
    """Return the actor state and running sums after one more step [B] of each stream's episode.

    A stream is one agent in one environment. In the state the sums are 0 again after an episode's last step. `gamma`
    discounts the sum of rewards by which rewards are normalised. `episode_stats` is (reward, ended) [B] of the
    unmodified environment. Logged returns and lengths use it where the agent is trained on other rewards or episode
    ends (clipped rewards, one episode per life).
    """
    logged_reward, logged_end = (reward, ended) if episode_stats is None else episode_stats
    counts = Counts(
        reward_trace=gamma * actor.reward_trace + reward,
        episode_return=actor.episode_return + logged_reward,
        episode_length=actor.episode_length + valid,
    )
    actor = actor._replace(
        reward_trace=jnp.where(ended, 0.0, counts.reward_trace),
        episode_return=jnp.where(logged_end, 0.0, counts.episode_return),
        episode_length=jnp.where(logged_end, 0, counts.episode_length),
    )
    return actor, counts


def finished_episodes(over: Array, counts: Counts, metrics: Mapping[str, Array]) -> Episodes:
    """Return sums over the episodes that each stream has finished in a rollout: number, returns, lengths, metrics.

    `over` [T, B] is True at the last step of each such episode. `counts` are the return and length [T, B] of each
    episode up to each step, and `metrics` are the environment's metrics [T, B] at each step. The result also has the
    smallest and largest return, and the squared deviations of the returns. All are [B]: a stream is one agent in one
    environment.
    """
    returns, count = counts.episode_return, over.sum(axis=0, dtype=jnp.int32)
    total = jnp.where(over, returns, 0.0).sum(axis=0)
    # Squared deviations, not a difference of sums of squares, which loses its digits for large returns
    deviations = jnp.where(over, returns - (total / jnp.maximum(count, 1))[None], 0.0)
    return Episodes(
        count=count,
        return_sum=total,
        length_sum=jnp.where(over, counts.episode_length, 0).sum(axis=0),
        return_squares=(deviations**2).sum(axis=0),
        return_min=returns.min(axis=0, where=over, initial=jnp.inf),
        return_max=returns.max(axis=0, where=over, initial=-jnp.inf),
        metrics={name: jnp.where(over, x, 0.0).sum(axis=0) for name, x in metrics.items()},
        running_metrics={name: x[-1] for name, x in metrics.items()},
    )


@refusing_unknown
def collect(
    agent: Agent,
    env: Env,
    learner: LearnerState,
    actor: ActorState,
    num_steps: int,
    key: Key,
    deterministic: bool = False,
) -> Collected:
    """Return a rollout [T, B] of `num_steps` steps of all streams, and the actor state after it.

    A stream is one agent in one environment. `deterministic` (static) takes the mode of the policy instead of a sample,
    as for data of a trained policy; such a rollout is not for `update`. For another number of environments, take the
    `actor` of another `ppax.start`. Raises ConfigError for host environments, which a compiled program cannot step, and
    where the sizes do not fit each other.
    """
    env = require_native(
        env, "ppax.collect", "call ppax.fit, or ppax.compile(agent, env, state), which collects a rollout and updates"
    )
    require_rollout(agent, env, actor, num_steps)
    loop = Loop(one_step(agent, env, learner, deterministic), stream_keys(key, num_steps, env))
    if env.num_streams <= rules().few_streams:  # random numbers of all steps are drawn before the loop
        loop = hoisted(*loop, actor, MOST_HOISTED)

    unroll = agent.program.unrolled(*loop, actor)

    # With a memory, an outer scan over the sequences stores the carry at the start of each, where the update begins;
    # the carry of every step would take `seq_len` times the memory
    def sequence(actor: ActorState, inputs: PyTree) -> tuple[ActorState, tuple[PyTree, StreamRows]]:
        carry = remembered(actor.carry)
        actor, rows = jax.lax.scan(loop.step, actor, inputs, unroll=unroll)
        return actor, (carry, rows)

    length = agent.sequence_length(num_steps) if jax.tree.leaves(remembered(actor.carry)) else num_steps
    sequences = jax.tree.map(lambda x: x.reshape(-1, length, *x.shape[1:]), loop.inputs)
    actor, (carry, rows) = jax.lax.scan(sequence, actor, sequences, unroll=length == num_steps)
    rows = jax.tree.map(lambda x: x.reshape(num_steps, *x.shape[2:]), rows)
    steps = dataclasses.replace(rows.steps, carry=carry)
    if values_after_rollout(agent, env, actor):  # then XLA removes the V of every step, which nothing reads
        steps = dataclasses.replace(steps, value=agent.evaluate_rollout(learner, steps)[0])
    over = steps.ended if rows.logged is None else steps.ended & rows.logged
    return with_last_value(agent, learner, actor, rows._replace(steps=steps), over)


def values_after_rollout(agent: Agent, env: Env, actor: ActorState) -> bool:
    """Return True if V is computed in one pass after the rollout, False if step by step.

    It is True for few streams (one agent in one environment each) and a policy without memory, but not in self-play,
    where the values of past selves come from their own critics.
    """
    few = env.num_streams <= rules().few_streams
    return few and agent.pool is None and not jax.tree.leaves(remembered(actor.carry))


def with_last_value(agent: Agent, learner: LearnerState, actor: ActorState, rows: StreamRows, over: Array) -> Collected:
    """Return the rollout of `rows` [T, B] with its bootstrap value, and the statistics of its episodes.

    `actor` is the state after the rollout. The bootstrap value is V [B] of the observation after the last step. `over`
    [T, B] marks the steps that end an episode whose return is logged.
    """
    # The new carry is dropped: the next rollout evaluates this observation again, from the same carry
    last = agent.policy(learner, actor.carry, actor.obs, actor.first, actor.action_mask)
    rollout = Rollout(
        steps=rows.steps,
        last_value=last.value,
        reward_trace=rows.counts.reward_trace,
        last_obs=actor.obs,
        extensions=actor.extensions,
    )
    return Collected(actor, rollout, finished_episodes(over, rows.counts, rows.metrics))


def force_reset(agent: Agent, env: Env, collected: Collected, due: Array, key: Key) -> Collected:
    """Return `collected` with all running episodes truncated at the last step and all environments reset, if `due` [].

    If not `due`, it is unchanged. The bootstrap value of a truncated episode is `last_value`, V of the observation
    after that step, and no step is spent on the reset. The truncated episodes are counted in `episodes`, with their
    returns up to that step.
    """
    actor, rollout, episodes = collected
    steps = rollout.steps
    cut = due & steps.valid[-1] & ~steps.ended[-1]
    steps = dataclasses.replace(steps, truncated=steps.truncated.at[-1].set(steps.truncated[-1] | cut))
    if steps.final_value is not None:
        last = jnp.where(cut, rollout.last_value, steps.final_value[-1])
        steps = dataclasses.replace(steps, final_value=steps.final_value.at[-1].set(last))
    # a logged episode may run on where the agent's has ended (one episode per life): its own length says whether
    episodes = with_running(episodes, actor, due & (actor.episode_length > 0))
    actor = jax.lax.cond(due, lambda: start_actor(agent, env, stream_keys(key, 1, env)[0, :, 0]), lambda: actor)
    return Collected(actor, rollout._replace(steps=steps), episodes)


def steps_between_resets(state: TrainState) -> int:
    """Return the number of steps of each environment from one forced reset to the next; 0 without forced resets."""
    return state.num_steps * max(0, state.iterations_per_env_reset or 0)


def with_running(episodes: Episodes, actor: ActorState, cut: Array) -> Episodes:
    """Return episode statistics in which running episodes count as ended now, in the streams of the mask `cut` [B]."""
    value, others = actor.episode_return, episodes.count.astype(jnp.float32)
    apart = value - episodes.return_sum / jnp.maximum(others, 1.0)  # from the mean of the stream's other episodes
    metrics = episodes.running_metrics
    return episodes._replace(
        count=episodes.count + cut,
        return_sum=episodes.return_sum + jnp.where(cut, value, 0.0),
        length_sum=episodes.length_sum + jnp.where(cut, actor.episode_length, 0),
        return_squares=episodes.return_squares + jnp.where(cut, others / (others + 1.0) * apart**2, 0.0),
        return_min=jnp.where(cut, jnp.minimum(episodes.return_min, value), episodes.return_min),
        return_max=jnp.where(cut, jnp.maximum(episodes.return_max, value), episodes.return_max),
        metrics={name: x + jnp.where(cut, metrics[name], 0.0) for name, x in episodes.metrics.items()},
    )


def stream_keys(key: Key, num_steps: int, env: Env) -> Array:
    """Return random keys for every step of every environment, [T, E, 1 + A]: the environment's, then one per agent.

    A key depends on the environment's index over all devices, so sharding does not change it. All keys of a rollout
    are made at once, before its scan.
    """
    agents = env.num_streams // env.num_envs
    steps, envs, users = (jnp.arange(n, dtype=jnp.uint32) for n in (num_steps, env.num_envs, 1 + agents))
    envs = envs + jnp.uint32(sharding.part_index() * env.num_envs)
    # A unique number for each key. Environments are the slowest axis, so adding more leaves these numbers unchanged
    numbers = (envs[None, :, None] * num_steps + steps[:, None, None]) * (1 + agents) + users[None, None, :]
    return jax.vmap(jax.random.fold_in, (None, 0))(key, numbers.reshape(-1)).reshape(numbers.shape)
