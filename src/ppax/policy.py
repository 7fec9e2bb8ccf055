"""What the network says: about the current observation of every stream, and about stored sequences."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax import normalize
from ppax.sequences import to_pairs, to_rows
from ppax.types import LearnerState, Network, PyTree
from ppax.values import Critic


class Policy(NamedTuple):
    """Distribution, value and next memory."""

    carry: PyTree  # [M, ...] after each sequence
    distribution: Any  # [N] rows: M * L steps
    numbers: Array  # [N, num_values] that the network's critic ends in
    value: Array  # [N] V


def look(
    network: Network,
    critic: Critic,
    dtype: jnp.dtype,
    learner: LearnerState,
    carry: PyTree,
    obs: PyTree,
    first: Array,
    action_mask: PyTree | None,
) -> Policy:
    """The network over sequences [M, L, ...], from the memory `carry` [M, ...] before each.

    Of `learner`, parameters and statistics are read. The network computes in `dtype`, results are float32.
    """
    length = first.shape[1]
    obs, action_mask = to_rows(obs), to_rows(action_mask)
    if learner.obs_stats is not None:
        obs = normalize.normalize_obs(learner.obs_stats, obs)
    params, obs = cast((learner.params, obs), dtype)
    # Rows, not [M, L]: only `remember` needs time, and flat matrix products are a third faster
    features = jax.vmap(network.encode, (None, 0))(params, obs)
    memory = jax.vmap(network.remember, (None, 0, 0, 0))(params, carry, to_pairs(features, length), first)
    outputs = jax.vmap(network.decide, (None, 0, 0))(params, cast(to_rows(memory.features), dtype), action_mask)
    carry, distribution, numbers = cast((memory.carry, outputs.distribution, outputs.value), jnp.dtype("float32"))
    value = jax.vmap(critic.value, (None, 0))(learner.critic, numbers)
    return Policy(carry, distribution, numbers, value)


def cast(tree: PyTree, dtype: jnp.dtype) -> PyTree:
    """Floating-point leaves as `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)
