"""Quantile critic: value outputs are quantiles of the value target, V is their mean. Dabney et al. 2018 (QR),
https://arxiv.org/abs/1710.10044

The quantile Huber loss there, at the midpoints tau_i = (2 i - 1) / (2 N); here divided by kappa, so that it tends to
the quantile loss, and averaged over quantiles in place of summed. A target is one number, R.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from ppax.core.protocols import Adapted
from ppax.core.types import Metrics, PyTree, Scalar, number, part, static
from ppax.ppo.critics.base import half_square


@part
class Quantile:
    """Quantile critic: loss mean_i |tau_i - 1{R < q_i}| L(R - q_i); V = mean_i q_i. Dabney et al. 2018,
    https://arxiv.org/abs/1710.10044
    """

    num_quantiles: int = static("number of quantiles", default=32, low=1)
    kappa: Scalar | None = number(
        "error within which the loss is quadratic (Huber), in units of V; none: quantile loss", default=1.0, above=0.0
    )

    @property
    def num_values(self) -> int:
        """Number of value outputs: one for each quantile."""
        return self.num_quantiles

    def init(self) -> Adapted:
        """No state."""
        return Adapted((), None)

    def value(self, state: PyTree, value_outputs: Array) -> Array:
        """V: mean of the quantiles."""
        return value_outputs.mean()

    def error(self, state: PyTree, value_outputs: Array, target: Array, old_value: Array) -> Array:
        """Quantile Huber loss of one row."""
        tau = (jnp.arange(self.num_quantiles, dtype=jnp.float32) + 0.5) / self.num_quantiles
        error = target - value_outputs
        size = jnp.abs(error) if self.kappa is None else half_square(error, self.kappa) / self.kappa
        return (jnp.where(error < 0.0, 1.0 - tau, tau) * size).mean()

    def update(self, state: PyTree, targets: Array, valid: Array) -> Adapted:
        """No change: there is no state to update."""
        return Adapted(state, None)

    def metrics(self, state: PyTree, targets: Array, valid: Array) -> Metrics:
        """No metrics."""
        return {}
