"""Checks of the policy: that learning sees the very policy that acted, and that its distribution is one."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.ppo import PPO
from ppax.selftest.report import Finding, none_of, skip, within
from ppax.selftest.world import World, distance, quick, taken_again
from ppax.sequences import to_rows, to_sequences
from ppax.types import Key, LearnerState, PyTree, Transition

EXACT = {"float32": 1e-6, "bfloat16": 5e-2}  # of a ratio; bfloat16 has 8 bits, and rounds by the shape of a product
CLOSE = {"float32": 1e-5, "bfloat16": 5e-2}  # relative
MEMORY_STEPS = 8
SHAKE = 0.2  # standard deviation of what is added to weights, so that the distribution is no longer an even one
DRAWS, TURNS, STATES = 64, 64, 16
SIGMAS = 6.0


def check_ratio(world: World) -> Finding:
    """The ratio is 1 before the first gradient step."""
    agent = world.agent

    def deviation(learner: Any, rollout: Any) -> tuple[Array, Array]:
        learner, experience = agent._prepare(learner, rollout)
        steps = experience.steps
        now = agent._replay(learner.params, learner.obs_stats, steps).distribution.log_prob(to_rows(steps.action))
        before, valid = to_rows(steps.log_prob), to_rows(steps.valid)
        off = jnp.where(valid, jnp.abs(jnp.expm1(now - before)), 0.0)
        return off.max(), jnp.where(valid, jnp.abs(before), 0.0).max()

    off, largest = quick(deviation)(world.learner, world.rollout)
    # a log-probability of 20 is itself known to 2e-6 only
    allowed = EXACT[agent.compute_dtype] * max(1.0, float(largest))
    return within(
        float(off),
        allowed,
        "is 1 before the first gradient step, but for",
        "Learning sees another policy than the one that acted, so every gradient is wrong: something changes between "
        "acting and learning (dropout, statistics of a batch, a list in Python), or memory is not carried as stored.",
    )


def check_replay(world: World) -> Finding:
    """Each stored step, taken again by itself from the stored memory, gives what was stored."""
    steps, again = world.rollout.steps, taken_again(world)
    valid, rows = to_rows(steps.valid), to_rows(steps)
    after = jax.tree.map(lambda x: x.reshape(*steps.valid.shape, *x.shape[1:])[:-1], again.carry)
    following = jax.tree.map(lambda x: x[1:], steps.carry)
    off = {
        "log_prob": distance(again.log_prob, rows.log_prob, valid),
        "value": distance(again.value, rows.value, valid),
        "the next carry": distance(after, following, np.asarray(steps.valid)[:-1]),
    }
    worst = max(off, key=lambda name: off[name])
    return within(
        off[worst],
        CLOSE[world.agent.compute_dtype],
        f"each stored step taken again gives the stored values; {worst} is off by",
        "The network's answer depends on more than its parameters, memory and observation, or remembers differently "
        "from one step to the next.",
    )


def check_memory(world: World) -> Finding:
    """Where an episode begins, nothing is left of what was before."""
    agent, learner = world.agent, world.learner
    if not jax.tree.leaves(agent.network.initial_carry()):
        return skip("the network has no memory")
    length = min(MEMORY_STEPS, world.rollout.steps.valid.shape[0])
    steps = to_sequences(jax.tree.map(lambda x: x[:length], world.rollout.steps), length)
    half = length // 2

    @quick
    def answers(carry: PyTree, first: Array) -> Any:
        steps_now = dataclasses.replace(steps, carry=carry, first=first)
        policy = agent._replay(learner.params, learner.obs_stats, steps_now)
        now = policy.value, policy.distribution.log_prob(to_rows(steps.action))
        return jax.tree.map(lambda x: x.reshape(-1, length), now)

    junk = jax.tree.map(lambda x: x + 1 if jnp.issubdtype(x.dtype, jnp.floating) else x, steps.carry)
    never, begins = (jnp.zeros_like(steps.first), jnp.zeros_like(steps.first).at[:, half].set(True))
    everywhere = np.ones(steps.first.shape, bool)
    if distance(answers(junk, never), answers(steps.carry, never), everywhere) == 0.0:
        return skip("other memory made no difference to the policy or the value, so none could be left over")
    off = distance(answers(junk, begins), answers(steps.carry, begins), everywhere & (np.arange(length) >= half))
    return within(
        off,
        0.0,
        "where an episode begins nothing is left of the one before; the answer changes by",
        "Memory leaks from one episode into the next: in remember, before each step, "
        "carry = jnp.where(first, self.initial_carry(), carry).",
    )


def check_distribution(world: World, key: Key) -> Finding:
    """Log-probabilities are those of the samples: the mean of the score, E[d log p / d parameter], is 0."""
    again, valid = taken_again(world), np.asarray(world.rollout.steps.valid).reshape(-1)
    finite = {"log_prob": again.log_prob, "entropy": again.entropy}
    problems = [f"{name} is not finite" for name, x in finite.items() if not np.isfinite(np.asarray(x)[valid]).all()]
    rows = jax.tree.map(lambda x: x[np.flatnonzero(valid)[:STATES]], to_rows(world.rollout.steps))
    learner = world.learner._replace(params=_shake(world.learner.params, key))
    sums = quick(lambda *now: _scores(world.agent, *now))(learner, rows, jax.random.fold_in(key, 1))
    worst = max((_excess(*map(np.asarray, pair)) for pair in sums), default=0.0)
    if not worst <= 1.0:
        problems.append(f"the mean score of {DRAWS * TURNS} samples is {worst:.1f} times what chance allows")
    found = none_of(
        problems,
        f"log_prob is of the samples: their mean score is {worst:.2f} of what chance allows",
        "log_prob must be the density of what sample draws, as drawn (before a clip or squash, or with its Jacobian); "
        "else the policy gradient is biased.",
    )
    return found._replace(number=float(worst))


def check_masks(world: World) -> Finding:
    """No forbidden action is taken, and the mask is applied again in learning."""
    steps = world.rollout.steps
    if steps.action_mask is None:
        return skip("the environment gives no action_mask")
    rows, valid = to_rows(steps), np.asarray(steps.valid).reshape(-1)
    allowed = np.concatenate([np.asarray(x).reshape(len(valid), -1) for x in jax.tree.leaves(rows.action_mask)], 1)
    problems = []
    space = world.env.action_space
    if isinstance(space, spaces.Discrete):
        chosen = np.asarray(taken_again(world).env_action) - int(space.start)
        forbidden = valid & ~allowed[np.arange(len(valid)), chosen] & allowed.any(axis=1)
        empty = valid & ~allowed.any(axis=1)
        problems += [f"{forbidden.sum()} forbidden actions were taken"] if forbidden.any() else []
        problems += [f"{empty.sum()} masks allow no action at all"] if empty.any() else []
    if not (~allowed[valid]).any():
        return none_of(problems, "nothing was forbidden in this rollout", "")
    free = dataclasses.replace(rows, action_mask=jax.tree.map(jnp.ones_like, rows.action_mask))
    moved = distance(world.again(world.learner, free).log_prob, rows.log_prob, valid)
    if moved == 0.0:
        problems.append("the network's distribution is the same without the mask")
    return none_of(
        problems,
        f"no forbidden action was taken, and without masks log_prob would be off by up to {moved:.2g}",
        "decide must give the mask to the distribution (Categorical.masked), which must not draw what it forbids; and "
        "the environment must allow at least one action.",
    )


def _scores(agent: PPO, learner: LearnerState, rows: Transition, key: Key) -> list[tuple[Array, Array]]:
    """Sums of d log p / d x and of its square over samples, for every number x of the distributions."""
    distribution = agent.policy(learner, rows.carry, rows.obs, rows.first, rows.action_mask).distribution
    leaves, structure = jax.tree.flatten(distribution)
    smooth = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]
    own = [x for is_smooth, x in zip(smooth, leaves, strict=True) if is_smooth]

    def log_prob(own: list[Array], action: PyTree) -> Array:
        given = iter(own)
        now = [next(given) if is_smooth else x for is_smooth, x in zip(smooth, leaves, strict=True)]
        total: Array = jax.tree.unflatten(structure, now).log_prob(action).sum()
        return total

    def turn(sums: Any, key: Key) -> tuple[Any, None]:
        actions = jax.vmap(distribution.sample)(jax.random.split(key, DRAWS))
        scores = jax.vmap(jax.grad(log_prob), (None, 0))(own, actions)
        return [(a + x.sum(0), b + (x**2).sum(0)) for (a, b), x in zip(sums, scores, strict=True)], None

    zeros = [(jnp.zeros_like(x), jnp.zeros_like(x)) for x in own]
    sums: list[tuple[Array, Array]] = jax.lax.scan(turn, zeros, jax.random.split(key, TURNS))[0]
    return sums


def _shake(params: PyTree, key: Key) -> PyTree:
    leaves, structure = jax.tree.flatten(params)
    keys = jax.random.split(key, len(leaves))
    noise = [SHAKE * jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, [x + y for x, y in zip(leaves, noise, strict=True)])


def _excess(total: np.ndarray, squares: np.ndarray) -> float:
    """The largest mean over what chance allows; rare actions that were never drawn are within 20 / n."""
    n = DRAWS * TURNS
    mean, second = total / n, squares / n
    error = np.sqrt(np.maximum(second - mean**2, 0.0) / n)
    excess = np.nan_to_num(np.abs(mean) / (SIGMAS * error + 20.0 / n), nan=np.inf)
    return float(np.max(excess, initial=0.0))
