"""What the network says: about the current observation of every stream, and about stored sequences."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax import normalize
from ppax.sequences import to_pairs, to_rows
from ppax.types import Network, Params, PyTree


class Policy(NamedTuple):
    """Distribution, value and next memory."""

    carry: PyTree  # [M, ...] after each sequence
    distribution: Any  # [N] rows: M * L steps
    value: Array  # [N]


def look(
    network: Network,
    dtype: jnp.dtype,
    params: Params,
    obs_stats: PyTree,
    carry: PyTree,
    obs: PyTree,
    first: Array,
    action_mask: PyTree | None,
) -> Policy:
    """The network over sequences [M, L, ...], from the memory `carry` [M, ...] before each.

    `obs_stats` are the statistics that normalise observations; None: they stay as they are. The network computes in
    `dtype`, results are float32.
    """
    length = first.shape[1]
    obs, action_mask = to_rows(obs), to_rows(action_mask)
    if obs_stats is not None:
        obs = normalize.normalize_obs(obs_stats, obs)
    params, obs = cast((params, obs), dtype)
    # Rows, not [M, L]: only `remember` needs time, and flat matrix products are a third faster
    features = jax.vmap(network.encode, (None, 0))(params, obs)
    memory = jax.vmap(network.remember, (None, 0, 0, 0))(params, carry, to_pairs(features, length), first)
    outputs = jax.vmap(network.decide, (None, 0, 0))(params, cast(to_rows(memory.features), dtype), action_mask)
    carry, distribution, value = cast((memory.carry, outputs.distribution, outputs.value), jnp.dtype("float32"))
    return Policy(carry, distribution, value[:, 0])


def cast(tree: PyTree, dtype: jnp.dtype) -> PyTree:
    """Floating-point leaves as `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)
