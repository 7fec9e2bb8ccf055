"""Heads: from a network's numbers to a distribution over an action space. One a kind of space; heads.py chooses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.distributions import Beta, Categorical, Factorised, Joint, Normal
from ppax.distributions.boxes import Bounds
from ppax.types import Distribution, PyTree, part, static


class Head(Protocol):
    """From a network's numbers to a distribution."""

    @property
    def size(self) -> int:
        """Numbers it takes from the network."""

    @property
    def log_std_size(self) -> int:
        """Free parameters beside them: log standard deviations that do not depend on the state."""

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Distribution:
        """Distribution from `outputs` [size] and `log_std` [log_std_size]; masks as in masks.py."""


@part
class CategoricalHead:
    """One number for each action of a Discrete space."""

    size: int = static()
    start: int = static(default=0)
    log_std_size: int = static(default=0)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: Array | None) -> Categorical:
        """Distribution from `outputs` [size]."""
        return Categorical.masked(outputs, action_mask, self.start)


@part
class IndependentHead:
    """One number for each action of each component of a MultiDiscrete or MultiBinary space, which may be ragged."""

    counts: tuple[int, ...] = static()  # actions of each component
    start: tuple[int, ...] = static()
    shape: tuple[int, ...] = static()
    log_std_size: int = static(default=0)

    @property
    def size(self) -> int:
        """Numbers it takes from the network."""
        return sum(self.counts)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: Array | None) -> Factorised:
        """Distribution from `outputs` [size]."""
        ragged = min(self.counts) < max(self.counts)
        if action_mask is None and ragged:
            action_mask = jnp.ones(outputs.shape, bool)
        mask = None if action_mask is None else self._rows(action_mask)
        return Factorised(Categorical.masked(self._rows(outputs), mask), self.start, self.shape)

    def _rows(self, flat: Array) -> Array:
        """[size] as [k, n], a row a component; short ones end in zeros, which in a mask say: not allowed."""
        k, n = len(self.counts), max(self.counts)
        if min(self.counts) == n:
            return flat.reshape(*flat.shape[:-1], k, n)
        # slices and not a gather, whose gradient is a scatter: slow on every device
        ends = np.cumsum(self.counts)
        pieces = [flat[..., end - count : end] for end, count in zip(ends, self.counts, strict=True)]
        leading = [(0, 0)] * (flat.ndim - 1)
        return jnp.stack([jnp.pad(piece, [*leading, (0, n - piece.shape[-1])]) for piece in pieces], axis=-2)


@part
class NormalHead:
    """A mean for each element of a Box, and a log standard deviation: a free one, or a softplus of the network's."""

    bounds: Bounds = static()
    family: Callable[..., Distribution] = static(default=Normal)  # what is made of them
    extra: tuple[float, ...] = static(default=())  # and of these
    state_std: bool = static(default=False)
    std_init: float = static(default=1.0)  # where the network says 0
    std_min: float | None = static(default=None)
    std_max: float | None = static(default=None)

    @property
    def size(self) -> int:
        """Numbers it takes from the network."""
        return len(self.bounds.low) * (2 if self.state_std else 1)

    @property
    def log_std_size(self) -> int:
        """Free parameters beside the network's outputs."""
        return 0 if self.state_std else len(self.bounds.low)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Distribution:
        """Distribution from `outputs` [size] and `log_std` [log_std_size]."""
        dims = len(self.bounds.low)
        if self.state_std:
            # softplus(shift) = std_init
            shift = self.std_init + math.log(-math.expm1(-self.std_init))
            log_std = log_softplus(outputs[..., dims:] + shift)
        assert log_std is not None
        if not (self.std_min is None and self.std_max is None):
            low, high = (x if x is None else float(np.log(x)) for x in (self.std_min, self.std_max))
            log_std = hold(log_std, low, high)
        return self.family(outputs[..., :dims], log_std, *self.bounds, *self.extra)


@part
class BetaHead:
    """Two numbers for each element of a bounded Box: softplus + 1 of them are the parameters."""

    bounds: Bounds = static()
    log_std_size: int = static(default=0)

    @property
    def size(self) -> int:
        """Numbers it takes from the network."""
        return 2 * len(self.bounds.low)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Beta:
        """Distribution from `outputs` [size]."""
        dims = len(self.bounds.low)
        above = 1.0 + jax.nn.softplus(outputs)
        return Beta(above[..., :dims], above[..., dims:], *self.bounds)


@part
class JointHead:
    """Heads side by side, for a Dict space (which has names) or a Tuple."""

    heads: tuple[Head, ...] = static()
    names: tuple[str, ...] | None = static(default=None)

    @property
    def size(self) -> int:
        """Numbers it takes from the network."""
        return sum(head.size for head in self.heads)

    @property
    def log_std_size(self) -> int:
        """Free parameters beside the network's outputs."""
        return sum(head.log_std_size for head in self.heads)

    def __call__(self, outputs: Array, log_std: Array | None, action_mask: PyTree | None) -> Joint:
        """Distribution from `outputs` [size] and `log_std` [log_std_size]; a mask may lack components."""
        components, at, log_std_at = [], 0, 0
        for i, head in enumerate(self.heads):
            own = None if log_std is None else log_std[..., log_std_at : log_std_at + head.log_std_size]
            mask = action_mask if action_mask is None or self.names is None else action_mask.get(self.names[i])
            mask = action_mask[i] if action_mask is not None and self.names is None else mask
            components.append(head(outputs[..., at : at + head.size], own, mask))
            at, log_std_at = at + head.size, log_std_at + head.log_std_size
        return Joint(tuple(components) if self.names is None else dict(zip(self.names, components, strict=True)))


def log_softplus(x: Array) -> Array:
    """log(log(1 + e^x)); for small x it is x, and stays so where e^x is 0."""
    return jnp.where(x < -15.0, x, jnp.log(jax.nn.softplus(jnp.maximum(x, -15.0))))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def hold(x: Array, low: float | None, high: float | None) -> Array:
    """`x` clipped; beyond a bound the gradient passes only if descending it leads back, so that none is stuck there."""
    return jnp.clip(x, low, high)


def _hold_forward(x: Array, low: float | None, high: float | None) -> tuple[Array, Array]:
    return jnp.clip(x, low, high), x


def _hold_backward(low: float | None, high: float | None, x: Array, gradient: Array) -> tuple[Array]:
    outwards = jnp.zeros(x.shape, bool)
    if low is not None:
        outwards |= (x < low) & (gradient > 0.0)
    if high is not None:
        outwards |= (x > high) & (gradient < 0.0)
    return (jnp.where(outwards, 0.0, gradient),)


hold.defvjp(_hold_forward, _hold_backward)
