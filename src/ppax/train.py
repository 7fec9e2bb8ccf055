"""Train, as pure functions: jit them, vmap them over seeds, or over any number of the agent."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax import counter
from ppax.collect import collect, start_actor
from ppax.envs.vector import VectorEnv
from ppax.metrics import merge_metric, neutral_metric, reduction
from ppax.ppo import PPO
from ppax.types import ConfigError, Key, Metrics, TrainState

# How metrics of single iterations become one of many, where their names do not say it (metrics.reduction)
LAST = ("learning_rate",)
SUM = ("episodes", "episode_return", "episode_length")


class Trained(NamedTuple):
    """The state after some iterations, and scalar metrics over all of them."""

    state: TrainState
    metrics: Metrics


def make_key(seed: int) -> Key:
    """A key from all 64 bits of a seed; `jax.random.key` keeps 32."""
    key = jax.random.key(seed % 2**32)
    return jax.random.fold_in(key, seed >> 32) if seed >> 32 else key


def start(agent: PPO, env: VectorEnv, num_steps: int, key: Key) -> TrainState:
    """A run before its first iteration: fresh weights, every environment at the start of an episode.

    `num_steps` is the length of a rollout. Raises ConfigError where the sizes do not divide.
    """
    check_sizes(agent, env, num_steps)
    learner_key, actor_key, run_key = jax.random.split(key, 3)
    return TrainState(
        learner=agent.init(env.observation_space, learner_key),
        actor=start_actor(agent, env, actor_key),
        key=run_key,
        iteration=jnp.int32(0),
        env_steps=counter.zero(),
        num_steps=num_steps,
    )


def train(
    agent: PPO,
    env: VectorEnv,
    state: TrainState,
    num_iterations: int | Array,
    total_iterations: int | Array | None = None,
) -> Trained:
    """Run `num_iterations` iterations: collect a rollout, learn from it.

    Metrics are scalars: means over the iterations (`episode_return` and `episode_length` over finished episodes,
    NaN where none finished); memory does not grow with `num_iterations`. Schedules see the progress
    `iteration / total_iterations`; by default these iterations are the last ones planned.
    """
    if total_iterations is None:
        total_iterations = state.iteration + num_iterations

    total = jnp.asarray(total_iterations, jnp.int32)
    once = jax.jit(iteration)  # traced once, for its metrics' names and for the loop

    def iterate(_: Array, carried: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
        state, totals = carried
        state, metrics = once(agent, env, state, total)
        last = {name: metrics[name] for name in LAST}
        return state, {name: merge_metric(name, totals[name], value) for name, value in metrics.items()} | last

    shapes = jax.eval_shape(once, agent, env, state, total).metrics
    zeros = {name: jnp.full(x.shape, neutral_metric(name), x.dtype) for name, x in shapes.items()}
    state, totals = jax.lax.fori_loop(0, num_iterations, iterate, (state, zeros))
    return Trained(state, {name: _finish(name, totals, num_iterations) for name in totals})


def iteration(agent: PPO, env: VectorEnv, state: TrainState, total_iterations: int | Array) -> Trained:
    """One rollout and one update."""
    key, collect_key, update_key = jax.random.split(state.key, 3)
    annealed: PPO = agent.schedule(agent, state.iteration / total_iterations)
    actor, rollout, episodes = collect(annealed, env, state.learner, state.actor, state.num_steps, collect_key)
    learner, metrics = annealed.update(state.learner, rollout, update_key)
    metrics["episodes"] = episodes.count.astype(jnp.float32)
    metrics["episode_return"] = episodes.return_sum
    metrics["episode_length"] = episodes.length_sum.astype(jnp.float32)
    env_steps = counter.add(state.env_steps, rollout.steps.valid.sum(dtype=jnp.uint32))
    return Trained(TrainState(learner, actor, key, state.iteration + 1, env_steps, num_steps=state.num_steps), metrics)


def check_sizes(agent: PPO, env: VectorEnv, num_steps: int) -> None:
    """Raise ConfigError, with the nearest sizes that work, where a size does not divide another."""
    length = agent.sequence_length(num_steps)
    if num_steps % length:
        raise ConfigError(
            f"seq_len = {length} does not divide num_steps = {num_steps}; {_nearest_divisors(num_steps, length)}"
        )
    sequences, parts = num_steps * env.num_streams // length, agent.minibatch.num_minibatches
    if sequences % parts:
        raise ConfigError(
            f"num_minibatches = {parts} does not divide the {sequences} sequences of a rollout "
            f"(num_steps {num_steps} * streams {env.num_streams} / seq_len {length}); "
            + _nearest_divisors(sequences, parts)
        )


def _nearest_divisors(total: int, wanted: int) -> str:
    divisors = (d for d in range(1, total + 1) if total % d == 0)
    nearest = sorted(sorted(divisors, key=lambda d: (abs(d - wanted), d))[:3])
    return f"nearest that do: {', '.join(map(str, nearest))}"


def _finish(name: str, totals: Metrics, num_iterations: int | Array) -> Array:
    if name in ("episode_return", "episode_length"):
        return totals[name] / totals["episodes"]  # NaN, not 0, where no episode finished
    whole = name in LAST + SUM or reduction(name) != "mean"
    return totals[name] if whole else totals[name] / num_iterations
