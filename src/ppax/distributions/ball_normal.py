"""Normal distribution squashed into a ball by tanh of the norm, for actions with a bounded norm.

The vector keeps its direction. Actions are stored before tanh. The change of variables is in tanh.py.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import part, static
from ppax.distributions.boxes import along, centre_and_half, into_box
from ppax.distributions.normal import DiagonalNormal
from ppax.distributions.tanh import log_det_radial, radial_means


@part
class BallNormal(DiagonalNormal):
    """Distribution of actions in a ball: centre + radius * tanh(|u|) * u / |u| for a normal vector u of d dimensions.

    Actions are stored as u.
    """

    low: tuple[float, ...] = static()  # bounds of the box; its centre is the ball's
    high: tuple[float, ...] = static()
    shape: tuple[int, ...] = static()
    dtype: str = static()
    radius: float = static()

    def log_prob(self, action: Array) -> Array:
        """Return the log-density [...] of the squashed action, given as u = `action` [..., d]."""
        return self.normal_log_prob(action) - log_det_radial(action) - self._log_scale

    def entropy(self) -> Array:
        """Return the differential entropy [...] of the squashed action, by the integral in tanh.py."""
        dims, means = len(self.low), radial_means(self.mean, self.log_std)
        log_det = (dims - 1) * means.log_sinhc - (dims + 1) * means.log_cosh
        return self.normal_entropies().sum(axis=-1) + log_det + self._log_scale

    def env_action(self, action: Array) -> Array:
        """Return u = `action` [..., d] squashed by tanh of its norm and scaled to the ball, in the box's shape."""
        r = jnp.sqrt((action**2).sum(axis=-1, keepdims=True))
        squashed = action * (jnp.tanh(r) / jnp.maximum(r, 1e-30))  # 0 at u = 0
        centre = jnp.asarray(along(centre_and_half(self.low, self.high)[0], action.ndim))
        return into_box(centre + self.radius * squashed, self.low, self.high, self.shape, self.dtype)

    @property
    def _log_scale(self) -> float:
        return len(self.low) * float(np.log(self.radius))
