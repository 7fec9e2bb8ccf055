"""V as the mean of a distribution over fixed bins, learned by classification: gradients do not grow with V.

Two-hot targets: Bellemare et al. 2017, https://arxiv.org/abs/1707.06887, and Schrittwieser et al. 2020, appendix F,
https://arxiv.org/abs/1911.08265. Symlog: Hafner et al. 2023, https://arxiv.org/abs/2301.04104, with bins that are
spaced by symlog, but two-hot targets and the mean taken in units of V, so that V is not biased where returns vary.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import masked_mean
from ppax.critics.base import Adapted, Rescale
from ppax.types import ConfigError, Metrics, PyTree, Scalar, number, part, static


@part
class TwoHot:
    """-sum_i t_i log p_i, where the target t is two-hot: two neighbouring bins whose mean is R; V = sum_i p_i bin_i."""

    low: Scalar = number("the first bin: V is never lower", default=-1e6)
    high: Scalar = number("the last bin: V is never higher", default=1e6)
    num_bins: int = static("bins from low to high", default=101, low=2)
    spacing: str = static(
        "of the bins: symlog, finer near 0, in proportion to 1 + |V|; or linear",
        default="symlog",
        choices=("symlog", "linear"),
    )

    @property
    def num_values(self) -> int:
        """One logit for each bin."""
        return self.num_bins

    def init(self) -> Adapted:
        """Nothing is kept. At first V is the same everywhere: random logits would scatter it over all the range."""
        if isinstance(self.low, int | float) and isinstance(self.high, int | float) and self.low >= self.high:
            raise ConfigError(f"critic: low = {self.low:g} must be below high = {self.high:g}")
        # p_i in proportion to 1 / (1 + |bin|), so that V begins near 0 wherever low and high are
        return Adapted((), Rescale(0.0, -jnp.log1p(jnp.abs(self.bins()))))

    def value(self, state: PyTree, numbers: Array) -> Array:
        """The distribution's mean."""
        return (jax.nn.softmax(numbers) * self.bins()).sum()  # no matrix product, which accelerators round

    def error(self, state: PyTree, numbers: Array, target: Array, old_value: Array) -> Array:
        """Cross-entropy of one row."""
        return -(self.encode(target) * jax.nn.log_softmax(numbers)).sum()

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """The bins are fixed."""
        return Adapted(state, None)

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """Share of the targets that no distribution over the bins can have for its mean: low and high are too near."""
        outside = (targets < self.low) | (targets > self.high)
        return {"targets_outside": masked_mean(outside.astype(jnp.float32), valid)}

    def bins(self) -> Array:
        """V of every bin, [num_bins], ascending."""
        low, high = jnp.float32(self.low), jnp.float32(self.high)
        if self.spacing == "linear":
            return self._evenly(low, high)
        return symexp(self._evenly(symlog(low), symlog(high)))

    def encode(self, target: Array) -> Array:
        """The two-hot distribution [num_bins] of one target, clipped to the range."""
        bins = self.bins()
        share = jnp.clip((target - bins[:-1]) / (bins[1:] - bins[:-1]), 0.0, 1.0)  # [num_bins - 1] of the upper bin
        one = jnp.ones(1, jnp.float32)
        return jnp.concatenate([one, share]) - jnp.concatenate([share, 0.0 * one])

    def _evenly(self, low: Array, high: Array) -> Array:
        up = jnp.arange(self.num_bins, dtype=jnp.float32)
        return (up[::-1] * low + up * high) / (self.num_bins - 1)  # `linspace` may round 0 to something else


def symlog(x: Array) -> Array:
    """sign(x) log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Array) -> Array:
    """The inverse of `symlog`."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))
