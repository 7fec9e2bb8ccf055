"""Checks of a rollout: that the policy which acted is the one that learns, and that the recorded steps are correct."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.arrays.sequences import to_rows
from ppax.checks import update
from ppax.checks.context import CheckContext, fast_compiled, labelled_leaves, max_difference, replayed_rollout
from ppax.checks.magnitudes import largest_entries, magnitude
from ppax.checks.report import CheckResult, none_of, skip, within_limit
from ppax.core.types import Key, LearnerState, PyTree, Transition
from ppax.devices.layout import product_dtype
from ppax.training.collection import stream_keys
from ppax.training.host.policy import HostNumpyPolicy, PolicyInputs, make_policy

EXACT = {
    "float32": 1e-6,
    "bfloat16": 5e-2,
}  # tolerance of a ratio; bfloat16 has 8 bits, and its rounding depends on shapes
CLOSE = {"float32": 1e-5, "bfloat16": 5e-2}  # relative tolerance
STEPPED = 1e-3  # the same, of a rollout that another program repeats: it rounds differently, and physics amplifies that
STATES = 16  # number of observations that are compared


def check_ratio(context: CheckContext, key: Key) -> CheckResult:
    """Check that the probability ratio of PPO's loss is 1 on every row before the first gradient step.

    A row is one step of one agent in one environment.
    """
    metrics = context.probe(context.learner, context.rollout, key).metrics
    if "ratio_first_max_dev" not in metrics:
        return skip("the loss has no metrics ratio_max and ratio_min; `replay` checks nearly the same")
    steps = context.rollout.steps
    largest = float(jnp.where(steps.valid, jnp.abs(steps.log_prob), 0.0).max())
    return within_limit(
        float(metrics["ratio_first_max_dev"]),
        # float32 rounds a log-probability of 20 to 2e-6
        EXACT[product_dtype(context.agent.compute_dtype)] * max(1.0, largest),
        "is 1 before the first gradient step; largest deviation",
        "Learning sees another policy than the one that acted, so every gradient is wrong: something changes between "
        "acting and learning (dropout, statistics of a batch, a list in Python), or memory is not carried as stored.",
    )


def check_host_policy(context: CheckContext) -> CheckResult:
    """Check that the policy that acts on the host (in NumPy or compiled) gives the same actions as the JAX network."""
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
    kind = "NumPy" if isinstance(policy, HostNumpyPolicy) else "one compiled call a step"
    return within_limit(
        off,
        CLOSE[product_dtype(context.agent.compute_dtype)],
        f"acts by {kind}; for {count} observations its modes are those of the network; largest deviation",
        "Please report it: with this network the NumPy policy is not the compiled one.",
    )


def check_replay(context: CheckContext) -> CheckResult:
    """Check that recomputing the policy step by step, from the carry at the rollout's start, gives the stored values.

    These are the log-probabilities, values and carries.
    """
    steps, again = context.rollout.steps, replayed_rollout(context)
    valid = np.asarray(steps.valid)
    off = {
        "log_prob": max_difference(again.log_prob, steps.log_prob, valid),
        "value": max_difference(again.value, steps.value, valid),
    }
    for (path, stored), (_, now) in zip(labelled_leaves(steps.carry), labelled_leaves(again.carry), strict=True):
        stride = len(now) // len(stored)  # the carry may be stored only at the start of sequences
        off[f"carry{path}"] = max_difference(now[::stride], stored, np.ones(stored.shape[:2], bool))
    worst = max(off, key=lambda name: off[name])
    return within_limit(
        off[worst],
        CLOSE[product_dtype(context.agent.compute_dtype)],
        f"recomputed steps give the stored values; {worst} is off by",
        "The network's output depends on more than parameters, memory and observation, or its memory over a sequence "
        "differs from its memory step by step.",
    )


def check_memory(context: CheckContext) -> CheckResult:
    """Check that the network's memory is reset where an episode begins."""
    agent, steps, carry = context.agent, context.rollout.steps, context.actor.carry
    if not jax.tree.leaves(agent.initial_carry(1)):
        return skip("the network has no memory")
    half = steps.first.shape[0] // 2
    junk = jax.tree.map(lambda x: x + 1 if jnp.issubdtype(x.dtype, jnp.floating) else x, carry)
    never = jnp.zeros_like(steps.first)
    everywhere = np.ones(steps.first.shape, bool)

    def change(first: Array, begin: int) -> float:
        """Return the largest difference of V and log-probabilities between two replays with different initial memory.

        One replay of the rollout starts from its carry, the other from that carry plus 1. Steps before `begin` are not
        compared. In both, `first` [T, B] says where episodes begin, so where the memory should be reset.
        """
        one, other = (
            context.replay(context.learner, x, dataclasses.replace(steps, first=first)) for x in (junk, carry)
        )
        return max_difference(
            (one.value, one.log_prob), (other.value, other.log_prob), everywhere & _from(begin, steps)
        )

    if change(never, 0) == 0.0:
        return skip("the memory has no influence on policy and value, so a missing reset could not be seen")
    return within_limit(
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


def check_distribution(context: CheckContext, key: Key) -> CheckResult:
    """Check that `log_prob` is the log density of the samples that `sample` draws from the policy's distribution.

    If it is, the mean of the score, the gradient of log_prob with respect to the parameters, is 0.
    """
    again, steps = replayed_rollout(context), context.rollout.steps
    valid = np.asarray(steps.valid)
    finite = {"log_prob": again.log_prob, "entropy": again.entropy}
    problems = [f"{name} is not finite" for name, x in finite.items() if not np.isfinite(np.asarray(x)[valid]).all()]
    at = np.nonzero(valid)
    seen = steps.obs, steps.first, steps.action_mask
    rows = jax.tree.map(lambda x: x[at[0][:STATES], at[1][:STATES]], (again.carry, *seen))
    learner = context.learner._replace(params=update.perturbed(context.learner.params, key))
    sums = fast_compiled(lambda *args: update.scores(context.agent, *args))(learner, rows, jax.random.fold_in(key, 1))
    worst = update.excess(*map(np.asarray, sums))
    if not worst <= 1.0:
        problems.append(
            f"the mean score of {update.DRAWS * update.TURNS} samples is {worst:.1f} times what chance allows"
        )
    found = none_of(
        problems,
        f"log_prob is the density of the samples: their mean score is {worst:.2f} of what chance allows",
        "log_prob must be the density of the samples themselves (before a clip or squash, or with its Jacobian); "
        "else the policy gradient is biased.",
    )
    return found._replace(number=float(worst))


def check_masks(context: CheckContext) -> CheckResult:
    """Check that no action forbidden by its mask was taken, and that the masks are applied in learning, too."""
    steps = context.rollout.steps
    if steps.action_mask is None:
        return skip("the environment gives no action_mask")
    valid = np.asarray(steps.valid)
    leaves = [np.asarray(x) for x in jax.tree.leaves(steps.action_mask)]
    problems, idle = [], 0
    if isinstance(context.env.action_space, spaces.Discrete):
        chosen = np.asarray(replayed_rollout(context).env_action) - int(context.env.action_space.start)
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


ROWS = 64  # number of rows tested one by one with `space.contains`
JUMP = 2.0  # last step over an ordinary step, in observation space, above which the environment may have reset itself
MOST = 0.75  # share of final observations that look like first ones, above which it may have reset itself
REACH = 2.0  # largest distance to a first observation, over the distance among these, that counts as looking like one
RESETS = 256


def check_finite(context: CheckContext) -> CheckResult:
    """Check that observations and rewards have no NaN or infinity."""
    steps = context.rollout.steps
    problems = []
    for name, tree in (("obs", steps.obs), ("reward", steps.reward)):
        for path, x in labelled_leaves(tree):
            bad = ~_finite(x) & (_used_obs(steps) if name == "obs" else True)
            if bad.any():
                t, stream = np.argwhere(bad)[0]
                problems.append(f"{name}{path} is not finite in {bad.sum()} rows, first at step {t} of stream {stream}")
    return none_of(
        problems,
        f"all of {steps.valid.size:,} observations and rewards are",
        "One NaN reaches every weight: look for a division by zero, a root or logarithm of a negative number, "
        "or an unstable integration in the environment.",
    )


def check_magnitude(context: CheckContext) -> CheckResult:
    """Check that observations do not grow by orders of magnitude within an episode and are not huge (above 1e12)."""
    steps = context.rollout.steps
    return magnitude(largest_entries(steps.obs, 2), np.asarray(steps.first), _used_obs(steps))


def check_inside(context: CheckContext) -> CheckResult:
    """Check that observations, and the actions that the environment receives, are inside their spaces."""
    env, steps = context.env, context.rollout.steps
    action = to_rows(replayed_rollout(context).env_action)
    problems = [
        *_outside("obs", env.observation_space, to_rows(steps.obs), _used_obs(steps).reshape(-1)),
        *_outside("action", env.action_space, action, np.asarray(steps.valid).reshape(-1)),
    ]
    return none_of(
        problems,
        "observations and the environment's actions are inside their spaces",
        "Declare the bounds that hold (infinite ones are allowed); for actions, the distribution's env_action "
        "must put every sample into the space.",
    )


def check_final(context: CheckContext) -> CheckResult:
    """Check that the observation after the last step of an episode belongs to that episode and not to the next.

    It belongs to the next one if the environment resets itself inside `step`, which it must not do.
    """
    steps = context.rollout.steps
    begin = fast_compiled(jax.vmap(context.env.env.reset))(jax.random.split(jax.random.key(0), RESETS))
    starts = _features(begin.obs, 1 if context.env.env.num_agents is None else 2).astype(np.float64)
    starts = starts.reshape(-1, starts.shape[-1])
    starts = starts[:: max(1, len(starts) // RESETS)]  # with many agents, a subset
    obs = _features(steps.obs, 2).astype(np.float64)
    ended, valid = np.asarray(steps.ended), np.asarray(steps.valid)
    if not ended[:-1].any():
        return skip("no episode ended in the rollout")
    at = np.argwhere(ended[:-1])
    before, final = obs[at[:, 0], at[:, 1]], obs[at[:, 0] + 1, at[:, 1]]
    inner = valid[:-1] & ~ended[:-1]

    spread, middle = obs[valid].std(axis=0) + 1e-8, obs[valid].mean(axis=0)
    starts, final, before = ((x - middle) / spread for x in (starts, final, before))
    among = _distances(starts, starts) + np.where(np.eye(len(starts), dtype=bool), np.inf, 0.0)
    reach = REACH * np.quantile(among.min(axis=1), 0.95) + 1e-3

    def like_a_start(x: np.ndarray) -> np.ndarray:  # as close to some start as starts are to each other
        return _distances(x, starts).min(axis=1) <= reach

    def length(way: np.ndarray) -> float:
        return float(np.median(np.linalg.norm(way, axis=-1))) if len(way) else 0.0

    usual, last = length((obs[1:] - obs[:-1])[inner] / spread), length(final - before)
    share = like_a_start(final).mean()
    reset = share > MOST and like_a_start(before).mean() < 1.0 - MOST and last > JUMP * usual
    return CheckResult(
        not reset,
        f"{round(share * len(at))} of {len(at)} final observations look like the start of an episode; the observation "
        f"changes by {last:.2g} standard deviations in an episode's last step, by {usual:.2g} in other steps",
        float(share),
        "The environment resets itself inside step, so the final observation of an episode is lost, and with it the "
        "bootstrap value after a truncation. Return the true final observation; ppax resets.",
    )


def check_alignment(context: CheckContext) -> CheckResult:
    """Check that stepping again with the stored actions gives the stored rewards, episode flags and observations."""
    steps, env = context.rollout.steps, context.env
    keys = stream_keys(jax.random.clone(context.key), steps.valid.shape[0], env)[:, :, 0]
    shape, actions = steps.valid.shape, replayed_rollout(context).env_action

    def play(state: Any, actions: Any, keys: Any) -> Any:
        def step(state: Any, inputs: Any) -> Any:
            out = env.step(state, *inputs)
            return out.state, out._replace(state=())

        return jax.lax.scan(step, state, (actions, keys))[1]

    out = fast_compiled(play)(context.actor.env_state, actions, keys)
    everywhere = np.ones(shape, bool)
    paid, shown = (
        functools.reduce(np.logical_and, map(_finite, jax.tree.leaves(x))) for x in (steps.reward, steps.obs)
    )
    stored = {  # numbers that are not finite are for `finite` alone: NaN differs from itself
        "reward": max_difference(steps.reward, out.reward, paid),
        "terminated": max_difference(steps.terminated, out.terminated, everywhere),
        "truncated": max_difference(steps.truncated, out.truncated, everywhere),
        "the next obs": max_difference(_part(steps.obs, 1, None), _part(out.obs, 0, -1), shown[1:]),
        "the next first": max_difference(steps.first[1:], out.first[:-1], everywhere[1:]),
    }
    problems = [f"{name} differs by {x:.2g}" for name, x in stored.items() if not x <= STEPPED]
    return none_of(
        problems + _flags(steps),
        "each step leads to the next stored row, and episode flags agree",
        "The stored rows are not the steps that were made: the environment's step must depend on its state, action and "
        "key alone, and terminated and truncated must be returned by the step that ends the episode.",
    )


def _finite(x: Any) -> np.ndarray:
    """Return a bool array [T, B]: whether all numbers of a row of `x` [T, B, ...] are finite."""
    x = np.asarray(x)
    finite: np.ndarray = np.isfinite(x.reshape(*x.shape[:2], -1)).all(axis=-1)
    return finite


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the Euclidean distances [N, M] between all rows of `a` [N, F] and `b` [M, F]."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    distances: np.ndarray = np.sqrt(np.maximum(squares, 0.0))
    return distances


def _used_obs(steps: Any) -> np.ndarray:
    """Return a bool array [T, B]: whether an observation is used, by a valid step or for a bootstrap value.

    T are steps, B agents in all environments. The final observation of an episode is in an invalid row (a step in which
    the environment only resets), but its value is bootstrapped from.
    """
    used: np.ndarray = np.array(steps.valid)
    used[1:] |= np.asarray(steps.ended)[:-1]
    return used


def _part(tree: Any, begin: int, end: int | None) -> Any:
    return jax.tree.map(lambda x: x[begin:end], tree)


def _flags(steps: Any) -> list[str]:
    """Return messages about episode flags that contradict each other."""
    valid, ended, first = (np.asarray(x) for x in (steps.valid, steps.ended, steps.first))
    wrong = {
        "a step after an end is still valid": valid[1:] & ended[:-1],
        "an invalid row ends an episode": ended & ~valid,
        "a first observation comes without a reset before it": first[1:] & valid[:-1],
    }
    return [f"{text} ({at.sum()} rows)" for text, at in wrong.items() if at.any()]


def _outside(name: str, space: spaces.Space, tree: Any, valid: np.ndarray) -> list[str]:
    if isinstance(space, spaces.Box):
        x = np.asarray(tree)[valid]
        low, high = (np.asarray(bound, x.dtype) for bound in (space.low, space.high))
        beyond = (x < low) | (x > high)
        if not beyond.any():
            return []
        where = tuple(np.argwhere(beyond)[0])
        bounds = f"[{low[where[1:]]:g}, {high[where[1:]]:g}]"
        count = int(beyond.reshape(len(x), -1).any(axis=1).sum())
        return [f"{name}{list(map(int, where[1:]))} = {x[where]:g} is outside {bounds}, in {count} of {len(x)} rows"]
    rows = np.flatnonzero(valid)[:ROWS].tolist()
    misfits = [at for at in rows if not space.contains(_row(tree, at))]
    if not misfits:
        return []
    return [f"{name} = {_row(tree, misfits[0])} is outside {space}, in {len(misfits)} of {len(rows)} rows"]


def _row(tree: Any, at: int) -> Any:
    return jax.tree.map(lambda x: np.asarray(np.asarray(x)[at]), tree)


def _features(tree: Any, axes: int) -> np.ndarray:
    """Return all leaves of `tree` as one array: all but their first `axes` axes flattened, and concatenated."""
    return np.concatenate([x.reshape(*x.shape[:axes], -1) for _, x in labelled_leaves(tree)], axis=-1)
