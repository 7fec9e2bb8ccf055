"""Normal distributions: over a Box, squashed into a box or a ball by tanh, and with the noise of gSDE."""

from __future__ import annotations

from typing import NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ppax.core.types import Key, part, static
from ppax.distributions.boxes import along, centre_and_half, into_box

LOG_2PI = float(np.log(2.0 * np.pi))


@part
class DiagonalNormal:
    """Distribution of a normal vector u with a mean and a log standard deviation for each of its d dimensions.

    Arrays have an axis of dimensions [..., d] even with d = 1.
    """

    mean: Array  # [..., d]
    log_std: Array  # [..., d]

    def sample(self, key: Key) -> Array:
        """Return a sample of the normal variable u, [..., d], which is stored as the action."""
        return self.from_noise(jax.random.normal(key, self.mean.shape, self.mean.dtype))

    def from_noise(self, noise: Array) -> Array:
        """Return the sample [..., d] that belongs to standard normal `noise` [..., d]: mean + deviation * noise."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Array:
        """Return the mean [..., d] of the normal distribution, its most likely value, before any squashing."""
        return self.mean

    def normal_log_prob(self, u: Array) -> Array:
        """Return the normal log-density [...] of `u` [..., d], summed over dimensions."""
        z = (u - self.mean) * jnp.exp(-self.log_std)
        return (-0.5 * (z**2 + LOG_2PI) - self.log_std).sum(axis=-1)

    def normal_entropies(self) -> Array:
        """Return the differential entropy of each dimension of the normal variable u, [..., d]."""
        return self.log_std + 0.5 * (LOG_2PI + 1.0)

    def kl(self, other: Self) -> Array:
        """Return KL(self || other) [...] of two normal variables, summed over dimensions.

        It is also the divergence of the squashed variables, as both are squashed by the same map.
        """
        log_ratio = 2.0 * (self.log_std - other.log_std)
        z = (self.mean - other.mean) * jnp.exp(-other.log_std)
        return 0.5 * (jnp.expm1(log_ratio) - log_ratio + z**2).sum(axis=-1)

    def metrics(self) -> dict[str, Array]:
        """Return `policy_std` [...]: the mean over dimensions of the normal's standard deviation, unsquashed."""
        return {"policy_std": jnp.exp(self.log_std).mean(axis=-1)}


@part
class Normal(DiagonalNormal):
    """Distribution of actions in a Box: normal and unclipped; only the action for the environment is clipped.

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
        """Return the unclipped `action` [..., d] clipped to the box, in the box's shape."""
        return into_box(action, self.low, self.high, self.shape, self.dtype)


# Normal distribution squashed into a Box by tanh: Haarnoja et al. 2018, https://arxiv.org/abs/1801.01290, appendix C.
#
# Actions are stored before tanh, so tanh is never inverted. The density is that of the squashed action in the box.


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
        """Return the log-density [...] of the action squashed by tanh, given before tanh as u = `action` [..., d].

        It is the sum over dimensions.
        """
        log_det = -2.0 * log_cosh(action).sum(axis=-1)  # 1 - tanh^2 = 1 / cosh^2
        return self.normal_log_prob(action) - log_det - self._log_scale

    def entropy(self) -> Array:
        """Return the differential entropy [...] of the action squashed by tanh, summed over dimensions.

        It is the entropy of u plus the expected logarithm of the derivative of the squashing, in which `mean_log_cosh`
        gives E log cosh u by numerical integration.
        """
        return (self.normal_entropies() - 2.0 * mean_log_cosh(self.mean, self.log_std)).sum(axis=-1) + self._log_scale

    def env_action(self, action: Array) -> Array:
        """Return u = `action` [..., d] after tanh, scaled to the bounds of the box and in its shape."""
        centre, half = (along(x, action.ndim) for x in centre_and_half(self.low, self.high))
        return into_box(centre + half * jnp.tanh(action), self.low, self.high, self.shape, self.dtype)

    @property
    def _log_scale(self) -> float:
        return float(np.log(centre_and_half(self.low, self.high)[1]).sum())


