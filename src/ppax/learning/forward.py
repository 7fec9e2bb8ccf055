"""Forward pass of the network: current observations of all streams, or stored sequences."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import to_pairs, to_rows
from ppax.learning import normalization
from ppax.learning.exploration import remembered, with_memory
from ppax.protocols import Critic, Network
from ppax.types import ForwardPass, LearnerState, PyTree, Transition


def forward(
    network: Network,
    critic: Critic,
    compute_dtype: str,
    learner: LearnerState,
    carry: PyTree,
    obs: PyTree,
    first: Array,
    action_mask: PyTree | None,
) -> ForwardPass:
    """Run the network over sequences [M, L, ...], each from its initial `carry` [M, ...].

    Reads the parameters and observation statistics of `learner`. Parameters are cast to `compute_dtype`; observations,
    features and results are float32: layers cast the inputs of their products to it (networks/products.py).
    """
    length, dtype = first.shape[1], jnp.dtype(compute_dtype)
    obs, action_mask = to_rows(obs), to_rows(action_mask)
    if learner.obs_stats is not None:
        obs = normalization.normalize_obs(learner.obs_stats, obs)
    params, obs = cast(learner.params, dtype), in_float32(obs)
    # Flat rows: only `remember` needs the time axis, and flat matrix products are a third faster
    features = jax.vmap(network.encode, (None, 0))(params, obs)
    memory = jax.vmap(network.remember, (None, 0, 0, 0))(params, remembered(carry), to_pairs(features, length), first)
    features = in_float32(to_rows(memory.features))
    outputs = jax.vmap(network.decide, (None, 0, 0))(params, features, action_mask)
    new, distribution, value_outputs = in_float32((memory.carry, outputs.distribution, outputs.value))
    carry, value = with_memory(carry, new), jax.vmap(critic.value, (None, 0))(learner.critic, value_outputs)
    return ForwardPass(carry, distribution, value_outputs, value, features, outputs.noise_basis)


def replay(
    network: Network, critic: Critic, compute_dtype: str, learner: LearnerState, steps: Transition
) -> ForwardPass:
    """Run the network over stored sequences [M, L], each from its stored initial carry."""
    carry = jax.tree.map(lambda x: x[:, 0], steps.carry)
    return forward(network, critic, compute_dtype, learner, carry, steps.obs, steps.first, steps.action_mask)


def in_float32(tree: PyTree) -> PyTree:
    """Cast floating-point leaves to float32."""
    return cast(tree, jnp.dtype("float32"))


def cast(tree: PyTree, dtype: jnp.dtype) -> PyTree:
    """Cast floating-point leaves to `dtype`."""
    return jax.tree.map(lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, tree)
