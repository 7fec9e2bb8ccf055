"""Normal distribution squashed into a Box by tanh: Haarnoja et al. 2018, https://arxiv.org/abs/1801.01290, appendix C.

Actions are stored before tanh, so tanh is never inverted. The density is that of the squashed action in the box.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import part, static
from ppax.distributions.boxes import along, centre_and_half, into_box
from ppax.distributions.normal import DiagonalNormal
from ppax.distributions.tanh import log_cosh, mean_log_cosh


@part
class SquashedNormal(DiagonalNormal):
    """Distribution of actions centre + half width * tanh(u) in a bounded box, for a normal u of d dimensions.

    Actions are stored as u.
    """

    low: tuple[float, ...] = static()  # d finite bounds
    high: tuple[float, ...] = static()
    shape: tuple[int, ...] = static()
    dtype: str = static(default="float32")

    def log_prob(self, action: Array) -> Array:
        """Return the log-density [...] of the squashed action, given as u = `action` [..., d].

        It is the sum over dimensions.
        """
        log_det = -2.0 * log_cosh(action).sum(axis=-1)  # 1 - tanh^2 = 1 / cosh^2
        return self.normal_log_prob(action) - log_det - self._log_scale

    def entropy(self) -> Array:
        """Return the differential entropy [...] of the squashed action, by the integral in tanh.py."""
        return (self.normal_entropies() - 2.0 * mean_log_cosh(self.mean, self.log_std)).sum(axis=-1) + self._log_scale

    def env_action(self, action: Array) -> Array:
        """Return u = `action` [..., d] after tanh, scaled to the bounds of the box and in its shape."""
        centre, half = (along(x, action.ndim) for x in centre_and_half(self.low, self.high))
        return into_box(centre + half * jnp.tanh(action), self.low, self.high, self.shape, self.dtype)

    @property
    def _log_scale(self) -> float:
        return float(np.log(centre_and_half(self.low, self.high)[1]).sum())
