"""Change of variables of tanh, for each dimension and for a vector's norm, and its expectation under a normal.

Nothing here inverts tanh, so it is accurate where tanh rounds to 1. For u = r * direction, y = tanh(r) * direction in d
dimensions, log|dy/du| = (d - 1) log(sinh r / r) - (d + 1) log cosh r; with d = 1 it is log(1 - tanh^2).

Expectations. cosh and sinh are products over their zeros, log(1 + q / a) is the integral of (1 - e^(-qs)) e^(-as) / s
(Frullani), and E e^(-qs) is known for q = |u|^2 of a normal u. So for any d, mean and standard deviations
E log cosh |u| = integral of (1 - E e^(-qs)) C(s) ds / s, with C(s) = sum over k of e^(-(2k - 1)^2 pi^2 s / 4),
and E log(sinh |u| / |u|) likewise with S(s) = sum over k of e^(-k^2 pi^2 s). The integrals are sums over 27 nodes by
the double exponential rule (Takahasi and Mori 1974, https://doi.org/10.2977/prims/1195192451), without sampling.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

LOG_2 = float(np.log(2.0))


class RadialMeans(NamedTuple):
    """Expectations of functions of the norm |u| under a normal u [..., d], [...] each."""

    log_cosh: Array  # E log cosh |u|
    log_sinhc: Array  # E log(sinh |u| / |u|)


class Nodes(NamedTuple):
    """Quadrature rule for the integrals above: K nodes s, and the weights of both integrands."""

    s: np.ndarray
    cosh: np.ndarray
    sinhc: np.ndarray


def _nodes() -> Nodes:
    """Return the double exponential quadrature rule."""
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
    """Return log E e^(-s u^2) of a normal u at each of K nodes s, [..., K]."""
    row = _row(s, mean.ndim)
    scaled_variance = 2.0 * row * jnp.exp(2.0 * log_std)[..., None]
    return -0.5 * jnp.log1p(scaled_variance) - row * (mean**2)[..., None] / (1.0 + scaled_variance)


def _row(x: np.ndarray, ndim: int) -> np.ndarray:
    """Return `x` [K] as [1, ..., 1, K], with `ndim` leading axes."""
    return x.astype(np.float32).reshape((1,) * ndim + (-1,))
