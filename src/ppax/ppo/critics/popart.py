"""PopArt: the network learns standardised targets; its last layer is rescaled so that V keeps its value.

van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714. Their mu, sigma, beta are `mean`, `std`, `rate` here. The
statistics are updated once per update with all of its targets, not with every sample; the first rollout sets them.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import masked_mean
from ppax.core.protocols import Adapted, Rescale
from ppax.core.types import Metrics, Scalar, number, part
from ppax.ppo.critics.base import clipped_value_loss


class ValueStats(NamedTuple):
    """Exponential moving mean and variance of value targets."""

    weight: Array  # [] bias correction, as in Adam: 1 - (1 - rate)^updates
    mean: Array  # []
    var: Array  # [] population variance


@part
class PopArt:
    """PopArt critic: least squares on standardised targets, 0.5 ((V - R) / std)^2, where V = mean + std * value output.

    The loss does not depend on the scale of the rewards. van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714
    """

    rate: Scalar = number(
        "PopArt step size: weight of each rollout in the moving mean and std of the targets",
        default=0.1,
        above=0.0,
        high=1.0,
    )
    min_std: Scalar = number("lower bound of the targets' std", default=1e-4, above=0.0)
    value_clip: Scalar | None = number(
        "value clipping: clip range around the old V, in units of the targets' std; none: off", default=None, above=0.0
    )
    huber_delta: Scalar | None = number(
        "Huber loss: error, in units of the targets' std, beyond which it is linear; none: squared error",
        default=None,
        above=0.0,
    )

    num_values: ClassVar[int] = 1

    def init(self) -> Adapted:
        """Statistics of no targets: mean 0 and variance 1, replaced by those of the first rollout."""
        return Adapted(ValueStats(jnp.float32(0.0), jnp.float32(0.0), jnp.float32(1.0)), None)

    def value(self, state: ValueStats, value_outputs: Array) -> Array:
        """V in units of the reward."""
        return state.mean + self._std(state) * value_outputs[0]

    def error(self, state: ValueStats, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Value loss of one row, on the scale of the standardised targets."""
        std = self._std(state)
        target, old_value = (target - state.mean) / std, (old_value - state.mean) / std
        return clipped_value_loss(value_outputs[0], target, old_value, self.value_clip, self.huber_delta)

    def update(self, state: ValueStats, targets: Array, valid: Array) -> Adapted:
        """Statistics updated with `targets` where `valid`, and the change of the last layer that preserves V."""
        rate = jnp.where(valid.any(), self.rate, 0.0)
        weight = state.weight + rate * (1.0 - state.weight)
        share = rate / jnp.maximum(weight, 1e-30)  # 1 at first: bias correction, as of Adam's moments
        centred = targets - state.mean
        shift = masked_mean(centred, valid)
        spread = masked_mean((centred - shift) ** 2, valid) + (1.0 - share) * shift**2
        var = (1.0 - share) * state.var + share * spread
        new = ValueStats(weight, state.mean + share * shift, var)
        std = self._std(new)
        return Adapted(new, Rescale(self._std(state) / std, (state.mean - new.mean) / std))  # proposition 1

    def metrics(self, state: ValueStats, targets: Array, valid: Array) -> Metrics:
        """Mean and std in use."""
        return {"popart_mean": state.mean, "popart_std": self._std(state)}

    def _std(self, state: ValueStats) -> Array:
        return jnp.maximum(jnp.sqrt(state.var), self.min_std)
