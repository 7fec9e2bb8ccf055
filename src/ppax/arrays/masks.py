"""Action masks: trees of booleans like the action, True where an action is allowed.

Discrete: [n]. MultiDiscrete: [sum of nvec], components concatenated. MultiBinary of k bits: [2 k], for each bit whether
0 and whether 1 is allowed. Box: [1], always True. Dict and Tuple: a dict and a tuple of these.

A component whose mask allows no action takes its first action with probability 1 and contributes 0 to log-probability,
entropy and KL. A step without any allowed action has weight 0 for the policy: in loss, entropy, KL, ratios and the
normalisation of advantages. The critic still learns the value of that step, because earlier steps bootstrap from it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import Array

from ppax.core.types import ConfigError, PyTree, Transition


def size_of(space: spaces.Space) -> int | None:
    """Return the number of entries in the mask of one action of `space`; None for Dict, Tuple and unknown spaces."""
    choices = _choices(space)
    return None if choices is None else sum(choices)


def _choices(space: spaces.Space) -> tuple[int, ...] | None:
    """Return the number of mask entries of each component of an action; None for Dict, Tuple and unknown spaces."""
    if isinstance(space, spaces.Discrete):
        return (int(space.n),)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(map(int, space.nvec.reshape(-1)))
    if isinstance(space, spaces.MultiBinary):
        return (2,) * math.prod(space.shape)
    return (1,) if isinstance(space, spaces.Box) else None


def complete(space: spaces.Space, mask: PyTree | None, num_streams: int, name: str = "action_mask") -> PyTree | None:
    """Return an environment's action mask [B, ...] as a boolean mask in the layout of this module; None for no mask.

    `num_streams` is B. An entry of a dict or tuple that is None, or missing from a dict, allows all actions. The mask
    of a MultiDiscrete or MultiBinary may also be a tuple with one mask per component, or padded, [B, components,
    largest number of choices]: entries beyond a component's choices are not read. Raises ConfigError for a wrong shape;
    its message calls the mask `name`.
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
    choices = _choices(space)
    if choices is None:
        return mask
    own, leaves = np.arange(max(choices)) < np.array(choices)[:, None], jax.tree.leaves(mask)
    numpy: Any = np if all(isinstance(x, np.ndarray) for x in leaves) else jnp
    masks = [numpy.asarray(x, bool) for x in leaves]
    given = tuple(x.shape for x in masks)
    if given == ((num_streams, sum(choices)),):
        return masks[0]
    if given == tuple((num_streams, n) for n in choices):
        return numpy.concatenate(masks, axis=-1)
    if given in (((num_streams, *own.shape),), ((num_streams, *(space.shape or ()), max(choices)),)):
        return masks[0].reshape(num_streams, *own.shape)[:, own]
    shapes, forms = ", ".join(str(shape[1:]) for shape in given), f"({sum(choices)},)"
    if len(choices) > 1:
        forms += f", a tuple of masks {list(choices)}, or {own.shape}"
    raise ConfigError(f"{name} has shape {shapes} in one stream, {space} needs {forms}")


def _given(space: spaces.Space, mask: PyTree | None, num_streams: int, name: str) -> PyTree:
    """Return the mask of one entry of a Dict or Tuple action as `complete` does; all True if `mask` is None.

    `space` is the entry's space, and the arguments are those of `complete`.
    """
    if mask is not None:
        return complete(space, mask, num_streams, name)
    if isinstance(space, spaces.Dict):
        return {k: _given(s, None, num_streams, name) for k, s in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(_given(s, None, num_streams, name) for s in space.spaces)
    size = size_of(space)
    return None if size is None else jnp.ones((num_streams, size), bool)


def allows_something(mask: PyTree) -> Array:
    """Return an array [...], True where a mask allows at least one action; leaves of `mask` are [..., n]."""
    return jnp.stack([leaf.any(axis=-1) for leaf in jax.tree.leaves(mask)]).any(axis=0)


def acting(steps: Transition) -> Array | None:
    """Return a mask [...] of the rows from which the policy learns: valid rows in which some action is allowed.

    None if `steps` have no action masks: the policy then learns from all valid rows (all but autoreset steps).
    """
    return None if steps.action_mask is None else steps.valid & allows_something(steps.action_mask)
