"""Rows of batches of streams: with groups of agents, each group's arrays [E * A_g, ...] have rows of their own."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from ppax.core.types import PyTree
from ppax.envs import HostEnv
from ppax.envs.hosting.arrays import group_rows


def rows_like(env: HostEnv, tree: PyTree, rows: slice) -> PyTree:
    """Return the rows of the streams `rows` in every array of `tree`; with groups it is a dict by group."""
    if not env.sizes or tree is None:
        return jax.tree.map(lambda _: rows, tree)
    own = group_rows(env.sizes, rows)
    return {name: jax.tree.map(lambda _, name=name: own[name], inner) for name, inner in tree.items()}


def streams_of(env: HostEnv, tree: PyTree, rows: slice) -> PyTree:
    """Return a tree [B, ...] of the streams `rows` alone."""
    return jax.tree.map(lambda x, own: x[own], tree, rows_like(env, tree, rows))


def streams_like(env: HostEnv, tree: PyTree) -> list[Any]:
    """Return the streams to which the rows of each array of `tree` belong, as indices along an axis [B]."""
    if not env.sizes or tree is None:
        return [slice(None) for _ in jax.tree.leaves(tree)]
    own, begin = {}, 0
    for name, size in env.sizes:
        own[name] = np.arange(env.num_streams).reshape(-1, env.num_agents)[:, begin : begin + size].reshape(-1)
        begin += size
    return [streams for name in sorted(tree) for streams in [own[name]] * len(jax.tree.leaves(tree[name]))]


def row_of_stream(streams: Any, stream: int) -> int | None:
    """Return the row of one stream among `streams`, one result of `streams_like`; None: it has none there."""
    if isinstance(streams, slice):
        return stream
    found = np.flatnonzero(streams == stream)
    return int(found[0]) if len(found) else None


def stream_name(env: HostEnv, stream: int) -> str:
    """Return the environment of a stream, with several agents the agent too, for error messages."""
    name, agent = f"environment {stream // env.num_agents}", stream % env.num_agents
    if env.sizes:
        return f"{name}, agent {env.host.spec.names[agent]!r}"
    return name if env.num_agents == 1 else f"{name}, agent {agent}"


def no_carry(env: HostEnv) -> PyTree:
    """Return the stored carry of a rollout without memory."""
    return {name: () for name, _ in env.sizes} or ()
