"""Masks of allowed actions: True = allowed. A mask is a tree like the action.

Discrete: [n]. MultiDiscrete: [sum of nvec], one component after the other. MultiBinary of k bits: [2 k], for each bit
whether it may be 0 and whether it may be 1. Box: [1], always True, because there is nothing to forbid. Dict and Tuple:
a dict and a tuple of these.

Where the mask of a component allows nothing, that component takes its first action with certainty and adds nothing to
log-probability, entropy and KL. Where nothing at all can be chosen, the step weighs nothing in the policy's learning:
loss, entropy, KL, ratios and the standardisation of advantages. The critic learns V of it, which is bootstrapped from.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jax import Array

from ppax.types import ConfigError, PyTree, Transition


def size_of(space: spaces.Space) -> int | None:
    """Entries of the mask for one action of `space`; None for a space of several, or of an unknown kind."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum())
    if isinstance(space, spaces.MultiBinary):
        return 2 * int(space.sample().size)
    return 1 if isinstance(space, spaces.Box) else None


def complete(space: spaces.Space, mask: PyTree | None, num_streams: int, name: str = "action_mask") -> PyTree | None:
    """`mask` [B, ...] as an environment gives it, in the layout above and boolean; None if it gives none.

    A component may be left out or None: all of it is allowed. The masks of a MultiDiscrete may come as a tuple, one for
    each component. ConfigError where a shape does not fit.
    """
    if mask is None:
        return None
    if isinstance(space, spaces.Dict):
        if unknown := sorted(set(mask) - set(space.spaces)):
            raise ConfigError(f"{name}[{unknown[0]!r}]: the action has {', '.join(map(repr, space.spaces))} only")
        return {k: _given(s, mask.get(k), num_streams, f"{name}[{k!r}]") for k, s in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        if len(mask) != len(space.spaces):
            raise ConfigError(f"{name} has {len(mask)} entries, the action {len(space.spaces)}; None allows all")
        parts = enumerate(zip(space.spaces, mask, strict=True))
        return tuple(_given(s, m, num_streams, f"{name}[{i}]") for i, (s, m) in parts)
    size = size_of(space)
    if size is None:
        return mask
    flat = jnp.concatenate([jnp.asarray(x, bool) for x in jax.tree.leaves(mask)], axis=-1)
    if flat.shape != (num_streams, size):
        raise ConfigError(f"{name} has shape {flat.shape[1:]} in one stream, {space} takes ({size},)")
    return flat


def _given(space: spaces.Space, mask: PyTree | None, num_streams: int, name: str) -> PyTree:
    """`complete`, and everything allowed where there is no mask."""
    if mask is not None:
        return complete(space, mask, num_streams, name)
    if isinstance(space, spaces.Dict):
        return {k: _given(s, None, num_streams, name) for k, s in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_given(s, None, num_streams, name) for s in space.spaces)
    size = size_of(space)
    return None if size is None else jnp.ones((num_streams, size), bool)


def allows_something(mask: PyTree) -> Array:
    """Whether anything can be chosen, [...]; leaves of `mask` are [..., n]."""
    return jnp.stack([leaf.any(axis=-1) for leaf in jax.tree.leaves(mask)]).any(axis=0)


def acting(steps: Transition) -> Array | None:
    """Valid rows in which an action could be chosen, [...]: those that the policy learns from; None: all valid rows."""
    return None if steps.action_mask is None else steps.valid & allows_something(steps.action_mask)
