"""Checks of the policy: that learning sees the very policy that acted, and that its distribution is one."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.checks.report import Finding, none_of, skip, within
from ppax.checks.world import CheckContext, distance, numbers, quick, taken_again
from ppax.host.policy import InNumpy, Observed, make_policy
from ppax.ppo import PPO
from ppax.types import Key, LearnerState, PyTree, Transition

EXACT = {"float32": 1e-6, "bfloat16": 5e-2}  # of a ratio; bfloat16 has 8 bits, and rounds by the shape of a product
CLOSE = {"float32": 1e-5, "bfloat16": 5e-2}  # relative
SHAKE = 0.2  # standard deviation of what is added to weights, so that the distribution is no longer an even one
DRAWS, TURNS, STATES = 64, 64, 16
SIGMAS = 6.0


def check_ratio(world: CheckContext, key: Key) -> Finding:
    """The ratio is 1 before the first gradient step, on every row."""
    metrics = world.probe(world.learner, world.rollout, key).metrics
    if "ratio_first_max_dev" not in metrics:
        return skip("your loss has no metrics ratio_max and ratio_min to see it by; `replay` says nearly the same")
    steps = world.rollout.steps
    largest = float(jnp.where(steps.valid, jnp.abs(steps.log_prob), 0.0).max())
    return within(
        float(metrics["ratio_first_max_dev"]),
        # a log-probability of 20 is itself known to 2e-6 only
        EXACT[world.agent.compute_dtype] * max(1.0, largest),
        "is 1 before the first gradient step, but for",
        "Learning sees another policy than the one that acted, so every gradient is wrong: something changes between "
        "acting and learning (dropout, statistics of a batch, a list in Python), or memory is not carried as stored.",
    )


def check_host_policy(world: CheckContext) -> Finding:
    """The call that acts on the host, which may be one in NumPy, does what the network says."""
    env, steps = world.env, world.rollout.steps
    policy = make_policy(world.agent, env, world.learner, deterministic=True)
    policy.begin(world.agent, world.learner, 1, jax.random.key(0))

    def likely(learner: LearnerState, *seen: PyTree) -> PyTree:
        distribution = world.agent.policy(learner, *seen).distribution
        return distribution.env_action(distribution.mode())

    expected, off, count = quick(likely), 0.0, 0
    for rows in env.host.groups:
        carry = jax.tree.map(lambda x, rows=rows: np.asarray(x[0, rows]), steps.carry)
        seen = jax.tree.map(lambda x, rows=rows: np.asarray(x[0, rows]), (steps.obs, steps.first, steps.action_mask))
        acted = policy.act(0, rows, Observed(carry, *seen)).env_action
        wanted = jax.tree.leaves(expected(world.learner, carry, *seen))
        off = max(off, distance(acted, wanted, np.ones(rows.stop - rows.start, bool)))
        count += rows.stop - rows.start
    kind = "NumPy" if isinstance(policy, InNumpy) else "one compiled call a step"
    return within(
        off,
        CLOSE[world.agent.compute_dtype],
        f"acts by {kind}; for {count} observations its likeliest actions are those of the network but for",
        "Please report it: with this network the NumPy policy is not the compiled one.",
    )


def check_replay(world: CheckContext) -> Finding:
    """Acting again step by step, from the memory at the rollout's start, gives what was stored."""
    steps, again = world.rollout.steps, taken_again(world)
    valid = np.asarray(steps.valid)
    off = {
        "log_prob": distance(again.log_prob, steps.log_prob, valid),
        "value": distance(again.value, steps.value, valid),
    }
    for (path, stored), (_, now) in zip(numbers(steps.carry), numbers(again.carry), strict=True):
        stride = len(now) // len(stored)  # memory may be stored where sequences begin only
        off[f"carry{path}"] = distance(now[::stride], stored, np.ones(stored.shape[:2], bool))
    worst = max(off, key=lambda name: off[name])
    return within(
        off[worst],
        CLOSE[world.agent.compute_dtype],
        f"each stored step taken again gives the stored values; {worst} is off by",
        "The network's answer depends on more than its parameters, memory and observation, or remembers differently "
        "from one step to the next.",
    )