# Normal distribution squashed into a ball by tanh of the norm, for actions with a bounded norm.
#
# The vector keeps its direction. Actions are stored before tanh.


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
        """Return the log-density [...] of the action squashed into a ball, given before squashing as u = `action`.

        `action` is [..., d].
        """
        return self.normal_log_prob(action) - log_det_radial(action) - self._log_scale

    def entropy(self) -> Array:
        """Return the differential entropy [...] of the action squashed into a ball.

        It is the entropy of u plus the expectation of `log_det_radial(u)`, which `radial_means` gives by numerical
        integration, plus d log(radius).
        """
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


# Change of variables of tanh, for each dimension and for a vector's norm, and its expectation under a normal.
#
# Nothing here inverts tanh, so it is accurate where tanh rounds to 1. For u = r * direction, y = tanh(r) * direction in
# d dimensions, log|dy/du| = (d - 1) log(sinh r / r) - (d + 1) log cosh r; with d = 1 it is log(1 - tanh^2).
#
# Expectations. cosh and sinh are products over their zeros, log(1 + q / a) is the integral of (1 - e^(-qs)) e^(-as) / s
# (Frullani), and E e^(-qs) is known for q = |u|^2 of a normal u. So for any d, mean and standard deviations
# E log cosh |u| = integral of (1 - E e^(-qs)) C(s) ds / s, with C(s) = sum over k of e^(-(2k - 1)^2 pi^2 s / 4),
# and E log(sinh |u| / |u|) likewise with S(s) = sum over k of e^(-k^2 pi^2 s). The integrals are sums over 27 nodes by
# the double exponential rule (Takahasi and Mori 1974, https://doi.org/10.2977/prims/1195192451), without sampling.

LOG_2 = float(np.log(2.0))


class RadialMeans(NamedTuple):
    """Expectations of functions of the norm |u| under a normal u [..., d], [...] each."""

    log_cosh: Array  # E log cosh |u|
    log_sinhc: Array  # E log(sinh |u| / |u|)


class Nodes(NamedTuple):
    """Quadrature rule with K nodes for the expectations of log cosh |u| and log(sinh |u| / |u|) under a normal u.

    Both expectations are integrals over s > 0. They are computed as weighted sums of 1 - E e^(-s |u|^2) over the nodes
    `s` [K], with the weights `cosh` [K] for the first and `sinhc` [K] for the second.
    """

    s: np.ndarray
    cosh: np.ndarray
    sinhc: np.ndarray


def _nodes() -> Nodes:
    """Return the double exponential quadrature rule for the expectations of log cosh and log(sinh r / r)."""
    step, x = 0.25, np.arange(-4.5, 2.2, 0.25)
    s, ds = np.exp(x - 0.3 * np.exp(-x)), step * (1.0 + 0.3 * np.exp(-x))  # ds / s
    k = np.arange(1, 40)[:, None]
    # below 0.1 the sums converge too slowly: there use Poisson summation, which replaces s by 1 / s
    near = np.exp(-(k**2) / s)
    root = 0.5 / np.sqrt(np.pi * s)
    alternating = ((-1.0) ** k * near).sum(0)
    cosh = np.where(s < 0.1, root * (1 + 2 * alternating), np.exp(-((k - 0.5) ** 2) * np.pi**2 * s).sum(0))
    sinhc = np.where(s < 0.1, root * (1 + 2 * near.sum(0)) - 0.5, np.exp(-(k**2) * np.pi**2 * s).sum(0))
    return Nodes(s, cosh * ds, sinhc * ds)


NODES = _nodes()


def log_cosh(u: Array) -> Array:
    """Return log cosh u, elementwise, exact to rounding for every u."""
    return u + jax.nn.softplus(-2.0 * u) - LOG_2


