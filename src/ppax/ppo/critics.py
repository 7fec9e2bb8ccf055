"""Critics: parts that turn a network's value outputs into the value V, and define the loss that trains them."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ppax.arrays.sequences import masked_mean
from ppax.core.protocols import Adapted, Critic, Rescale
from ppax.core.types import Batch, ConfigError, Metrics, PyTree, Scalar, number, part, static

__all__ = ["PopArt", "Quantile", "Regression", "TwoHot"]

MOST_TILT = 10.0  # largest difference that the start of V near 0 adds between the logits of TwoHot's outer bins


def value_losses(critic: Critic, state: PyTree, value_outputs: Array, batch: Batch) -> Array:
    """Return the critic's loss of each row, [N], from the network's value outputs [N, num_values].

    `state` is the critic's state, such as PopArt's statistics. `batch` has the N rows with their value targets, and
    with V as it was when the rows were collected.
    """
    return jax.vmap(critic.error, (None, 0, 0, 0))(state, value_outputs, batch.targets.value, batch.steps.value)


@part
class Regression:
    """Least-squares critic: value loss 0.5 (V - R)^2; neither V nor its target R is normalised here.

    L^VF of eq. 9 in Schulman et al. 2017, https://arxiv.org/abs/1707.06347, times 1/2.
    """

    value_clip: Scalar | None = number(
        "value clipping: clip range of V around the old V, in units of V; none: off", default=None, above=0.0
    )
    huber_delta: Scalar | None = number(
        "Huber loss: error of V beyond which the loss is linear; none: squared error", default=None, above=0.0
    )

    num_values: ClassVar[int] = 1

    def init(self) -> Adapted:
        """Return the least-squares critic's initial state, (), and None for no change of the network's value head."""
        return Adapted((), None)

    def value(self, state: PyTree, value_outputs: Array) -> Array:
        """Return the least-squares critic's value V, [], which is the network's only value output."""
        return value_outputs[0]

    def error(self, state: PyTree, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Return the least-squares critic's value loss, [], of one row.

        `value_outputs` are [1], `target` is the value target R, and `old_value` is V when the row was collected, around
        which `value_clip` clips.
        """
        return clipped_value_loss(value_outputs[0], target, old_value, self.value_clip, self.huber_delta)

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """Return `state` as it is, and None for no change of the value head: least squares have nothing to adapt."""
        return Adapted(state, None)

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """Return {}: the least-squares critic logs no metrics of its own."""
        return {}


class ValueStats(NamedTuple):
    """Exponential moving mean and variance of value targets, by which PopArt standardises them."""

    weight: Array  # [] bias correction, as in Adam: 1 - (1 - rate)^updates
    mean: Array  # []
    var: Array  # [] population variance


