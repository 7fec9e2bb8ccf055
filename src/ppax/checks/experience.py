"""Checks of a stored rollout: finite values, bounds of spaces, final observations, alignment of rows."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from ppax.arrays.sequences import to_rows
from ppax.checks.context import CheckContext, fast_compiled, max_difference, named_leaves, replayed
from ppax.checks.report import Finding, none_of, skip
from ppax.training.collection import stream_keys

ROWS = 64  # number of rows tested one by one with `space.contains`
JUMP = 2.0  # last step over an ordinary step, in observation space, above which the environment may have reset itself
MOST = 0.75  # share of final observations that look like first ones, above which it may have reset itself
REACH = 2.0  # largest distance to a first observation, over the distance among these, that counts as looking like one
RESETS = 256


def check_finite(context: CheckContext) -> Finding:
    """Check that observations and rewards have no NaN or infinity."""
    steps = context.rollout.steps
    problems = []
    for name, tree in (("obs", steps.obs), ("reward", steps.reward)):
        for path, x in named_leaves(tree):
            bad = ~np.isfinite(x.reshape(*x.shape[:2], -1)).all(axis=-1) & (_used_obs(steps) if name == "obs" else True)
            if bad.any():
                t, stream = np.argwhere(bad)[0]
                problems.append(f"{name}{path} is not finite in {bad.sum()} rows, first at step {t} of stream {stream}")
    return none_of(
        problems,
        f"all of {steps.valid.size:,} observations and rewards are",
        "One NaN reaches every weight: look for a division by zero, a root or logarithm of a negative number, "
        "or an unstable integration in the environment.",
    )


def check_inside(context: CheckContext) -> Finding:
    """Check that observations, and the actions that the environment receives, are inside their spaces."""
    env, steps = context.env, context.rollout.steps
    action = to_rows(replayed(context).env_action)
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


def check_final(context: CheckContext) -> Finding:
    """Check that final observations belong to the episode that ends: the environment must not reset itself in step."""
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
    return Finding(
        not reset,
        f"{share:.0%} of {len(at)} final observations look like first ones; the last step moves "
        f"{last:.2g}, others {usual:.2g} standard deviations",
        float(share),
        "The environment resets itself inside step, so the final observation of an episode is lost, and with it the "
        "bootstrap value after a truncation. Return the true final observation; ppax resets.",
    )


def check_alignment(context: CheckContext) -> Finding:
    """Check that stepping again with the stored actions leads from each stored row to the next."""
    steps, env = context.rollout.steps, context.env
    keys = stream_keys(jax.random.clone(context.key), steps.valid.shape[0], env)[:, :, 0]
    shape, actions = steps.valid.shape, replayed(context).env_action

    def play(state: Any, actions: Any, keys: Any) -> Any:
        def step(state: Any, inputs: Any) -> Any:
            out = env.step(state, *inputs)
            return out.state, out._replace(state=())

        return jax.lax.scan(step, state, (actions, keys))[1]

    out = fast_compiled(play)(context.actor.env_state, actions, keys)
    everywhere, later = np.ones(shape, bool), np.ones(shape, bool)[1:]
    stored = {
        "reward": max_difference(steps.reward, out.reward, everywhere),
        "terminated": max_difference(steps.terminated, out.terminated, everywhere),
        "truncated": max_difference(steps.truncated, out.truncated, everywhere),
        "the next obs": max_difference(_part(steps.obs, 1, None), _part(out.obs, 0, -1), later),
        "the next first": max_difference(steps.first[1:], out.first[:-1], later),
    }
    problems = [f"{name} differs by {x:.2g}" for name, x in stored.items() if not x <= 1e-5]
    return none_of(
        problems + _flags(steps),
        "each step leads to the next stored row, and episode flags agree",
        "The stored rows are not the steps that were made: the environment's step must depend on its state, action and "
        "key alone, and terminated and truncated must be returned by the step that ends the episode.",
    )


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Euclidean distances [N, M] between all rows of [N, F] and [M, F]."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    distances: np.ndarray = np.sqrt(np.maximum(squares, 0.0))
    return distances


def _used_obs(steps: Any) -> np.ndarray:
    """Mask [T, B] of the observations that are used: of valid rows, and final ones, whose value is bootstrapped."""
    used: np.ndarray = np.array(steps.valid)
    used[1:] |= np.asarray(steps.ended)[:-1]
    return used


def _part(tree: Any, begin: int, end: int | None) -> Any:
    return jax.tree.map(lambda x: x[begin:end], tree)


def _flags(steps: Any) -> list[str]:
    """Messages about inconsistent episode flags."""
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
    """Concatenate all leaves into vectors, [..., F]; the first `axes` axes stay."""
    return np.concatenate([x.reshape(*x.shape[:axes], -1) for _, x in named_leaves(tree)], axis=-1)
