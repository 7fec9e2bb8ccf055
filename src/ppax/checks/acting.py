"""Checks of the policy: replay of the stored rollout, memory resets, log-probabilities and action masks."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.checks import oracle
from ppax.checks.context import CheckContext, fast_compiled, max_difference, named_leaves, replayed
from ppax.checks.report import Finding, none_of, skip, within
from ppax.core.types import Key, LearnerState, PyTree, Transition
from ppax.devices.layout import product_dtype
from ppax.training.host.policy import NumpyPolicy, PolicyInputs, make_policy

EXACT = {
    "float32": 1e-6,
    "bfloat16": 5e-2,
}  # tolerance of a ratio; bfloat16 has 8 bits, and its rounding depends on shapes
CLOSE = {"float32": 1e-5, "bfloat16": 5e-2}  # relative tolerance
STATES = 16  # number of observations that are compared


def check_ratio(context: CheckContext, key: Key) -> Finding:
    """Check that the probability ratio is 1 before the first gradient step, on every row."""
    metrics = context.probe(context.learner, context.rollout, key).metrics
    if "ratio_first_max_dev" not in metrics:
        return skip("the loss has no metrics ratio_max and ratio_min; `replay` checks nearly the same")
    steps = context.rollout.steps
    largest = float(jnp.where(steps.valid, jnp.abs(steps.log_prob), 0.0).max())
    return within(
        float(metrics["ratio_first_max_dev"]),
        # float32 rounds a log-probability of 20 to 2e-6
        EXACT[product_dtype(context.agent.compute_dtype)] * max(1.0, largest),
        "is 1 before the first gradient step; largest deviation",
        "Learning sees another policy than the one that acted, so every gradient is wrong: something changes between "
        "acting and learning (dropout, statistics of a batch, a list in Python), or memory is not carried as stored.",
    )


def check_host_policy(context: CheckContext) -> Finding:
    """Check that the host policy (NumPy or compiled) gives the actions of the network."""
    env, steps = context.env, context.rollout.steps
    policy = make_policy(context.agent, env, context.learner, deterministic=True)
    policy.begin(context.agent, context.learner, 1, jax.random.key(0))

    def mode_actions(learner: LearnerState, *seen: PyTree) -> PyTree:
        distribution = context.agent.policy(learner, *seen).distribution
        return distribution.env_action(distribution.mode())

    expected, off, count = fast_compiled(mode_actions), 0.0, 0
    for rows in env.host.batches:
        carry = jax.tree.map(lambda x, rows=rows: np.asarray(x[rows]), context.actor.carry)
        seen = jax.tree.map(lambda x, rows=rows: np.asarray(x[0, rows]), (steps.obs, steps.first, steps.action_mask))
        acted = policy.act(0, rows, PolicyInputs(carry, *seen)).env_action
        wanted = jax.tree.leaves(expected(context.learner, carry, *seen))
        off = max(off, max_difference(acted, wanted, np.ones(rows.stop - rows.start, bool)))
        count += rows.stop - rows.start
    kind = "NumPy" if isinstance(policy, NumpyPolicy) else "one compiled call a step"
    return within(
        off,
        CLOSE[product_dtype(context.agent.compute_dtype)],
        f"acts by {kind}; for {count} observations its modes are those of the network; largest deviation",
        "Please report it: with this network the NumPy policy is not the compiled one.",
    )


def check_replay(context: CheckContext) -> Finding:
    """Check that acting again, step by step from the memory at the rollout's start, gives the stored values."""
    steps, again = context.rollout.steps, replayed(context)
    valid = np.asarray(steps.valid)
    off = {
        "log_prob": max_difference(again.log_prob, steps.log_prob, valid),
        "value": max_difference(again.value, steps.value, valid),
    }
    for (path, stored), (_, now) in zip(named_leaves(steps.carry), named_leaves(again.carry), strict=True):
        stride = len(now) // len(stored)  # the carry may be stored only at the start of sequences
        off[f"carry{path}"] = max_difference(now[::stride], stored, np.ones(stored.shape[:2], bool))
    worst = max(off, key=lambda name: off[name])
    return within(
        off[worst],
        CLOSE[product_dtype(context.agent.compute_dtype)],
        f"recomputed steps give the stored values; {worst} is off by",
        "The network's output depends on more than parameters, memory and observation, or its memory over a sequence "
        "differs from its memory step by step.",
    )