@part
class PopArt:
    """PopArt critic: least squares on standardised targets, 0.5 ((V - R) / std)^2, where V = mean + std * value output.

    The loss does not depend on the scale of the rewards. van Hasselt et al. 2016, https://arxiv.org/abs/1602.07714;
    their mu, sigma, beta are `mean`, `std`, `rate` here. The statistics are updated once per update with all of its
    targets, not with every sample; the first rollout sets them.
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
        """Return PopArt's first statistics, mean 0 and variance 1, and None for no change of the network's value head.

        The first rollout replaces the statistics.
        """
        return Adapted(ValueStats(jnp.float32(0.0), jnp.float32(0.0), jnp.float32(1.0)), None)

    def value(self, state: ValueStats, value_outputs: Array) -> Array:
        """Return PopArt's value V, [], in units of the reward, from the one standardised value output, [1]."""
        return state.mean + self._std(state) * value_outputs[0]

    def error(self, state: ValueStats, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Return PopArt's value loss, [], of one row, from V and target standardised by the statistics in `state`.

        `target` and `old_value`, V when the row was collected, are in units of the reward.
        """
        std = self._std(state)
        target, old_value = (target - state.mean) / std, (old_value - state.mean) / std
        return clipped_value_loss(value_outputs[0], target, old_value, self.value_clip, self.huber_delta)

    def update(self, state: ValueStats, targets: Array, valid: Array) -> Adapted:
        """Return PopArt's statistics after a rollout, and the scale and shift of value outputs that keep V unchanged.

        The statistics are updated by the value targets [M, L] where `valid` [M, L]. PPO then scales and shifts the last
        layer of the network's value head, so that V stays the same for every observation.
        """
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
        """Return the metrics `popart_mean` and `popart_std`: the statistics by which PopArt standardises targets."""
        return {"popart_mean": state.mean, "popart_std": self._std(state)}

    def _std(self, state: ValueStats) -> Array:
        return jnp.maximum(jnp.sqrt(state.var), self.min_std)


@part
class TwoHot:
    """Two-hot critic: cross-entropy -sum_i t_i log p_i; V = sum_i p_i bin_i.

    The network gives probabilities p of bins of values. The target t is two-hot: it has weight on two neighbouring
    bins, and its mean is R. Gradients do not grow with V.

    Two-hot targets: Bellemare et al. 2017, https://arxiv.org/abs/1707.06887, and Schrittwieser et al. 2020, appendix F,
    https://arxiv.org/abs/1911.08265. Symlog: Hafner et al. 2023, https://arxiv.org/abs/2301.04104. Here the bins are
    spaced by symlog, but two-hot targets and the mean are in units of V, so that V is unbiased where returns vary.
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
        """Number of outputs of the network's value head that the two-hot critic needs: one logit per bin."""
        return self.num_bins

    def init(self) -> Adapted:
        """Return the two-hot critic's initial state, (), and a change of the value head that makes V start near 0.

        The last layer's weights become 0, so that V is at first the same for every observation. If 0 is outside of
        [low, high], V starts near the bound that is nearest to 0. Raises ConfigError where the option `low` is not
        below `high`.
        """
        if isinstance(self.low, int | float) and isinstance(self.high, int | float) and self.low >= self.high:
            raise ConfigError(f"critic: low = {self.low:g} must be below high = {self.high:g}")
        return Adapted((), Rescale(0.0, self._initial_logits()))

    def value(self, state: PyTree, value_outputs: Array) -> Array:
        """Return the two-hot critic's V, []: the mean of the bins' values, weighted by the softmax of the outputs.

        `value_outputs` [num_bins] has one output for each bin.
        """
        return (jax.nn.softmax(value_outputs) * self.bins()).sum()  # not a matrix product: accelerators round those

    def error(self, state: PyTree, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Return the two-hot critic's cross-entropy loss, [], of one row, for the value target `target`.

        `old_value` is not used.
        """
        return -(self.encode(target) * jax.nn.log_softmax(value_outputs)).sum()

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """Return `state` as it is, and None for no change of the value head: the two-hot critic's bins are fixed."""
        return Adapted(state, None)

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """Return the metric `targets_outside`: the share of the `valid` targets [M, L] that are outside [low, high]."""
        outside = (targets < self.low) | (targets > self.high)
        return {"targets_outside": masked_mean(outside.astype(jnp.float32), valid)}

    def bins(self) -> Array:
        """Return the values that the two-hot critic's bins stand for, [num_bins], ascending from `low` to `high`."""
        low, high = jnp.float32(self.low), jnp.float32(self.high)
        if self.spacing == "linear":
            return self._evenly(low, high)
        return symexp(self._evenly(symlog(low), symlog(high)))

    def encode(self, target: Array) -> Array:
        """Return the two-hot distribution [num_bins] whose mean is `target` [], clipped to [low, high]."""
        bins = self.bins()
        share = jnp.clip((target - bins[:-1]) / (bins[1:] - bins[:-1]), 0.0, 1.0)  # [num_bins - 1] of the upper bin
        one = jnp.ones(1, jnp.float32)
        return jnp.concatenate([one, share]) - jnp.concatenate([share, 0.0 * one])

    def _initial_logits(self) -> Array:
        """Return logits [num_bins] with which V is near the number in [low, high] that is nearest to 0.

        The probability of bin i, counted from 0, is in proportion to exp(t x_i) / (1 + |bin_i|), where x_i is i divided
        by the number of bins less 1. In a range that is symmetric around 0, t is 0. In others V is 0 with the t that is
        found here, or as near to 0 as a |t| of MOST_TILT makes it: with a larger one, learning would take long to make
        the bins probable that are far from 0.
        """
        bins = self.bins()
        flat = -jnp.log1p(jnp.abs(bins))
        place = jnp.arange(self.num_bins, dtype=jnp.float32) / (self.num_bins - 1)

        def halved(_: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array]:
            middle = 0.5 * (bounds[0] + bounds[1])
            above = (jax.nn.softmax(flat + middle * place) * bins).sum() > 0.0  # V rises with t
            return jnp.where(above, bounds[0], middle), jnp.where(above, middle, bounds[1])

        least, most = jax.lax.fori_loop(0, 30, halved, (jnp.float32(-MOST_TILT), jnp.float32(MOST_TILT)))
        symmetric = jnp.float32(self.low) == -jnp.float32(self.high)
        return flat + jnp.where(symmetric, 0.0, 0.5 * (least + most)) * place

    def _evenly(self, low: Array, high: Array) -> Array:
        up = jnp.arange(self.num_bins, dtype=jnp.float32)
        return (up[::-1] * low + up * high) / (self.num_bins - 1)  # `linspace` may round the bin at 0 to another value


@part
class Quantile:
    """Quantile critic: loss mean_i |tau_i - 1{R < q_i}| L(R - q_i); V = mean_i q_i. Dabney et al. 2018,
    https://arxiv.org/abs/1710.10044

    The value outputs q_i are quantiles of the return, and L is the absolute error, or with `kappa` the Huber loss. The
    midpoints are tau_i = (2 i - 1) / (2 N), as in the paper. Unlike there, the Huber loss is divided by kappa, so that
    it tends to the quantile loss; the loss is averaged over quantiles, not summed; and a target is one number, R.
    """

    num_quantiles: int = static("number of quantiles", default=32, low=1)
    kappa: Scalar | None = number(
        "error within which the loss is quadratic (Huber), in units of V; none: quantile loss", default=1.0, above=0.0
    )

    @property
    def num_values(self) -> int:
        """Number of outputs of the network's value head that the quantile critic needs: one for each quantile."""
        return self.num_quantiles

    def init(self) -> Adapted:
        """Return the quantile critic's initial state, (), and None for no change of the network's value head."""
        return Adapted((), None)

    def value(self, state: PyTree, value_outputs: Array) -> Array:
        """Return the quantile critic's V, []: the mean of the value outputs [num_quantiles], which are quantiles."""
        return value_outputs.mean()

    def error(self, state: PyTree, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Return the quantile loss, [], of one row, for the value target `target`; `old_value` is not used."""
        tau = (jnp.arange(self.num_quantiles, dtype=jnp.float32) + 0.5) / self.num_quantiles
        error = target - value_outputs
        size = jnp.abs(error) if self.kappa is None else half_square(error, self.kappa) / self.kappa
        return (jnp.where(error < 0.0, 1.0 - tau, tau) * size).mean()

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """Return `state` as it is, and None for no change of the value head: quantiles have nothing to adapt."""
        return Adapted(state, None)

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """Return {}: the quantile critic logs no metrics of its own."""
        return {}


def clipped_value_loss(
    value: Array, target: Array, old_value: Array, value_clip: Scalar | None, huber_delta: Scalar | None
) -> Array:
    """Return the value loss 0.5 (V - R)^2, where V is `value` and R is `target`; with `huber_delta` the Huber loss.

    With `value_clip` it is the larger of two losses: that of V, and that of V clipped to `old_value` +- `value_clip`.
    """
    error = half_square(value - target, huber_delta)
    if value_clip is None:
        return error
    near = old_value + jnp.clip(value - old_value, -value_clip, value_clip)
    return jnp.maximum(error, half_square(near - target, huber_delta))


def half_square(error: Array, huber_delta: Scalar | None) -> Array:
    """Return half the squared error; with `huber_delta` the Huber loss, which is linear in errors beyond it."""
    if huber_delta is None:
        return 0.5 * error**2
    # Huber 1964: linear beyond delta, so that the gradient is bounded there but does not vanish
    inside = jnp.minimum(jnp.abs(error), huber_delta)
    return inside * (jnp.abs(error) - 0.5 * inside)


def symlog(x: Array) -> Array:
    """Symmetric logarithm: sign(x) log(1 + |x|)."""
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Array) -> Array:
    """Inverse of `symlog`: sign(x) (exp(|x|) - 1)."""
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))
