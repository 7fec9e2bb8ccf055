"""Heads: from a network's outputs to an action distribution, one for each kind of space (head_for.py selects it)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.protocols import Distribution
from ppax.core.types import PyTree, part, static
from ppax.distributions import Beta, Categorical, Factorised, Joint, Normal
from ppax.distributions.boxes import Bounds


class Head(Protocol):
    """Head protocol: from a network's outputs to an action distribution."""

    @property
    def size(self) -> int:
        """Number of network outputs it takes."""

    @property
    def log_std_size(self) -> int:
        """Number of state-independent log standard deviations, which are parameters of the network."""

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Distribution:
        """Return the distribution from `outputs` [size] and `log_std` [log_std_size]; masks as in arrays/masks.py."""


@part
class CategoricalHead:
    """Categorical head: one logit for each action of a Discrete space."""

    size: int = static()
    start: int = static(default=0)
    log_std_size: int = static(default=0)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: Array | None) -> Categorical:
        """Return the distribution from `outputs` [size]."""
        return Categorical.masked(outputs, action_mask, self.start)


@part
class IndependentHead:
    """Head of MultiDiscrete and MultiBinary spaces: independent categoricals, whose numbers of actions may differ."""

    counts: tuple[int, ...] = static()  # number of actions of each component
    start: tuple[int, ...] = static()
    shape: tuple[int, ...] = static()
    log_std_size: int = static(default=0)

    @property
    def size(self) -> int:
        """Number of network outputs it takes."""
        return sum(self.counts)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: Array | None) -> Factorised:
        """Return the distribution from `outputs` [size]."""
        ragged = min(self.counts) < max(self.counts)
        if action_mask is None and ragged:
            action_mask = jnp.ones(outputs.shape, bool)
        mask = None if action_mask is None else self._rows(action_mask)
        return Factorised(Categorical.masked(self._rows(outputs), mask), self.start, self.shape)

    def _rows(self, flat: Array) -> Array:
        """Reshape [size] to [k, n], one row for each component; short rows are padded with 0 (False in a mask)."""
        k, n = len(self.counts), max(self.counts)
        if min(self.counts) == n:
            return flat.reshape(*flat.shape[:-1], k, n)
        # slices instead of a gather, whose gradient is a scatter: slow on every device
        ends = np.cumsum(self.counts)
        pieces = [flat[..., end - count : end] for end, count in zip(ends, self.counts, strict=True)]
        leading = [(0, 0)] * (flat.ndim - 1)
        return jnp.stack([jnp.pad(piece, [*leading, (0, n - piece.shape[-1])]) for piece in pieces], axis=-2)


@part
class NormalHead:
    """Head of Box spaces: a mean and a log standard deviation for each element.

    The log standard deviation is a free parameter, or with `state_std` an output of the network through a softplus.
    """

    bounds: Bounds = static()
    family: Callable[..., Distribution] = static(default=Normal)  # constructor: (mean, log_std, *bounds, *extra)
    extra: tuple[float, ...] = static(default=())  # further arguments, such as the ball's radius
    state_std: bool = static(default=False)
    std_init: float = static(default=1.0)  # standard deviation at network output 0, with state_std
    std_min: float | None = static(default=None)
    std_max: float | None = static(default=None)

    @property
    def size(self) -> int:
        """Number of network outputs it takes."""
        return len(self.bounds.low) * (2 if self.state_std else 1)

    @property
    def log_std_size(self) -> int:
        """Number of state-independent log standard deviations."""
        return 0 if self.state_std else len(self.bounds.low)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Distribution:
        """Return the distribution from `outputs` [size] and `log_std` [log_std_size]."""
        dims = len(self.bounds.low)
        if self.state_std:
            # softplus(shift) = std_init
            shift = self.std_init + math.log(-math.expm1(-self.std_init))
            log_std = log_softplus(outputs[..., dims:] + shift)
        assert log_std is not None
        if not (self.std_min is None and self.std_max is None):
            low, high = (x if x is None else float(np.log(x)) for x in (self.std_min, self.std_max))
            log_std = clip_inward(log_std, low, high)
        return self.family(outputs[..., :dims], log_std, *self.bounds, *self.extra)


@part
class BetaHead:
    """Beta head: alpha and beta for each element of a bounded Box, both 1 + softplus(output)."""

    bounds: Bounds = static()
    log_std_size: int = static(default=0)

    @property
    def size(self) -> int:
        """Number of network outputs it takes."""
        return 2 * len(self.bounds.low)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Beta:
        """Return the distribution from `outputs` [size]."""
        dims = len(self.bounds.low)
        parameters = 1.0 + jax.nn.softplus(outputs)
        return Beta(parameters[..., :dims], parameters[..., dims:], *self.bounds)


@part
class JointHead:
    """Head of Dict spaces (with names) and Tuple spaces: one head for each component."""

    heads: tuple[Head, ...] = dataclasses.field(metadata={"doc": ""})
    names: tuple[str, ...] | None = static(default=None)

    @property
    def size(self) -> int:
        """Number of network outputs it takes."""
        return sum(head.size for head in self.heads)

    @property
    def log_std_size(self) -> int:
        """Number of state-independent log standard deviations."""
        return sum(head.log_std_size for head in self.heads)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Joint:
        """Return the distribution from `outputs` [size] and `log_std` [log_std_size].

        The mask of a Dict space may omit components.
        """
        components, at, log_std_at = [], 0, 0
        for i, head in enumerate(self.heads):
            own = None if log_std is None else log_std[..., log_std_at : log_std_at + head.log_std_size]
            mask = action_mask if action_mask is None or self.names is None else action_mask.get(self.names[i])
            mask = action_mask[i] if action_mask is not None and self.names is None else mask
            components.append(head(outputs[..., at : at + head.size], own, mask))
            at, log_std_at = at + head.size, log_std_at + head.log_std_size
        return Joint(tuple(components) if self.names is None else dict(zip(self.names, components, strict=True)))


def log_softplus(x: Array) -> Array:
    """Return log(log(1 + e^x)), stable for very negative x, where it equals x."""
    return jnp.where(x < -15.0, x, jnp.log(jax.nn.softplus(jnp.maximum(x, -15.0))))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def clip_inward(x: Array, low: float | None, high: float | None) -> Array:
    """Return `x` clipped to [low, high], with a gradient that can leave the bounds.

    Beyond a bound the gradient passes where gradient descent moves `x` back inside, and is 0 otherwise.
    """
    return jnp.clip(x, low, high)


def _clip_inward_forward(x: Array, low: float | None, high: float | None) -> tuple[Array, Array]:
    return jnp.clip(x, low, high), x


def _clip_inward_backward(low: float | None, high: float | None, x: Array, gradient: Array) -> tuple[Array]:
    outwards = jnp.zeros(x.shape, bool)
    if low is not None:
        outwards |= (x < low) & (gradient > 0.0)
    if high is not None:
        outwards |= (x > high) & (gradient < 0.0)
    return (jnp.where(outwards, 0.0, gradient),)


clip_inward.defvjp(_clip_inward_forward, _clip_inward_backward)