def log_det_radial(u: Array) -> Array:
    """Return the log-determinant log|dy/du| [...] of y = tanh(|u|) u / |u| for u [..., d]."""
    dims, q = u.shape[-1], (u**2).sum(axis=-1)
    small = q < 0.01
    r = jnp.sqrt(jnp.where(small, 1.0, q))  # not sqrt(0), whose gradient is infinite
    # log(sinh r / r) = log cosh r + log(tanh r / r); for small r its series, which loses no digits
    sinhc = log_cosh(r) + jnp.log(jnp.tanh(r) / r)
    sinhc = jnp.where(small, q / 6.0 - q**2 / 180.0, sinhc)
    cosh = jnp.where(small, q / 2.0 - q**2 / 12.0 + q**3 / 45.0, log_cosh(r))
    return (dims - 1) * sinhc - (dims + 1) * cosh


def mean_log_cosh(mean: Array, log_std: Array) -> Array:
    """Return E log cosh u of a normal u with this mean and log standard deviation, elementwise [...]."""
    s, weights, _ = NODES
    return (-jnp.expm1(_log_laplace(mean, log_std, s)) * _row(weights, mean.ndim)).sum(axis=-1)


def radial_means(mean: Array, log_std: Array) -> RadialMeans:
    """Return E log cosh |u| and E log(sinh |u| / |u|), [...] each, of a normal u with `mean` and `log_std` [..., d]."""
    s, cosh, sinhc = NODES
    complement = -jnp.expm1(_log_laplace(mean, log_std, s).sum(axis=-2))  # [..., K]
    return RadialMeans(*((complement * _row(weights, mean.ndim - 1)).sum(axis=-1) for weights in (cosh, sinhc)))


def _log_laplace(mean: Array, log_std: Array, s: np.ndarray) -> Array:
    """Return log E e^(-s u^2) [..., K] of a normal u with `mean` and `log_std` [...], at each of the K nodes `s`.

    The quadrature rule `Nodes` computes E log cosh u as a weighted sum of 1 - E e^(-s u^2) over these nodes.
    """
    row = _row(s, mean.ndim)
    scaled_variance = 2.0 * row * jnp.exp(2.0 * log_std)[..., None]
    return -0.5 * jnp.log1p(scaled_variance) - row * (mean**2)[..., None] / (1.0 + scaled_variance)


def _row(x: np.ndarray, ndim: int) -> np.ndarray:
    """Return `x` [K] as [1, ..., 1, K], with `ndim` leading axes of length 1."""
    return x.astype(np.float32).reshape((1,) * ndim + (-1,))


# Equations of generalised state-dependent exploration (gSDE). Raffin et al. 2021, https://arxiv.org/abs/2005.05719
#
# The noise of an action is a linear function of the policy's features z, epsilon = theta^T z, with a matrix
# theta ~ N(0, sigma^2) that stays for some steps (extensions/held_noise.py). Over all theta it is normal with variance
# (z^2)^T sigma^2 in each dimension of the action: that is the density in learning, and theta is not needed there.

SMALLEST = 1e-6  # added to the variance, so that features of 0 have a density; as in Stable-Baselines3


def log_std_of(features: Array, log_std: Array) -> Array:
    """Return gSDE's log standard deviations of the noise, [d], for features [F] and parameters `log_std` [F, d].

    The parameters are the log standard deviations of the entries of the noise's matrix. As in Stable-Baselines3,
    features are constants here: the size of the noise does not train them.
    """
    z = jax.lax.stop_gradient(features)
    return 0.5 * jnp.log(z**2 @ jnp.exp(2.0 * log_std) + SMALLEST)


def noise_basis(features: Array, log_std: Array) -> Array:
    """Return the basis [F, d] of gSDE's noise: the policy's features [F] times exp(`log_std`) [F, d].

    Multiplied by a standard normal matrix [F, d] and summed over F, the basis gives the noise.
    """
    return features[:, None] * jnp.exp(log_std)


def standard_noise(basis: Array, matrix: Array) -> Array:
    """Return gSDE's noise [d] in units of its standard deviation, from a basis and a matrix, [F, d] each.

    `basis` is as `noise_basis` returns it, and `matrix` is standard normal.
    """
    return (basis * matrix).sum(axis=0) / jnp.sqrt((basis**2).sum(axis=0) + SMALLEST)
