"""Rows of batches of streams, one agent in one environment each, in the arrays of a rollout.

With groups of agents, each group's arrays [E * A_g, ...] have rows of their own.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ppax.core.types import PyTree
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
    """Return for every array of `tree` the streams to which its rows belong, as indices along an axis [B].

    A stream is one agent in one environment. Only with groups of agents does an array have the rows of some streams
    alone.
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
    """Return the carry that a rollout stores for a policy without memory: (), or () for each group of agents."""
    return {name: () for name, _ in env.sizes} or ()
