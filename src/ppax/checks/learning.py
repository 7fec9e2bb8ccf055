"""Checks of an update: targets, minibatches, gradients, rows that do not count, several devices."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.arrays.sequences import to_sequences
from ppax.checks import oracle
from ppax.checks.report import Finding, none_of, skip, within
from ppax.checks.world import CheckContext, gradient, numbers, quick, unlike
from ppax.collection import collect
from ppax.ppo import PPO
from ppax.program import sharding
from ppax.program.sharding import SAME, SPLIT
from ppax.types import Batch, Key, PyTree, Rollout, Targets, Transition

STREAMS, STEPS = 16, 128  # of a rollout that the estimator is asked about
OFTEN = 0.1  # share of steps that end an episode there
EQUAL = 1e-3  # relative, of a gradient
DRIFT = 0.02  # of a whole update between one device and two: other sums, other rounding


def check_targets(world: CheckContext, key: Key) -> Finding:
    """Advantages and value targets are those of a float64 computation."""
    weights = oracle.weights_of(world.agent.advantage)
    if weights is None:
        return skip(f"{type(world.agent.advantage).__name__} is your own: there is nothing to compare it with")
    steps, next_value = _with_ends(world, key)
    got = _estimate(world.agent)(steps, next_value)
    expected = oracle.targets(weights, steps, next_value, float(world.agent.gamma))
    off = max(
        float(np.nan_to_num(np.abs(np.asarray(a) - b) / (1.0 + np.abs(b).max()), nan=np.inf).max())
        for a, b in zip(got, expected, strict=True)
    )
    return within(
        off,
        1e-4,
        "advantages and targets are those of a float64 computation, but for",
        "The estimator is wrong, or values and rewards are so large that float32 does not do: normalize_reward.",
    )


def check_ends(world: CheckContext, key: Key) -> Finding:
    """The value beyond a termination does not count; beyond a truncation it does."""
    steps, next_value = _with_ends(world, key)
    estimate = _estimate(world.agent)
    plain = estimate(steps, next_value)
    deaths, cuts = steps.terminated, steps.truncated & ~steps.terminated
    without = estimate(steps, jnp.where(deaths, jnp.nan, next_value))
    more = estimate(steps, jnp.where(cuts, next_value + 1.0, next_value))
    problems = [f"{name} changes where an episode has ended for good" for name in unlike(plain, without)]
    gain = np.asarray(more.value - plain.value)[np.asarray(cuts)]
    if float(world.agent.gamma) > 0.0 and not (gain > 0.0).all():
        problems.append(f"the target ignores the value beyond {(~(gain > 0.0)).sum()} of {len(gain)} truncations")
    counts = int(deaths.sum()), int(cuts.sum())
    return none_of(
        problems,
        f"the value beyond {counts[0]} terminations does not count, beyond {counts[1]} truncations it does",
        "Only terminated may cut the value (jnp.where(terminated, 0, next_value), not a product: NaN times 0 is NaN); "
        "ended cuts the trace.",
    )


def check_coverage(world: CheckContext, env: Any, num_steps: int, key: Key) -> Finding:
    """Minibatches of an epoch take every sequence once."""
    agent = world.agent
    length = agent.sequence_length(num_steps)
    count = num_steps * env.num_streams // length
    rollout = world.rollout.steps
    few = to_sequences(dataclasses.replace(rollout, obs=None, action=None, carry=(), action_mask=None), length)
    steps = jax.tree.map(lambda x: jnp.asarray(np.resize(np.asarray(x), (count, *x.shape[1:]))), few)
    advantage = jax.random.normal(jax.random.fold_in(key, 0), (count, length)) * steps.valid
    draw = quick(lambda steps, advantage, key: agent.minibatch(Batch(steps, Targets(advantage, advantage)), key))
    drawn = [draw(steps, advantage, jax.random.fold_in(key, i)) for i in (1, 2)]
    order = [np.asarray(one.index).reshape(-1) for one in drawn]
    problems = ["an index is out of range"] if (order[0] < 0).any() or (order[0] > count).any() else []
    visits = np.bincount(np.clip(order[0], 0, count), minlength=count + 1)[:count]
    if drawn[0].weight is not None:
        seen = f"{(visits > 0).sum():,} of {count:,} sequences in {order[0].size:,} places"
        if not problems:
            return skip(f"sequences are drawn by priority, with weights: an epoch took {seen}")
    never, often = int((visits == 0).sum()), int((visits > 1).sum())
    problems += [f"{never:,} of {count:,} sequences are in no minibatch"] if never else []
    problems += [f"{often:,} of {count:,} sequences come more than once"] if often else []
    if count > 1 and agent.minibatch.num_minibatches > 1 and np.array_equal(order[0], order[1]):
        problems.append("two epochs have the same minibatches")
    return none_of(
        problems,
        f"an epoch takes each of {count:,} sequences exactly once, another epoch in another order",
        "Draw a fresh permutation of all sequences from the key; where some are left out or taken twice, say so by "
        "weights in Drawn.",
    )


def check_gradients(world: CheckContext, key: Key) -> Finding:
    """Every parameter gets a finite gradient."""
    gradients = gradient(world, world.rollout, key)
    broken = [path for path, x in gradients.items() if not np.isfinite(x).all()]
    dead = [path for path, x in gradients.items() if not x.any()]
    problems = [f"the gradient of {', '.join(broken)} is not finite"] if broken else []
    problems += [f"no gradient reaches {', '.join(dead)}"] if dead else []
    return none_of(
        problems,
        f"all {len(gradients)} leaves of the parameters get a finite gradient",
        "Weights without a gradient never learn: a stop_gradient, an output that is not used, vf_coef = 0, an "
        "observation that is always 0, or units that are dead. NaN often comes from a where whose other branch is "
        "infinite.",
    )


def check_empty_rows(world: CheckContext, key: Key) -> Finding:
    """Whatever stands in rows that do not count, the same parameters come out."""
    steps, invalid = world.rollout.steps, ~world.rollout.steps.valid
    if not invalid.any():
        return skip("every row of the rollout counts: no episode ended in it")
    # the observation right after a truncation is what that step leads to: it is real, and so is its value
    real = jnp.concatenate([jnp.zeros_like(invalid[:1]), steps.truncated[:-1]])
    unused = invalid & ~real
    poisoned = dataclasses.replace(
        steps,
        obs=_poison(steps.obs, unused),
        action=_poison(steps.action, invalid),
        log_prob=_poison(steps.log_prob, invalid),
        reward=_poison(steps.reward, invalid),
        value=_poison(steps.value, unused),
    )
    clean = world.update(world.learner, world.rollout, jax.random.clone(key)).learner
    dirty = world.update(world.learner, world.rollout._replace(steps=poisoned), jax.random.clone(key)).learner
    problems = [f"{path} changes" for path in unlike(clean, dirty)]
    alone, beside = (gradient(world, x, jax.random.clone(key)) for x in (world.rollout, _with_empty(world.rollout)))
    difference = _norm({path: alone[path] - beside[path] for path in alone})
    if not difference <= EQUAL * _norm(alone):
        problems.append(f"as many rows again that do not count change the gradient by {difference / _norm(alone):.2g}")
    return none_of(
        problems,
        f"NaN and 1e30 in {int(invalid.sum()):,} rows that do not count change no bit, and they weigh nothing",
        "A loss, estimator or minibatch of your own looks at rows where steps.valid is False: take masked means "
        "(ppax.sequences.masked_mean), by where and not by multiplication.",
    )


def check_repeats(world: CheckContext, key: Key) -> Finding:
    """The same update twice is the same update."""
    one, other = (world.update(world.learner, world.rollout, jax.random.clone(key)).learner for _ in range(2))
    broken = [path for path, x in numbers(other) if not np.isfinite(x).all()]
    return none_of(
        [f"{path} differs" for path in unlike(one, other)] + [f"{path} is not finite" for path in broken],
        "the same rollout and key give the same weights, bit for bit",
        "A run could not be repeated: callbacks into Python, or sums in changing order (on a GPU, "
        "XLA_FLAGS=--xla_gpu_deterministic_ops=true). Where weights are not finite: see gradients.",
    )


def check_devices(world: CheckContext, num_steps: int, key: Key) -> Finding:
    """Two devices collect and learn as one does."""
    agent, env, learner = world.agent, world.env, world.learner
    minibatch = agent.minibatch.size(num_steps * env.num_streams // agent.sequence_length(num_steps))
    if len(jax.local_devices()) < 2:
        return skip("there is one device")
    if env.num_envs % 2 or minibatch % 2:
        return skip(f"{env.num_envs} environments and minibatches of {minibatch} sequences cannot both be halved")
    half = dataclasses.replace(env, num_envs=env.num_envs // 2)

    def share(learner: Any, actor: Any, key: Key, update_key: Key) -> PyTree:
        rollout = collect(agent, half, learner, actor, num_steps, key).rollout
        return agent.update(learner, rollout, update_key).learner.params

    both = quick(sharding.split(share, 2, (SAME, SPLIT, SAME, SAME), SAME))
    one = world.update(learner, world.rollout, jax.random.clone(key)).learner.params
    two = both(learner, world.actor, jax.random.clone(world.key), jax.random.clone(key))
    start, one, two = (
        np.concatenate([x.astype(np.float64).reshape(-1) for _, x in numbers(params)])
        for params in (learner.params, one, two)
    )
    return within(
        float(np.linalg.norm(one - two)) / max(float(np.linalg.norm(one - start)), 1e-30),
        DRIFT,
        "an iteration on two devices is that on one, but for a share of",
        "Something is summed or counted on each device alone: a loss must be a mean over valid rows, and an "
        "environment must not know how many stand beside it. [agent.program] devices = 1 avoids it.",
    )


def _with_empty(rollout: Rollout) -> Rollout:
    """As many streams again, of which nothing counts."""
    empty = dataclasses.replace(rollout.steps, valid=jnp.zeros_like(rollout.steps.valid))
    steps = jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=1), rollout.steps, empty)
    trace = jnp.concatenate([rollout.reward_trace] * 2, axis=1)
    return Rollout(steps, jnp.concatenate([rollout.last_value] * 2), trace)


def _norm(tree: dict[str, np.ndarray]) -> float:
    return float(np.sqrt(sum((x**2).sum() for x in tree.values())))


def _estimate(agent: PPO) -> Any:
    def estimate(steps: Transition, next_value: Array) -> Targets:
        return Targets(*jax.vmap(agent.advantage, (1, 1, None), 1)(steps, next_value, agent.gamma))

    return quick(estimate)


def _with_ends(world: CheckContext, key: Key) -> tuple[Transition, Array]:
    """The rollout's values and rewards, with ends of both kinds scattered in it, and the value after each step."""
    rollout: Rollout = world.rollout
    steps = jax.tree.map(lambda x: x[:STEPS, :STREAMS], dataclasses.replace(rollout.steps, carry=()))
    after = jnp.concatenate([rollout.steps.value[1:], rollout.last_value[None]])[:STEPS, :STREAMS]
    terminated, truncated = jax.random.bernoulli(key, OFTEN, (2, *after.shape))
    return dataclasses.replace(steps, terminated=terminated, truncated=truncated), after


def _poison(tree: PyTree, where: Array) -> PyTree:
    """NaN in half of the rows and huge numbers in the other half."""
    half = jnp.cumsum(where, axis=0) % 2 == 0

    def one(x: Array) -> Array:
        rows, other = (y.reshape(y.shape + (1,) * (x.ndim - y.ndim)) for y in (where, half))
        if x.dtype == bool:
            return x
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return jnp.where(rows, np.iinfo(x.dtype).max, x)
        return jnp.where(rows, jnp.where(other, jnp.nan, 1e30).astype(x.dtype), x)

    return jax.tree.map(one, tree)