def check_memory(context: CheckContext) -> Finding:
    """Check that memory is reset where an episode begins."""
    agent, steps, carry = context.agent, context.rollout.steps, context.actor.carry
    if not jax.tree.leaves(agent.initial_carry(1)):
        return skip("the network has no memory")
    half = steps.first.shape[0] // 2
    junk = jax.tree.map(lambda x: x + 1 if jnp.issubdtype(x.dtype, jnp.floating) else x, carry)
    never = jnp.zeros_like(steps.first)
    everywhere = np.ones(steps.first.shape, bool)

    def change(first: Array, begin: int) -> float:
        """Largest change of values and log-probabilities from step `begin` on, caused by the changed memory."""
        one, other = (
            context.replay(context.learner, x, dataclasses.replace(steps, first=first)) for x in (junk, carry)
        )
        return max_difference(
            (one.value, one.log_prob), (other.value, other.log_prob), everywhere & _from(begin, steps)
        )

    if change(never, 0) == 0.0:
        return skip("the memory has no influence on policy and value, so a missing reset could not be seen")
    return within(
        change(never.at[half].set(True), half),
        0.0,
        "memory is reset where an episode begins; with other memory before it, outputs change by",
        "Memory leaks from one episode into the next: `scan` of a memory part (`remember` of a network) must reset the "
        "carry where `first` is true: with start = self.initial_carry(size) (of a network: self.initial_carry()), at "
        "each step carry = jax.tree.map(lambda new, old: jnp.where(first_t, new, old), start, carry).",
    )


def _from(begin: int, steps: Transition) -> np.ndarray:
    after: np.ndarray = np.arange(steps.first.shape[0])[:, None] >= begin
    return after


def check_distribution(context: CheckContext, key: Key) -> Finding:
    """Check that log_prob is the density of the samples: the mean score E[d log p / d network] is 0."""
    again, steps = replayed(context), context.rollout.steps
    valid = np.asarray(steps.valid)
    finite = {"log_prob": again.log_prob, "entropy": again.entropy}
    problems = [f"{name} is not finite" for name, x in finite.items() if not np.isfinite(np.asarray(x)[valid]).all()]
    at = np.nonzero(valid)
    seen = steps.obs, steps.first, steps.action_mask
    rows = jax.tree.map(lambda x: x[at[0][:STATES], at[1][:STATES]], (again.carry, *seen))
    learner = context.learner._replace(params=oracle.with_noise(context.learner.params, key))
    sums = fast_compiled(lambda *args: oracle.scores(context.agent, *args))(learner, rows, jax.random.fold_in(key, 1))
    worst = oracle.excess(*map(np.asarray, sums))
    if not worst <= 1.0:
        problems.append(
            f"the mean score of {oracle.DRAWS * oracle.TURNS} samples is {worst:.1f} times what chance allows"
        )
    found = none_of(
        problems,
        f"log_prob is the density of the samples: their mean score is {worst:.2f} of what chance allows",
        "log_prob must be the density of the samples themselves (before a clip or squash, or with its Jacobian); "
        "else the policy gradient is biased.",
    )
    return found._replace(number=float(worst))


def check_masks(context: CheckContext) -> Finding:
    """Check that no forbidden action is taken, and that the mask changes the distribution in learning, too."""
    steps = context.rollout.steps
    if steps.action_mask is None:
        return skip("the environment gives no action_mask")
    valid = np.asarray(steps.valid)
    leaves = [np.asarray(x) for x in jax.tree.leaves(steps.action_mask)]
    problems, idle = [], 0
    if isinstance(context.env.action_space, spaces.Discrete):
        chosen = np.asarray(replayed(context).env_action) - int(context.env.action_space.start)
        some, taken = leaves[0].any(axis=-1), np.take_along_axis(leaves[0], chosen[..., None], -1)[..., 0]
        forbidden, idle = int((valid & ~taken & some).sum()), int((valid & ~some).sum())
        problems = [f"{forbidden} forbidden actions were taken"] if forbidden else []
    if all(x[valid].all() for x in leaves):
        return none_of(problems, "nothing was forbidden in this rollout", "")
    free = dataclasses.replace(steps, action_mask=jax.tree.map(jnp.ones_like, steps.action_mask))
    without = context.replay(context.learner, context.actor.carry, free).log_prob
    difference = max_difference(without, steps.log_prob, valid)
    if difference == 0.0:
        problems.append("the network's distribution is the same without the mask")
    nothing = f"; {idle} masks allow nothing at all" if idle else ""
    return none_of(
        problems,
        f"no forbidden action was taken, and without masks log_prob would be off by up to {difference:.2g}{nothing}",
        "decide must pass the mask to the distribution (Categorical.masked), which must not sample forbidden actions.",
    )
