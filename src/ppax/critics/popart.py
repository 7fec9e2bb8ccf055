"""PopArt: the network learns targets of mean 0 and std 1, and its last layer makes up for every change of the two.

van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714. Their mu, sigma, beta are `mean`, `std`, `rate` here. The
statistics move once an update, by all of its targets, and not with every sample; where the paper starts them at a
guess, the first rollout sets them.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import masked_mean
from ppax.critics.base import Adapted, Rescale, clipped_value_loss
from ppax.types import Metrics, Scalar, number, part


class ValueStats(NamedTuple):
    """Moving moments of value targets."""

    weight: Array  # [] how much has been seen: 1 - (1 - rate)^updates
    mean: Array  # []
    var: Array  # [] population variance


@part
class PopArt:
    """0.5 ((V - R) / std)^2: the same for rewards of any scale. V = mean + std * the network's number."""

    rate: Scalar = number("share of each rollout in the targets' mean and std", default=0.1, above=0.0, high=1.0)
    min_std: Scalar = number("the std is never taken for smaller", default=1e-4, above=0.0)
    value_clip: Scalar | None = number(
        "how far V may move from the old V, in units of std, before its gradient stops", default=None, above=0.0
    )
    huber_delta: Scalar | None = number(
        "V's error, in units of std, beyond which its loss is linear", default=None, above=0.0
    )

    num_values: ClassVar[int] = 1

    def init(self) -> Adapted:
        """Mean 0 and variance 1 until something is seen; they weigh nothing against it."""
        return Adapted(ValueStats(jnp.float32(0.0), jnp.float32(0.0), jnp.float32(1.0)), None)

    def value(self, state: ValueStats, numbers: Array) -> Array:
        """V in units of the reward."""
        return state.mean + self._std(state) * numbers[0]

    def error(self, state: ValueStats, numbers: Array, target: Array, old_value: Array) -> Array:
        """The loss of one row, in normalised units."""
        std = self._std(state)
        target, old_value = (target - state.mean) / std, (old_value - state.mean) / std
        return clipped_value_loss(numbers[0], target, old_value, self.value_clip, self.huber_delta)

    def update(self, state: ValueStats, targets: Array, valid: Array) -> Adapted:
        """Statistics with these targets, and the last layer that says the same under them."""
        rate = jnp.where(valid.any(), self.rate, 0.0)
        weight = state.weight + rate * (1.0 - state.weight)
        share = rate / jnp.maximum(weight, 1e-30)  # 1 at first: as Adam's moments, the start is forgotten
        centred = targets - state.mean
        shift = masked_mean(centred, valid)
        spread = masked_mean((centred - shift) ** 2, valid) + (1.0 - share) * shift**2
        var = (1.0 - share) * state.var + share * spread
        new = ValueStats(weight, state.mean + share * shift, var)
        std = self._std(new)
        return Adapted(new, Rescale(self._std(state) / std, (state.mean - new.mean) / std))  # proposition 1

    def metrics(self, state: ValueStats, targets: Array, valid: Array) -> Metrics:
        """The scale in use."""
        return {"popart_mean": state.mean, "popart_std": self._std(state)}

    def _std(self, state: ValueStats) -> Array:
        return jnp.maximum(jnp.sqrt(state.var), self.min_std)
