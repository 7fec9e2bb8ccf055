"""Carries of a policy with and without the states of extensions that act, and samples of its actions."""

from __future__ import annotations

import jax

from ppax.core.types import Acting, Decision, ForwardPass, Key, PyTree


def remembered(carry: PyTree) -> PyTree:
    """Return the memory of the networks in a carry of any agent, without the states of acting."""
    return jax.tree.map(
        lambda x: x.memory if isinstance(x, Acting) else x, carry, is_leaf=lambda x: isinstance(x, Acting)
    )


def with_memory(carry: PyTree, memory: PyTree) -> PyTree:
    """Return `carry` with the next memory; all else stays."""
    return carry._replace(memory=memory) if isinstance(carry, Acting) else memory


def sample(policy: ForwardPass, key: Key) -> PyTree:
    """Sample an action for every stream, [B, ...]; `key` is one key or [B]."""
    keys = jax.random.split(key, policy.value.shape[0]) if key.ndim == 0 else key
    return jax.vmap(lambda distribution, key: distribution.sample(key))(policy.distribution, keys)


def decision_of(policy: ForwardPass, action: PyTree) -> Decision:
    """Return the decision for an action [B, ...] as the policy's distribution samples it."""
    distribution = policy.distribution
    return Decision(policy.carry, action, distribution.env_action(action), distribution.log_prob(action), policy.value)
