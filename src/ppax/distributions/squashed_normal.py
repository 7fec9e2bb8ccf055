"""Normal distribution squashed into a Box by tanh: Haarnoja et al. 2018, https://arxiv.org/abs/1801.01290, appendix C.

Actions are stored before tanh, so tanh is never inverted. The density is that of the squashed action in the box.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import Key, part, static
from ppax.distributions.boxes import along, centre_and_half, into_box
from ppax.distributions.tanh import log_cosh, mean_log_cosh

LOG_2PI = float(np.log(2.0 * np.pi))


@part
class SquashedNormal:
    """Normal u in d bounded dimensions; the environment's action is centre + half width * tanh(u)."""

    mean: Array  # [..., d] of u
    log_std: Array  # [..., d]
    low: tuple[float, ...] = static()  # d finite bounds
    high: tuple[float, ...] = static()
    shape: tuple[int, ...] = static()
    dtype: str = static(default="float32")

    def sample(self, key: Key) -> Array:
        """Return a sample of u [..., d], before tanh."""
        return self.from_noise(jax.random.normal(key, self.mean.shape, self.mean.dtype))

    def from_noise(self, noise: Array) -> Array:
        """Return the sample [..., d] that standard normal `noise` [..., d] gives."""
        return self.mean + jnp.exp(self.log_std) * noise

    def log_prob(self, action: Array) -> Array:
        """Return the log-density [...] of the squashed action at u = `action` [..., d], summed over dimensions."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        normal = (-0.5 * (z**2 + LOG_2PI) - self.log_std).sum(axis=-1)
        return normal + 2.0 * log_cosh(action).sum(axis=-1) - self._log_scale  # 1 - tanh^2 = 1 / cosh^2

    def entropy(self) -> Array:
        """Return the differential entropy [...] of the squashed action, by the integral in tanh.py."""
        normal = self.log_std + 0.5 * (LOG_2PI + 1.0)
        return (normal - 2.0 * mean_log_cosh(self.mean, self.log_std)).sum(axis=-1) + self._log_scale

    def mode(self) -> Array:
        """Return the mean of u [..., d], which is the median of the squashed action."""
        return self.mean

    def kl(self, other: SquashedNormal) -> Array:
        """Return KL(self || other) [...], that of the normals: squashing both by one map leaves it unchanged."""
        log_ratio = 2.0 * (self.log_std - other.log_std)
        z = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return 0.5 * (jnp.expm1(log_ratio) - log_ratio + z**2).sum(axis=-1)

    def env_action(self, action: Array) -> Array:
        """Return the action [..., d] after tanh, scaled to the bounds of the box and in its shape."""
        centre, half = (along(x, action.ndim) for x in centre_and_half(self.low, self.high))
        return into_box(centre + half * jnp.tanh(action), self.low, self.high, self.shape, self.dtype)

    def metrics(self) -> dict[str, Array]:
        """Return the mean standard deviation [...] of the dimensions of u."""
        return {"policy_std": jnp.exp(self.log_std).mean(axis=-1)}

    @property
    def _log_scale(self) -> float:
        return float(np.log(centre_and_half(self.low, self.high)[1]).sum())
