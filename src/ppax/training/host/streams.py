"""Rows of a rollout by stream (one agent in one environment), and rollouts of agents that act in turns."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from ppax.core.types import PyTree, Requirements
from ppax.envs import HostEnv
from ppax.envs.hosting.arrays import group_rows


def rows_like(env: HostEnv, tree: PyTree, rows: slice) -> PyTree:
    """Return slice objects that select the streams `rows` from the arrays of `tree`, in the structure of `tree`.

    A stream is one agent in one environment. With agent groups, `tree` is a dict by group; each group has its own
    slice.
    """
    if not env.sizes or tree is None:
        return jax.tree.map(lambda _: rows, tree)
    own = group_rows(env.sizes, rows)
    return {name: jax.tree.map(lambda _, name=name: own[name], inner) for name, inner in tree.items()}


def streams_of(env: HostEnv, tree: PyTree, rows: slice) -> PyTree:
    """Return the part of `tree` [B, ...] that belongs to the streams `rows`, one agent in one environment each."""
    return jax.tree.map(lambda x, own: x[own], tree, rows_like(env, tree, rows))


def streams_like(env: HostEnv, tree: PyTree) -> list[Any]:
    """Return a list with, for each array in `tree`, the indices of the streams that its rows belong to.

    A stream is one agent in one environment. Without groups of agents, the rows of every array are those of all
    streams, and the indices are `slice(None)`. With groups, an array has rows of its group's streams alone.
    """
    if not env.sizes or tree is None:
        return [slice(None) for _ in jax.tree.leaves(tree)]
    own, begin = {}, 0
    for name, size in env.sizes:
        own[name] = np.arange(env.num_streams).reshape(-1, env.num_agents)[:, begin : begin + size].reshape(-1)
        begin += size
    return [streams for name in sorted(tree) for streams in [own[name]] * len(jax.tree.leaves(tree[name]))]


def row_of_stream(streams: Any, stream: int) -> int | None:
    """Return the row of one stream in an array; None if the array has no row of it.

    `streams` are the array's streams as `streams_like` returns them: indices, or a slice of all.
    """
    if isinstance(streams, slice):
        return stream
    found = np.flatnonzero(streams == stream)
    return int(found[0]) if len(found) else None


def stream_name(env: HostEnv, stream: int) -> str:
    """Return the name of a stream for error messages: its environment and, with several agents, its agent."""
    name, agent = f"environment {stream // env.num_agents}", stream % env.num_agents
    if env.sizes:
        return f"{name}, agent {env.host.spec.names[agent]!r}"
    return name if env.num_agents == 1 else f"{name}, agent {agent}"


def no_carry(env: HostEnv) -> PyTree:
    """Return the carry (recurrent state) in rollouts of a policy without memory: (), or () for each group of agents."""
    return {name: () for name, _ in env.sizes} or ()


# Rollouts of turn-based environments: the steps in which a stream waits for others are taken out of its rollout.
#
# An agent's decision lasts until its next one: rewards that it receives while others act are added to it, and so is an
# end of its episode. So the rows of each stream are moved together: those in which it acts come first, each with the
# rewards and the end of the steps up to its next one, and all estimators see ordinary sequences. After a truncated
# episode its last observation follows, from which V is bootstrapped, as a row that is not valid. So does, after a
# stream's other rows, its last decision, which others have not answered yet: V is bootstrapped from it, and it is not
# learned from.


class Settled(NamedTuple):
    """Rollout of agents that act in turns, with one row for each decision of a stream instead of one for each step.

    A stream is one agent in one environment. A row has all rewards and the end of the episode up to the stream's next
    decision.
    """

    order: np.ndarray  # [T, B] step of the rollout that each row shows; T: the observation after the last step
    valid: np.ndarray  # [T, B] rows that are learned from
    reward: np.ndarray  # [T, B] sum up to the stream's next decision
    terminated: np.ndarray  # [T, B]
    # [T, B] also of a stream's last valid row, if its episode goes on: the row after it is bootstrapped from
    truncated: np.ndarray
    until: np.ndarray  # [T, B] last step whose reward a valid row has


def settle(reward: np.ndarray, terminated: np.ndarray, truncated: np.ndarray, valid: np.ndarray) -> Settled:
    """Return each stream's decisions as the rows of a rollout [T, B] in which streams act in turns.

    A stream is one agent in one environment, and acts in the steps where `valid`. Each of its decisions gets the
    rewards and the end of the episode up to its next one.
    """
    num_steps, streams = valid.shape
    shape = num_steps + 1, streams
    flags = [np.zeros(shape, bool) for _ in range(3)]
    order = np.full(shape, num_steps)
    rows = Settled(order, flags[0], np.zeros(shape, np.float32), flags[1], flags[2], np.zeros(shape, np.int32))
    count, running = (
        np.zeros(streams, int),
        np.full(streams, -1),
    )  # rows so far; row of the decision that goes on, or -1
    for t in range(num_steps):
        (acts,) = np.nonzero(valid[t])
        order[count[acts], acts], rows.valid[count[acts], acts], running[acts] = t, True, count[acts]
        count[acts] += 1
        (goes_on,) = np.nonzero(running >= 0)
        rows.reward[running[goes_on], goes_on] += reward[t, goes_on]
        rows.until[running[goes_on], goes_on] = t
        (over,) = np.nonzero((terminated[t] | truncated[t]) & (running >= 0))
        rows.terminated[running[over], over] = terminated[t, over]
        rows.truncated[running[over], over] = truncated[t, over] & ~terminated[t, over]
        running[over] = -1
        cut = over[truncated[t, over] & ~terminated[t, over]]
        order[count[cut], cut] = t + 1  # its last observation
        count[cut] += 1
    (open_,) = np.nonzero(running >= 0)
    rows.valid[running[open_], open_], rows.reward[running[open_], open_] = False, 0.0
    before = running[open_] - 1
    cut = open_[(before >= 0) & rows.valid[before, open_]]
    rows.truncated[running[cut] - 1, cut] |= ~rows.terminated[running[cut] - 1, cut]
    return Settled(*(x[:num_steps] for x in rows))


def rows_in_order(env: HostEnv, tree: PyTree, order: np.ndarray) -> PyTree:
    """Return `tree`, [T, B, ...] or a dict by group, with each stream's rows taken from the steps `order` [R, B].

    A stream is one agent in one environment. Row r of stream b in the result is its row `order[r, b]` in `tree`; an
    index beyond the last row stands for the last row.
    """
    each = iter(streams_like(env, tree))

    def one(x: np.ndarray) -> np.ndarray:
        own = order[:, next(each)]
        return x[np.minimum(own, len(x) - 1), np.arange(x.shape[1])]

    return jax.tree.map(one, tree)


def hold_carry(env: HostEnv | Requirements, acted: np.ndarray, before: PyTree, after: PyTree) -> PyTree:
    """Return the carry (recurrent state) of streams after a step, [e, ...]: `after` if they `acted` [e], else `before`.

    A stream is one agent in one environment; `before` and `after` are its carries before and after the step.
    """

    def one(own: np.ndarray, old: Any, new: Any) -> np.ndarray:
        return np.where(own.reshape(-1, *[1] * (np.ndim(new) - 1)), new, old)

    if not env.sizes:
        return jax.tree.map(lambda old, new: one(acted, old, new), before, after)
    by_agent, begin, kept = acted.reshape(-1, sum(size for _, size in env.sizes)), 0, {}
    for name, size in env.sizes:
        own = by_agent[:, begin : begin + size].reshape(-1)
        kept[name] = jax.tree.map(lambda old, new, own=own: one(own, old, new), before[name], after[name])
        begin += size
    return kept
