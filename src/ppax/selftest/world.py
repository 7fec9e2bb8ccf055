"""What the checks look at: a rollout of the user's agent in the user's environment, after one update."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.collect import collect
from ppax.envs.vector import VectorEnv
from ppax.ppo import PPO, Update
from ppax.sequences import to_rows
from ppax.train import check_sizes, start
from ppax.types import ActorState, ConfigError, Key, LearnerState, PyTree, Rollout

ROWS = 1024  # of a rollout are enough to see what is wrong
ENDS = 4  # episodes that should end in a rollout
# Programs that run once or twice: what the compiler takes counts, not what they take
CPU_OPTIONS = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
STEPS, SECONDS = 5000, 10.0  # how long to wait for them


class Again(NamedTuple):
    """Every stored step, taken again by itself, [T * B]."""

    carry: PyTree
    log_prob: Array
    value: Array
    entropy: Array
    env_action: PyTree


class World(NamedTuple):
    """One rollout, and all that led to it."""

    agent: PPO
    env: VectorEnv
    learner: LearnerState
    actor: ActorState  # where the rollout began
    key: Key  # of the rollout
    rollout: Rollout
    again: Callable[..., Again]  # (learner, steps [N]) -> each of them by itself
    update: Callable[..., Update]  # (learner, rollout, key)


def build(agent: PPO, env: VectorEnv, num_steps: int, key: Key) -> World:
    """One update, then rollouts until some episodes have ended in one, or that takes too long."""
    start_key, update_key, *_ = jax.random.split(key, 3)
    state = quick(lambda agent, env, key: start(agent, env, num_steps, key))(agent, env, start_key)
    gather = quick(lambda agent, env, *now: collect(agent, env, now[0], now[1], num_steps, now[2]))
    update = quick(lambda agent, *now: agent.update(*now))
    learner, actor = state.learner, state.actor
    for i in range(2 + STEPS // num_steps):
        before, step_key = actor, jax.random.fold_in(key, i)
        actor, rollout, _ = gather(agent, env, learner, before, jax.random.clone(step_key))
        if i == 0:  # weights and statistics then are not those that they began with
            learner = update(agent, learner, rollout, update_key).learner
            deadline = time.monotonic() + SECONDS  # compiled by now
        elif int(rollout.steps.ended[:-2].sum()) >= ENDS or time.monotonic() > deadline:
            break
    return World(agent, env, learner, before, step_key, rollout, _again(agent), jax.tree_util.Partial(update, agent))


def _again(agent: PPO) -> Callable[..., Again]:
    def take(learner: LearnerState, steps: Any) -> Again:
        policy = agent.policy(learner, steps.carry, steps.obs, steps.first, steps.action_mask)
        distribution = policy.distribution
        return Again(
            policy.carry,
            distribution.log_prob(steps.action),
            policy.value,
            distribution.entropy(),
            distribution.env_action(steps.action),
        )

    return quick(take)


def taken_again(world: World) -> Again:
    """All of the rollout."""
    return world.again(world.learner, to_rows(world.rollout.steps))


def fewest(agent: PPO, env: VectorEnv, num_steps: int) -> VectorEnv:
    """As few of the environments as give some hundred rows and sizes that divide."""
    check_sizes(agent, env, num_steps)
    enough = -(-ROWS // (num_steps * (env.num_streams // env.num_envs)))
    for num_envs in range(min(enough, env.num_envs), env.num_envs):
        fewer = dataclasses.replace(env, num_envs=num_envs)
        try:
            check_sizes(agent, fewer, num_steps)
        except ConfigError:
            continue
        if env.num_envs % num_envs == 0:
            return fewer
    return env


def quick(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled fast."""
    return jax.jit(function, compiler_options=CPU_OPTIONS if jax.default_backend() == "cpu" else None)


def numbers(tree: PyTree) -> Iterator[tuple[str, np.ndarray]]:
    """(path, values) of every leaf, keys as their words."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        yield jax.tree_util.keystr(path), np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def unlike(one: PyTree, other: PyTree) -> list[str]:
    """Paths of the leaves that are not the same, bit for bit."""
    pairs = zip(numbers(one), numbers(other), strict=True)
    return [path for (path, a), (_, b) in pairs if a.shape != b.shape or a.tobytes() != b.tobytes()]


def distance(one: PyTree, other: PyTree, valid: Any) -> float:
    """The largest |a - b| / (1 + |b|) of rows [N, ...] that are valid; infinite where one is not finite."""
    rows, worst = np.asarray(valid), 0.0
    for (_, a), (_, b) in zip(numbers(one), numbers(other), strict=True):
        a, b = a[rows].astype(np.float64), b[rows].astype(np.float64)
        if a.size:
            with np.errstate(invalid="ignore"):
                worst = max(worst, float(np.nan_to_num(np.abs(a - b) / (1.0 + np.abs(b)), nan=np.inf).max()))
    return worst
