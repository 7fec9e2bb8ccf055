"""Equations of generalised state-dependent exploration (gSDE). Raffin et al. 2021, https://arxiv.org/abs/2005.05719

The noise of an action is a linear function of the policy's features z, epsilon = theta^T z, with a matrix
theta ~ N(0, sigma^2) that stays for some steps (extensions/held_noise.py). Over all theta it is normal with variance
(z^2)^T sigma^2 in each dimension of the action: that is the density in learning, and theta is not needed there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

SMALLEST = 1e-6  # added to the variance, so that features of 0 have a density; as in Stable-Baselines3


def log_std_of(features: Array, log_std: Array) -> Array:
    """Return log standard deviations [d] at features [F], from those of the matrix's entries [F, d].

    As in Stable-Baselines3 the features are constants here: the size of the noise does not train them.
    """
    z = jax.lax.stop_gradient(features)
    return 0.5 * jnp.log(z**2 @ jnp.exp(2.0 * log_std) + SMALLEST)


def noise_basis(features: Array, log_std: Array) -> Array:
    """Return sigma z, [F, d]: its sum over F, after multiplication with a standard normal matrix [F, d], is the noise.

    z are the policy's features [F], and sigma = exp(`log_std`) [F, d] the deviations of the matrix's entries.
    """
    return features[:, None] * jnp.exp(log_std)


def standard_noise(basis: Array, matrix: Array) -> Array:
    """Return the noise [d] in units of its standard deviation, from a basis and a matrix, [F, d] each.

    The basis is that of `noise_basis`, the matrix is standard normal.
    """
    return (basis * matrix).sum(axis=0) / jnp.sqrt((basis**2).sum(axis=0) + SMALLEST)