def check_memory(world: CheckContext) -> Finding:
    """Where an episode begins, nothing is left of what was before."""
    agent, steps, carry = world.agent, world.rollout.steps, world.actor.carry
    if not jax.tree.leaves(agent.network.initial_carry()):
        return skip("the network has no memory")
    half = steps.first.shape[0] // 2
    junk = jax.tree.map(lambda x: x + 1 if jnp.issubdtype(x.dtype, jnp.floating) else x, carry)
    never = jnp.zeros_like(steps.first)
    everywhere = np.ones(steps.first.shape, bool)

    def moved(first: Array, begin: int) -> float:
        """By how much the junk changes what is said from step `begin` on."""
        one, other = (world.again(world.learner, x, dataclasses.replace(steps, first=first)) for x in (junk, carry))
        return distance((one.value, one.log_prob), (other.value, other.log_prob), everywhere & _from(begin, steps))

    if moved(never, 0) == 0.0:
        return skip("other memory made no difference to the policy or the value, so none could be left over")
    return within(
        moved(never.at[half].set(True), half),
        0.0,
        "where an episode begins nothing is left of the one before; the answer changes by",
        "Memory leaks from one episode into the next: in remember, before each step, "
        "carry = jnp.where(first, self.initial_carry(), carry).",
    )


def _from(begin: int, steps: Transition) -> np.ndarray:
    after: np.ndarray = np.arange(steps.first.shape[0])[:, None] >= begin
    return after


def check_distribution(world: CheckContext, key: Key) -> Finding:
    """Log-probabilities are those of the samples: the mean of the score, E[d log p / d parameter], is 0."""
    again, steps = taken_again(world), world.rollout.steps
    valid = np.asarray(steps.valid)
    finite = {"log_prob": again.log_prob, "entropy": again.entropy}
    problems = [f"{name} is not finite" for name, x in finite.items() if not np.isfinite(np.asarray(x)[valid]).all()]
    at = np.nonzero(valid)
    seen = steps.obs, steps.first, steps.action_mask
    rows = jax.tree.map(lambda x: x[at[0][:STATES], at[1][:STATES]], (again.carry, *seen))
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


def check_masks(world: CheckContext) -> Finding:
    """No forbidden action is taken, and the mask is applied again in learning."""
    steps = world.rollout.steps
    if steps.action_mask is None:
        return skip("the environment gives no action_mask")
    valid = np.asarray(steps.valid)
    leaves = [np.asarray(x) for x in jax.tree.leaves(steps.action_mask)]
    problems, idle = [], 0
    if isinstance(world.env.action_space, spaces.Discrete):
        chosen = np.asarray(taken_again(world).env_action) - int(world.env.action_space.start)
        some, taken = leaves[0].any(axis=-1), np.take_along_axis(leaves[0], chosen[..., None], -1)[..., 0]
        forbidden, idle = int((valid & ~taken & some).sum()), int((valid & ~some).sum())
        problems = [f"{forbidden} forbidden actions were taken"] if forbidden else []
    if all(x[valid].all() for x in leaves):
        return none_of(problems, "nothing was forbidden in this rollout", "")
    free = dataclasses.replace(steps, action_mask=jax.tree.map(jnp.ones_like, steps.action_mask))
    without = world.again(world.learner, world.actor.carry, free).log_prob
    moved = distance(without, steps.log_prob, valid)
    if moved == 0.0:
        problems.append("the network's distribution is the same without the mask")
    nothing = f"; {idle} masks allow nothing at all" if idle else ""
    return none_of(
        problems,
        f"no forbidden action was taken, and without masks log_prob would be off by up to {moved:.2g}{nothing}",
        "decide must give the mask to the distribution (Categorical.masked), which must not draw what it forbids.",
    )


def _scores(agent: PPO, learner: LearnerState, rows: PyTree, key: Key) -> list[tuple[Array, Array]]:
    """Sums of d log p / d x and of its square over samples, for every number x of the distributions."""
    distribution = agent.policy(learner, *rows).distribution
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
