"""Categorical critic: V is the mean of a distribution over fixed bins, learned by cross-entropy.

Gradients do not grow with V.

Two-hot targets: Bellemare et al. 2017, https://arxiv.org/abs/1707.06887, and Schrittwieser et al. 2020, appendix F,
https://arxiv.org/abs/1911.08265. Symlog: Hafner et al. 2023, https://arxiv.org/abs/2301.04104. Here the bins are
spaced by symlog, but two-hot targets and the mean are in units of V, so that V is unbiased where returns vary.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import masked_mean
from ppax.core.protocols import Adapted, Rescale
from ppax.core.types import ConfigError, Metrics, PyTree, Scalar, number, part, static


@part
class TwoHot:
    """Two-hot critic: cross-entropy -sum_i t_i log p_i; V = sum_i p_i bin_i.

    The target t is two-hot: it has weight on two neighbouring bins, and its mean is R. Bellemare et al. 2017,
    https://arxiv.org/abs/1707.06887; Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265
    """

    low: Scalar = number("lowest bin: lower bound of V", default=-1e6)
    high: Scalar = number("highest bin: upper bound of V", default=1e6)
    num_bins: int = static("number of bins from low to high", default=101, low=2)
    spacing: str = static(
        "spacing of the bins: symlog (width in proportion to 1 + |V|) or linear (equal width)",
        default="symlog",
        choices=("symlog", "linear"),
    )

    @property
    def num_values(self) -> int:
        """Number of value outputs: one logit per bin."""
        return self.num_bins

    def init(self) -> Adapted:
        """No state; rescale the last layer so that V starts as the same constant for every observation."""
        if isinstance(self.low, int | float) and isinstance(self.high, int | float) and self.low >= self.high:
            raise ConfigError(f"critic: low = {self.low:g} must be below high = {self.high:g}")
        # p_i in proportion to 1 / (1 + |bin|), so that V starts near 0 for any low and high
        return Adapted((), Rescale(0.0, -jnp.log1p(jnp.abs(self.bins()))))

    def value(self, state: PyTree, value_outputs: Array) -> Array:
        """V: mean of the distribution over bins."""
        return (jax.nn.softmax(value_outputs) * self.bins()).sum()  # not a matrix product: accelerators round those

    def error(self, state: PyTree, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Cross-entropy loss of one row."""
        return -(self.encode(target) * jax.nn.log_softmax(value_outputs)).sum()

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """No change: the bins are fixed."""
        return Adapted(state, None)

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """Share of value targets outside [low, high]."""
        outside = (targets < self.low) | (targets > self.high)
        return {"targets_outside": masked_mean(outside.astype(jnp.float32), valid)}

    def bins(self) -> Array:
        """Bin centres in units of V, [num_bins], ascending."""
        low, high = jnp.float32(self.low), jnp.float32(self.high)
        if self.spacing == "linear":
            return self._evenly(low, high)
        return symexp(self._evenly(symlog(low), symlog(high)))

    def encode(self, target: Array) -> Array:
        """Two-hot distribution [num_bins] of one target, clipped to [low, high]."""
        bins = self.bins()
        share = jnp.clip((target - bins[:-1]) / (bins[1:] - bins[:-1]), 0.0, 1.0)  # [num_bins - 1] of the upper bin
        one = jnp.ones(1, jnp.float32)
        return jnp.concatenate([one, share]) - jnp.concatenate([share, 0.0 * one])

    def _evenly(self, low: Array, high: Array) -> Array:
        up = jnp.arange(self.num_bins, dtype=jnp.float32)
        return (up[::-1] * low + up * high) / (self.num_bins - 1)  # `linspace` may round the bin at 0 to another value


def symlog(x: Array) -> Array:
    """Symmetric logarithm: sign(x) log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Array) -> Array:
    """Inverse of `symlog`."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))
