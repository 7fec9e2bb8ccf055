"""Checks of what was seen: numbers, spaces, and that every row stands where it belongs."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from ppax.arrays.sequences import to_rows
from ppax.checks.report import Finding, none_of, skip
from ppax.checks.world import CheckContext, distance, numbers, quick, taken_again
from ppax.collection import stream_keys

ROWS = 64  # that a space is asked about one by one
JUMP = 2.0  # a final observation that is a first one is further from the one before than this many ordinary steps
MOST = 0.75  # of the final observations
REACH = 2.0
RESETS = 256


def check_finite(world: CheckContext) -> Finding:
    """No NaN or infinity in what the environment gives."""
    steps = world.rollout.steps
    problems = []
    for name, tree in (("obs", steps.obs), ("reward", steps.reward)):
        for path, x in numbers(tree):
            bad = ~np.isfinite(x.reshape(*x.shape[:2], -1)).all(axis=-1) & (_seen(steps) if name == "obs" else True)
            if bad.any():
                t, stream = np.argwhere(bad)[0]
                problems.append(f"{name}{path} is not finite in {bad.sum()} rows, first at step {t} of stream {stream}")
    return none_of(
        problems,
        f"all of {steps.valid.size:,} observations and rewards are",
        "One NaN reaches every weight: look for a division by zero, a root or logarithm of a negative number, "
        "or an unstable integration in the environment.",
    )


def check_inside(world: CheckContext) -> Finding:
    """Observations lie in the space that is declared, and so do the actions that the environment receives."""
    env, steps = world.env, world.rollout.steps
    action = to_rows(taken_again(world).env_action)
    problems = [
        *_outside("obs", env.observation_space, to_rows(steps.obs), _seen(steps).reshape(-1)),
        *_outside("action", env.action_space, action, np.asarray(steps.valid).reshape(-1)),
    ]
    return none_of(
        problems,
        "observations and the environment's actions are inside their spaces",
        "Declare the bounds that hold (infinite ones are allowed); for actions, the distribution's env_action "
        "must put every sample into the space.",
    )


def check_final(world: CheckContext) -> Finding:
    """The observation after an episode's last step is that episode's own: the environment does not reset itself."""
    steps = world.rollout.steps
    begin = quick(jax.vmap(world.env.env.reset))(jax.random.split(jax.random.key(0), RESETS))
    starts = _features(begin.obs, 1 if world.env.env.num_agents is None else 2).astype(np.float64)
    starts = starts.reshape(-1, starts.shape[-1])
    starts = starts[:: max(1, len(starts) // RESETS)]  # of many agents not all
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

    def like_a_start(x: np.ndarray) -> np.ndarray:  # as near to some start as starts are to each other
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
        "The environment resets itself inside step, so the last observation of an episode is lost, and with it the "
        "value beyond a time limit. Return the true final observation; ppax resets.",
    )


def check_alignment(world: CheckContext) -> Finding:
    """Stepping again with the stored actions leads from each stored row to the next one."""
    steps, env = world.rollout.steps, world.env
    keys = stream_keys(jax.random.clone(world.key), steps.valid.shape[0], env)[:, :, 0]
    shape, actions = steps.valid.shape, taken_again(world).env_action

    def play(state: Any, actions: Any, keys: Any) -> Any:
        def step(state: Any, now: Any) -> Any:
            out = env.step(state, *now)
            return out.state, out._replace(state=())

        return jax.lax.scan(step, state, (actions, keys))[1]

    out = quick(play)(world.actor.env_state, actions, keys)
    everywhere, later = np.ones(shape, bool), np.ones(shape, bool)[1:]
    stored = {
        "reward": distance(steps.reward, out.reward, everywhere),
        "terminated": distance(steps.terminated, out.terminated, everywhere),
        "truncated": distance(steps.truncated, out.truncated, everywhere),
        "the next obs": distance(_part(steps.obs, 1, None), _part(out.obs, 0, -1), later),
        "the next first": distance(steps.first[1:], out.first[:-1], later),
    }
    problems = [f"{name} differs by {x:.2g}" for name, x in stored.items() if not x <= 1e-5]
    return none_of(
        problems + _flags(steps),
        "each step leads to the next stored row, and flags of episodes agree",
        "What is learned would be about other steps than those taken: the environment's step must depend on its state, "
        "action and key alone, and terminated and truncated must belong to the step that they end.",
    )


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Between all rows of [N, F] and [M, F], [N, M]."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1) - 2.0 * a @ b.T
    distances: np.ndarray = np.sqrt(np.maximum(squares, 0.0))
    return distances


def _seen(steps: Any) -> np.ndarray:
    """Where the observation is looked at, [T, B]: final ones do not count as rows, but lead to a value."""
    seen: np.ndarray = np.array(steps.valid)
    seen[1:] |= np.asarray(steps.ended)[:-1]
    return seen


def _part(tree: Any, begin: int, end: int | None) -> Any:
    return jax.tree.map(lambda x: x[begin:end], tree)


def _flags(steps: Any) -> list[str]:
    """What is wrong about the order of flags."""
    valid, ended, first = (np.asarray(x) for x in (steps.valid, steps.ended, steps.first))
    wrong = {
        "a step after an end still counts": valid[1:] & ended[:-1],
        "a row that does not count ends an episode": ended & ~valid,
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
    strangers = [at for at in rows if not space.contains(_row(tree, at))]
    if not strangers:
        return []
    return [f"{name} = {_row(tree, strangers[0])} is outside {space}, in {len(strangers)} of {len(rows)} rows"]


def _row(tree: Any, at: int) -> Any:
    return jax.tree.map(lambda x: np.asarray(np.asarray(x)[at]), tree)


def _features(tree: Any, axes: int) -> np.ndarray:
    """All leaves as vectors, [..., F]."""
    return np.concatenate([x.reshape(*x.shape[:axes], -1) for _, x in numbers(tree)], axis=-1)
