"""Squashed and ball normals: against float64 change of variables, integration to 1, Monte Carlo, and extremes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from ppax.distributions import BallNormal, SquashedNormal, normal
from ppax.networks.heads import head_for
from support.worlds import SPACES

LOW, HIGH = (-1.0, 0.0, 2.0), (3.0, 0.5, 12.0)
BOX = (LOW, HIGH, (3,))
MEAN, LOG_STD = np.array([0.3, -1.2, 0.0], np.float32), np.array([-0.5, 0.3, -2.0], np.float32)
SQUASHED = SquashedNormal(MEAN, LOG_STD, *BOX)
BALL = BallNormal(MEAN, LOG_STD, (-2.0,) * 3, (2.0,) * 3, (3,), "float32", 2.0)


@jax.jit
def verbs(d, u):
    return d.log_prob(u), d.env_action(u)


@jax.jit
def minus_log_probs(d, key):
    """Return -log p of 10^6 samples, in rows."""
    rows = jax.vmap(lambda key: -d.log_prob(d.sample(key)))(jax.random.split(key, 1_000_000))
    return rows, d.entropy()


def squashed_jacobian(u):
    """Return log|dy/du| by 1 - tanh^2, accurate beyond float64: 4 e^-2|u| / (1 + e^-2|u|)^2."""
    a = np.abs(u.astype(np.longdouble))
    return np.log(4.0) - 2 * a - 2 * np.log1p(np.exp(-2 * a))


@pytest.mark.parametrize("u", [0.0, 1e-4, -0.7, 5.0, -10.0, 20.0, -20.0, 40.0])
def test_squashed_log_prob_is_exact_where_tanh_rounds_to_one(u):
    at = np.full(3, u, np.float32)
    half = (np.array(HIGH) - LOW) / 2
    normal = stats.norm(MEAN.astype(np.float64), np.exp(LOG_STD.astype(np.float64))).logpdf(at)
    expected = (normal - squashed_jacobian(at) - np.log(half)).sum()
    np.testing.assert_allclose(verbs(SQUASHED, at)[0], float(expected), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("length", [1e-6, 0.05, 0.15, 1.0, 5.0, 20.0])
def test_ball_log_prob_equals_the_jacobian_determinant(length):
    """Compare with the determinant of dy/du by complex-step differentiation; for long u with its eigenvalues."""
    u = (length * np.array([2.0, -1.0, 2.0]) / 3.0).astype(np.float32)

    def ball(u):
        r = np.sqrt((u**2).sum())
        return 2.0 * np.tanh(r) / r * u

    x = u.astype(np.float64)
    if length < 3.0:
        columns = [ball(x + 1e-30j * e).imag / 1e-30 for e in np.eye(3)]
        log_det = np.linalg.slogdet(np.array(columns))[1]
    else:  # across: tanh r / r, twice; along: 1 - tanh^2
        r = np.sqrt((x**2).sum())
        log_det = 3 * np.log(2.0) + 2 * np.log(np.tanh(r) / r) + float(squashed_jacobian(np.array([r]))[0])
    normal = stats.norm(MEAN.astype(np.float64), np.exp(LOG_STD.astype(np.float64))).logpdf(x).sum()
    np.testing.assert_allclose(verbs(BALL, u)[0], normal - log_det, rtol=1e-6, atol=5e-6)


def test_densities_integrate_to_one_over_box_and_ball():
    """Integrate by the midpoint rule over actions, not over u."""
    n = 20_000
    y = (np.arange(n) + 0.5) / n  # a share of the box [-1, 3]
    u = np.arctanh(2 * y - 1)[:, None].astype(np.float32)
    one = SquashedNormal(np.full((n, 1), 0.3, np.float32), np.full((n, 1), -0.5, np.float32), (-1.0,), (3.0,), (1,))
    log_p, sent = verbs(one, u)
    np.testing.assert_allclose(sent[:, 0], -1 + 4 * y, atol=1e-5)
    assert abs(np.exp(log_p).mean() * 4.0 - 1.0) < 1e-4

    side = 1000
    grid = np.stack(np.meshgrid(*[(np.arange(side) + 0.5) / side * 4 - 2] * 2), -1).reshape(-1, 2)
    grid = grid[(grid**2).sum(1) < 4.0]
    r = np.sqrt((grid**2).sum(1, keepdims=True)) / 2
    u = (grid / 2 * np.arctanh(r) / r).astype(np.float32)
    mean, log_std = np.array([0.3, -0.4], np.float32), np.array([-0.5, -1.0], np.float32)
    ball = BallNormal(
        *(np.broadcast_to(x, u.shape) for x in (mean, log_std)), (-2.0,) * 2, (2.0,) * 2, (2,), "float32", 2.0
    )
    log_p, sent = verbs(ball, u)
    np.testing.assert_allclose(sent, grid, atol=2e-5)
    assert abs(np.exp(np.asarray(log_p, np.float64)).sum() * (4 / side) ** 2 - 1.0) < 1e-4


@pytest.mark.parametrize("d", [SQUASHED, BALL], ids=["squashed", "ball"])
@pytest.mark.parametrize("wider", [0.0, 1.5])
def test_entropy_is_the_mean_of_minus_log_prob_of_a_million_samples(d, wider):
    d = type(d)(d.mean, d.log_std + np.float32(wider), *vars_of(d))
    surprise, entropy = minus_log_probs(d, jax.random.key(0))
    surprise = np.asarray(surprise, np.float64)
    assert abs(surprise.mean() - float(entropy)) < 4 * surprise.std() / 1000 + 5e-4


def vars_of(d):
    """Return its static fields, in order."""
    return [getattr(d, name) for name in list(vars(d))[2:]]


MEANS, STDS = [0.0, 0.1, 1.0, 10.0, -30.0], [1e-3, 0.1, 1.0, 5.0, 20.0]


def test_entropy_integral_against_float64_quadrature():
    mean, std = (x.ravel().astype(np.float32) for x in np.meshgrid(MEANS, STDS))
    got = jax.jit(normal.mean_log_cosh)(mean, np.log(std))
    in_one_dimension = jax.jit(normal.radial_means)(mean[:, None], np.log(std)[:, None])
    for i, (m, s) in enumerate(zip(mean.astype(np.float64), std.astype(np.float64), strict=True)):
        ends = m - 12 * s, m + 12 * s

        def integral(f, m=m, s=s, ends=ends):
            places = [x for x in (-3.0, 0.0, 3.0, m) if ends[0] < x < ends[1]]
            return integrate.quad(lambda u: f(u) * stats.norm.pdf(u, m, s), *ends, points=places, limit=500)[0]

        cosh = integral(lambda u: np.logaddexp(u, -u) - np.log(2.0))
        both = integral(lambda u: np.logaddexp(u, -u) - np.log(2.0) + np.log(np.tanh(u) / u if u else 1.0))
        assert abs(got[i] - cosh) < 3e-4, (m, s)
        assert abs(in_one_dimension.log_cosh[i] - cosh) < 3e-4, (m, s)
        assert abs(in_one_dimension.log_sinhc[i] - both) < 3e-4, (m, s)


def test_entropy_gradients_of_mean_and_scale():
    """Compare with differences of the float64 integral above: in 1-D H = log s - 2 E log cosh u + constant."""

    def entropy(m, s):
        f = lambda u: (np.logaddexp(u, -u) - np.log(2.0)) * stats.norm.pdf(u, m, s)  # noqa: E731
        return np.log(s) - 2 * integrate.quad(f, m - 12 * s, m + 12 * s, points=[0.0], limit=200)[0]

    gradient = jax.jit(jax.grad(lambda m, s: SquashedNormal(m, s, (-1.0,), (1.0,), (1,)).entropy(), (0, 1)))
    for m, s in ((0.4, 0.3), (0.4, 1.5), (-2.0, 4.0)):
        got = gradient(jnp.array([m], jnp.float32), jnp.log(jnp.array([s], jnp.float32)))
        by_mean = (entropy(m + 1e-4, s) - entropy(m - 1e-4, s)) / 2e-4
        by_log_std = (entropy(m, s * np.exp(1e-4)) - entropy(m, s * np.exp(-1e-4))) / 2e-4
        np.testing.assert_allclose([got[0][0], got[1][0]], [by_mean, by_log_std], atol=2e-3)
    # wide normals concentrate at the bounds, so there entropy decreases with the width, unlike that of the normal
    assert got[1][0] < 0.0


@pytest.mark.parametrize("d", [SQUASHED, BALL], ids=["squashed", "ball"])
def test_kl_equals_that_of_the_squashed_actions(d):
    other = type(d)(d.mean + np.float32(0.3), d.log_std * np.float32(0.7), *vars_of(d))

    @jax.jit
    def log_ratios(key):
        u = jax.vmap(d.sample)(jax.random.split(key, 200_000))
        return jax.vmap(lambda u: d.log_prob(u) - other.log_prob(u))(u), d.kl(other), d.kl(d)

    ratios, kl, none = log_ratios(jax.random.key(1))
    ratios = np.asarray(ratios, np.float64)
    assert abs(ratios.mean() - float(kl)) < 4 * ratios.std() / np.sqrt(len(ratios))
    assert none == 0.0


@pytest.mark.parametrize("d", [SQUASHED, BALL], ids=["squashed", "ball"])
@pytest.mark.parametrize("log_std", [-12.0, 0.0, 3.0])
def test_values_and_gradients_are_finite_at_extremes(d, log_std):
    @jax.jit
    def values_and_gradients(mean, log_std, u):
        def f(mean, log_std, u):
            now = type(d)(mean, log_std, *vars_of(d))
            return {"log_prob": now.log_prob(u), "entropy": now.entropy(), "kl": now.kl(d)}

        return f(mean, log_std, u), jax.jacrev(f, (0, 1, 2))(mean, log_std, u)

    for mean, u in ((0.0, 0.0), (0.0, 1e-5), (20.0, 20.0), (-20.0, 20.0)):
        got = values_and_gradients(*(np.full(3, x, np.float32) for x in (mean, log_std, u)))
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(got)), (mean, u)


def test_radial_jacobian_gradient_near_zero():
    # log|dy/du| = -(2 / 6 ... ): (d - 1) r^2 / 6 - (d + 1) r^2 / 2 = -5 r^2 / 3 for d = 3, so -10 u / 3 by u
    u = jnp.array([1e-3, -2e-3, 0.0])
    np.testing.assert_allclose(jax.grad(normal.log_det_radial)(u), -10.0 * u / 3.0, rtol=1e-4)


def test_saturated_actions_are_the_bound_and_keep_their_log_prob():
    u = np.array([[30.0] * 3, [40.0] * 3, [-40.0] * 3], np.float32)
    wide = SquashedNormal(*(np.broadcast_to(x, (3, 3)) for x in (MEAN, LOG_STD)), *BOX)
    log_p, sent = verbs(wide, u)
    np.testing.assert_array_equal(sent, [HIGH, HIGH, LOW])
    assert log_p[0] != log_p[1]


def test_env_actions_of_squashed_heads_have_the_shape_of_the_box():
    for name, family in (("wide", "squashed"), ("box", "squashed"), ("wide", "ball")):
        head = head_for(SPACES[name], family)
        zeros = np.zeros(head.size, np.float32)
        sent = verbs(head(zeros, zeros, None), zeros)[1]
        assert sent.shape == SPACES[name].shape
        np.testing.assert_allclose(sent, (SPACES[name].low + SPACES[name].high) / 2, atol=1e-7)
