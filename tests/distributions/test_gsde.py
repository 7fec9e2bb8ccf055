"""Equations of gSDE: densities and noise in float64, moments of samples."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ppax.distributions import Normal, SquashedNormal, normal

RNG = np.random.default_rng(0)
Z, LOG_STD = RNG.normal(size=(2, 5)).astype(np.float32), RNG.normal(size=(5, 3)).astype(np.float32) - 0.5
BOX = {"low": (-1.0,) * 3, "high": (2.0,) * 3, "shape": (3,)}


def covariance(one, other):
    """Covariance [d] of the noise at two features, with one matrix: sum of z_i z'_i sigma_ij^2."""
    return np.array([sum(one[i] * other[i] * np.exp(2.0 * float(LOG_STD[i, j])) for i in range(5)) for j in range(3)])


def noise(z, matrix):
    log_std = normal.log_std_of(z, LOG_STD)
    return jnp.exp(log_std) * normal.standard_noise(normal.noise_basis(z, LOG_STD), matrix)


def test_the_density_is_that_of_all_matrices_in_float64():
    mean, action = RNG.normal(size=(2, 3)).astype(np.float32)
    std = np.sqrt(covariance(Z[0].astype(np.float64), Z[0].astype(np.float64)) + 1e-6)
    expected = stats.norm.logpdf(action.astype(np.float64), mean.astype(np.float64), std).sum()
    log_std = normal.log_std_of(Z[0], LOG_STD)
    np.testing.assert_allclose(Normal(mean, log_std).log_prob(action), expected, rtol=1e-5)
    squashed = expected - np.log(1.5 * (1.0 - np.tanh(action.astype(np.float64)) ** 2)).sum()
    np.testing.assert_allclose(
        SquashedNormal(mean, log_std, dtype="float32", **BOX).log_prob(action), squashed, rtol=1e-5
    )


def test_noise_is_linear_in_the_features_and_normal_over_matrices():
    matrices = jax.random.normal(jax.random.key(0), (100_000, 5, 3))
    one, other = (np.asarray(jax.vmap(lambda m, z=z: noise(z, m))(matrices), np.float64) for z in Z)
    theta = np.exp(LOG_STD.astype(np.float64)) * np.asarray(matrices[0], np.float64)
    np.testing.assert_allclose(one[0], Z[0] @ theta, rtol=1e-4, atol=1e-5)
    spread = [np.sqrt(covariance(z, z)) for z in Z]
    for x, y, expected in ((one, one, covariance(Z[0], Z[0])), (one, other, covariance(*Z))):
        error = 5.0 * np.sqrt(2.0) * spread[0] * np.maximum(*spread) / np.sqrt(len(x))
        assert (np.abs((x * y).mean(axis=0) - expected) < error).all()
    p = stats.kstest(one[:20_000, 0] / np.sqrt(covariance(Z[0], Z[0]))[0], "norm").pvalue
    assert p > 1e-4


def test_features_of_zero_are_finite_and_the_noise_does_not_train_them():
    def loss(z):
        return Normal(jnp.zeros(3), normal.log_std_of(z, LOG_STD)).log_prob(jnp.ones(3))

    value, gradient = jax.value_and_grad(loss)(jnp.zeros(5))
    assert np.isfinite(value)
    np.testing.assert_array_equal(gradient, 0.0)
    np.testing.assert_array_equal(jax.grad(loss)(Z[0]), 0.0)
    assert (
        jax.grad(lambda s: Normal(jnp.zeros(3), normal.log_std_of(Z[0], s)).log_prob(jnp.ones(3)))(LOG_STD) != 0
    ).all()
