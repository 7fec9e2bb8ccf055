"""Beta distribution: against scipy in float64, sampling, bounds, and extreme parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from ppax.distributions import Beta
from ppax.networks.heads import head_for
from support.worlds import SPACES

RNG = np.random.default_rng(0)
A, B, A2, B2 = (1.0 + RNG.gamma(2.0, 2.0, (4, 5, 2))).astype(np.float32)
X = RNG.uniform(0.01, 0.99, (5, 2)).astype(np.float32)
BOX = ((-1.0, 0.0), (3.0, 0.5), (2,))
WIDTH = np.array([4.0, 0.5])


def exact(a, b):
    return stats.beta(np.float64(a), np.float64(b), loc=[-1.0, 0.0], scale=WIDTH)


@jax.jit
def answers(d, other, x):
    return {"log_prob": d.log_prob(x), "entropy": d.entropy(), "kl": d.kl(other), "mode": d.mode(), "kl_self": d.kl(d)}


def test_against_float64():
    got = answers(Beta(A, B, *BOX), Beta(A2, B2, *BOX), X)
    y = [-1.0, 0.0] + WIDTH * X
    np.testing.assert_allclose(got["log_prob"], exact(A, B).logpdf(y).sum(-1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got["entropy"], exact(A, B).entropy().sum(-1), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(got["kl_self"], 0.0)
    # KL by the trapezoid rule over [0, 1], from densities of scipy
    x = np.linspace(1e-9, 1 - 1e-9, 200_001)[:, None, None]
    p, q = (stats.beta(np.float64(a), np.float64(b)) for a, b in ((A, B), (A2, B2)))
    kl = np.trapezoid(p.pdf(x) * (p.logpdf(x) - q.logpdf(x)), x, axis=0).sum(-1)
    np.testing.assert_allclose(got["kl"], kl, rtol=1e-4, atol=1e-5)
    # the mode: no nearby value has a higher density
    for step in (-0.01, 0.01):
        near = np.clip(got["mode"] + step, 1e-6, 1 - 1e-6)
        assert (p.logpdf(got["mode"]) >= p.logpdf(near)).all()


def test_samples_have_scipy_s_moments_and_entropy():
    n = 200_000
    d = Beta(*(np.broadcast_to(x[0], (n, 2)) for x in (A, B)), *BOX)
    x, log_p, entropy = jax.jit(lambda key: ((x := d.sample(key)), d.log_prob(x), d.entropy()[0]))(jax.random.key(0))
    x, log_p = np.asarray(x, np.float64), np.asarray(log_p, np.float64)
    p = stats.beta(np.float64(A[0]), np.float64(B[0]))
    assert (np.abs(x.mean(0) - p.mean()) < 5 * p.std() / np.sqrt(n)).all()
    assert (np.abs(x.var(0) / p.var() - 1) < 5 * np.sqrt(3 / n)).all()
    assert abs(-log_p.mean() - float(entropy)) < 5 * log_p.std() / np.sqrt(n)


HEAD = head_for(SPACES["box"], "beta")


@jax.jit
def for_outputs(outputs, key):
    x = HEAD(outputs, None, None).sample(key)
    log_p, entropy = (lambda z: HEAD(z, None, None).log_prob(x)), (lambda z: HEAD(z, None, None).entropy())
    d = HEAD(outputs, None, None)
    return x, (jax.value_and_grad(log_p)(outputs), jax.value_and_grad(entropy)(outputs)), d.mode(), d.env_action(x)


@pytest.mark.parametrize("network_says", [-1e4, -50.0, 0.0, 50.0, 1e4])
def test_values_and_gradients_are_finite_for_extreme_outputs(network_says):
    """Check also that samples stay inside, where their density is finite."""
    for other in (-1e4, 0.0, 1e4):
        x, values, mode, sent = for_outputs(np.array([network_says] * 2 + [other] * 2, np.float32), jax.random.key(0))
        assert all(np.isfinite(v).all() for v in jax.tree.leaves(values)), other
        assert (x > 0).all()
        assert (x < 1).all()
        assert SPACES["box"].contains(np.asarray(sent))
        if other == network_says:
            np.testing.assert_allclose(mode, 0.5, atol=1e-6)


def test_beta_head_parameters():
    # softplus(0) + 1 = 1.6931, softplus(2) + 1 = 3.1269; alpha first
    d = head_for(SPACES["box"], "beta")(jnp.array([0.0, 2.0, 2.0, 0.0]), None, None)
    np.testing.assert_allclose([d.alpha, d.beta], [[1.693147, 3.126928], [3.126928, 1.693147]], rtol=1e-6)


def test_large_parameters():
    """Check a nearly deterministic policy, with a standard deviation of 1 % of the range."""
    a, b = np.float32(1200.0), np.float32(800.0)
    x = np.float32(0.61)
    got = answers(*[Beta(jnp.array([a]), jnp.array([b]), (0.0,), (1.0,), (1,))] * 2, jnp.array([x]))
    p = stats.beta(1200.0, 800.0)
    np.testing.assert_allclose(got["log_prob"], p.logpdf(np.float64(x)), atol=2e-3)
    np.testing.assert_allclose(got["entropy"], p.entropy(), atol=5e-3)
    gradient = jax.grad(lambda a: Beta(a, jnp.array([b]), (0.0,), (1.0,), (1,)).log_prob(jnp.array([x])))
    expected = np.log(np.float64(x)) - special.digamma(1200.0) + special.digamma(2000.0)
    np.testing.assert_allclose(gradient(jnp.array([a]))[0], expected, rtol=1e-3, atol=1e-6)


def test_zero_rows_have_finite_values_and_gradients():
    for x in (0.0, 1.0):
        log_p = lambda a, b, x=x: Beta(a, b, *BOX).log_prob(jnp.full(2, x))  # noqa: E731
        value, gradients = jax.value_and_grad(log_p, (0, 1))(jnp.asarray(A[0]), jnp.asarray(B[0]))
        assert np.isfinite(value)
        assert all(np.isfinite(g).all() for g in gradients)


def test_samples_never_reach_0_or_1():
    # a mean of 1 - 1e-9 is 1 in float32
    for a, b in ((1e9, 1.0), (1.0, 1e9)):
        d = Beta(jnp.full((100, 2), a), jnp.full((100, 2), b), *BOX)
        x = d.sample(jax.random.key(0))
        assert ((x > 0) & (x < 1)).all()
        assert np.isfinite(d.log_prob(x)).all()
