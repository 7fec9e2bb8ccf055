"""Sampling with exploration noise held for several steps: gSDE, whose equations are in distributions/gsde.py.

The noise matrix of a stream is in its carry while rollouts are collected. Rollouts do not store it: the density of an
action does not depend on it, so learning reads the memory of networks alone.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import where_rows
from ppax.distributions.gsde import standard_noise
from ppax.types import Acting, Decision, ForwardPass, Key, Noise, PyTree


def remembered(carry: PyTree) -> PyTree:
    """Return the memory of the networks in a carry of any agent, without the states of acting."""
    return jax.tree.map(
        lambda x: x.memory if isinstance(x, Acting) else x, carry, is_leaf=lambda x: isinstance(x, Acting)
    )


def with_memory(carry: PyTree, memory: PyTree) -> PyTree:
    """Return `carry` with the next memory; all else stays."""
    return carry._replace(memory=memory) if isinstance(carry, Acting) else memory


def sample(policy: ForwardPass, key: Key) -> Decision:
    """Sample an action for every stream: with the noise of its carry, or without one independently; key [] or [B]."""
    carry, distribution = policy.carry, policy.distribution
    keys = jax.random.split(key, policy.value.shape[0]) if key.ndim == 0 else key
    if isinstance(carry, Acting) and isinstance(carry.noise, Noise):
        noise = next_noise(carry.noise, keys)
        carry = carry._replace(noise=noise)
        action = distribution.from_noise(jax.vmap(standard_noise)(policy.noise_basis, noise.matrix))
    else:
        action = jax.vmap(lambda one, key: one.sample(key))(distribution, keys)
    return Decision(carry, action, distribution.env_action(action), distribution.log_prob(action), policy.value)


def next_noise(noise: Noise, keys: Key) -> Noise:
    """Return the noise of a step, with a new matrix where one is due."""
    matrix, age, every = noise
    due = age % every == 0  # [B], mostly all streams at once: they begin together
    # key data, not keys: under vmap the branch becomes a select, which JAX's key-reuse check refuses for keys
    data, impl = jax.random.key_data(keys), jax.random.key_impl(keys)

    def fresh() -> Array:
        keys = jax.random.wrap_key_data(data, impl=impl)
        drawn = jax.vmap(lambda key: jax.random.normal(key, matrix.shape[1:], jnp.float32))(keys)
        renewed: Array = where_rows(due, drawn, matrix)
        return renewed

    matrix = jax.lax.cond(due.any(), fresh, lambda: matrix)
    return noise._replace(matrix=matrix, age=age + 1)
