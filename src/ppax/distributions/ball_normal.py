"""Normal distribution squashed into a ball by tanh of the norm, for actions with a bounded norm.

The vector keeps its direction. Actions are stored before tanh. The change of variables is in tanh.py.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import Key, part, static
from ppax.distributions.boxes import along, centre_and_half, into_box
from ppax.distributions.tanh import log_det_radial, radial_means

LOG_2PI = float(np.log(2.0 * np.pi))


@part
class BallNormal:
    """Normal vector u in d dimensions; the environment's action is centre + radius * tanh(|u|) * u / |u|."""

    mean: Array  # [..., d] of u
    log_std: Array  # [..., d]
    low: tuple[float, ...] = static()  # bounds of the box; its centre is the ball's
    high: tuple[float, ...] = static()
    shape: tuple[int, ...] = static()
    dtype: str = static()
    radius: float = static()

    def sample(self, key: Key) -> Array:
        """Return a sample of u [..., d], before tanh."""
        return self.from_noise(jax.random.normal(key, self.mean.shape, self.mean.dtype))

    def from_noise(self, noise: Array) -> Array:
        """Return the sample [..., d] that standard normal `noise` [..., d] gives."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, action: Array) -> Array:
        """Return the log-density [...] of the squashed action at u = `action` [..., d]."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        normal = (-0.5 * (z**2 + LOG_2PI) - self.log_std).sum(axis=-1)
        return normal - log_det_radial(action) - self._log_scale

    def entropy(self) -> Array:
        """Return the differential entropy [...] of the squashed action, by the integral in tanh.py."""
        dims, means = len(self.low), radial_means(self.mean, self.log_std)
        log_det = (dims - 1) * means.log_sinhc - (dims + 1) * means.log_cosh
        return (self.log_std + 0.5 * (LOG_2PI + 1.0)).sum(axis=-1) + log_det + self._log_scale

    def mode(self) -> Array:
        """Return the mean of u [..., d]."""
        return self.mean

    def kl(self, other: BallNormal) -> Array:
        """Return KL(self || other) [...], that of the normals: squashing both by one map leaves it unchanged."""
        log_ratio = 2.0 * (self.log_std - other.log_std)
        z = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return 0.5 * (jnp.expm1(log_ratio) - log_ratio + z**2).sum(axis=-1)

    def env_action(self, action: Array) -> Array:
        """Return the action [..., d], its norm squashed by tanh, scaled to the ball in the box, in the box's shape."""
        r = jnp.sqrt((action**2).sum(axis=-1, keepdims=True))
        squashed = action * (jnp.tanh(r) / jnp.maximum(r, 1e-30))  # 0 at u = 0
        centre = jnp.asarray(along(centre_and_half(self.low, self.high)[0], action.ndim))
        return into_box(centre + self.radius * squashed, self.low, self.high, self.shape, self.dtype)

    def metrics(self) -> dict[str, Array]:
        """Return the mean standard deviation [...] of the dimensions of u."""
        return {"policy_std": jnp.exp(self.log_std).mean(axis=-1)}

    @property
    def _log_scale(self) -> float:
        return len(self.low) * float(np.log(self.radius))
