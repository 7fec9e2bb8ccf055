"""Diagonal normal distributions: over a Box space, and as the base of those that squash a normal variable."""

from __future__ import annotations

from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import Key, part, static
from ppax.distributions.boxes import into_box

LOG_2PI = float(np.log(2.0 * np.pi))


@part
class DiagonalNormal:
    """Distribution of a normal variable u with a mean and a log standard deviation for each of d dimensions.

    Also with d = 1 there is an axis for it.
    """

    mean: Array  # [..., d]
    log_std: Array  # [..., d]

    def sample(self, key: Key) -> Array:
        """Return a sample of the normal variable u, [..., d], which is stored as the action."""
        return self.from_noise(jax.random.normal(key, self.mean.shape, self.mean.dtype))

    def from_noise(self, noise: Array) -> Array:
        """Return the sample [..., d] that standard normal `noise` [..., d] gives: mean + deviation * noise."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Array:
        """Return the mean of u [..., d], its most likely value."""
        return self.mean

    def normal_log_prob(self, u: Array) -> Array:
        """Return the normal log-density [...] of `u` [..., d], summed over dimensions."""
        z = (u - self.mean) * jnp.exp(-self.log_std)
        return (-0.5 * (z**2 + LOG_2PI) - self.log_std).sum(axis=-1)

    def normal_entropies(self) -> Array:
        """Return the differential entropy of each dimension of the normal variable u, [..., d]."""
        return self.log_std + 0.5 * (LOG_2PI + 1.0)

    def kl(self, other: Self) -> Array:
        """Return KL(self || other) [...], summed over dimensions.

        Squashing both variables by one map leaves it unchanged.
        """
        log_ratio = 2.0 * (self.log_std - other.log_std)
        z = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return 0.5 * (jnp.expm1(log_ratio) - log_ratio + z**2).sum(axis=-1)

    def metrics(self) -> dict[str, Array]:
        """Return `policy_std` [...]: the mean standard deviation of the dimensions of u."""
        return {"policy_std": jnp.exp(self.log_std).mean(axis=-1)}


@part
class Normal(DiagonalNormal):
    """Distribution of actions in a Box: normal and unclipped, so that only the environment's action is clipped.

    The unclipped sample is stored, and the log-probability is its density (Huang et al. 2022,
    https://iclr-blog-track.github.io/2022/03/25/ppo-implementation-details).
    """

    low: tuple[float, ...] = static(default=())  # d bounds of the box
    high: tuple[float, ...] = static(default=())
    shape: tuple[int, ...] = static(default=())  # shape of the box; its d elements are stored flat
    dtype: str = static(default="float32")  # dtype of the environment's action

    def log_prob(self, action: Array) -> Array:
        """Return the log-density [...] of the unclipped `action` [..., d], summed over dimensions."""
        return self.normal_log_prob(action)

    def entropy(self) -> Array:
        """Return the differential entropy [...] of the unclipped normal, summed over dimensions; it may be negative."""
        return self.normal_entropies().sum(axis=-1)

    def env_action(self, action: Array) -> Array:
        """Return `action` [..., d] clipped to the box, in the box's shape."""
        return into_box(action, self.low, self.high, self.shape, self.dtype)
