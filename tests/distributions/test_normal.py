"""Normal distribution: against scipy in float64, sampling, clipping of env actions only, every shape of Box."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import stats

from ppax.distributions import Normal
from ppax.networks.heads import head_for

RNG = np.random.default_rng(0)
MEAN, OTHER_MEAN, ACTION = RNG.normal(0.0, 1.0, (3, 7, 4, 3)).astype(np.float32)
LOG_STD, OTHER_LOG_STD = RNG.normal(-0.5, 0.7, (2, 7, 4, 3)).astype(np.float32)


@jax.jit
def answers(d, other, action, key):
    return {
        "log_prob": d.log_prob(action),
        "entropy": d.entropy(),
        "kl": d.kl(other),
        "kl_self": d.kl(d),
        "mode": d.mode(),
        "sample": d.sample(key),
    }


@pytest.mark.parametrize("batch", [(), (4,), (7, 4)])
def test_against_float64(batch):
    at = (0,) * (2 - len(batch))
    mean, log_std, m2, s2, action = (x[at] for x in (MEAN, LOG_STD, OTHER_MEAN, OTHER_LOG_STD, ACTION))
    got = answers(Normal(mean, log_std), Normal(m2, s2), action, jax.random.key(0))
    exact = stats.norm(mean.astype(np.float64), np.exp(log_std.astype(np.float64)))
    var, var2 = np.exp(2.0 * log_std.astype(np.float64)), np.exp(2.0 * s2.astype(np.float64))
    gap = mean.astype(np.float64) - m2
    expected = {
        "log_prob": exact.logpdf(action).sum(-1),
        "entropy": exact.entropy().sum(-1),
        # KL = log(s2 / s1) + (s1^2 + gap^2) / (2 s2^2) - 1/2, a dimension
        "kl": (0.5 * np.log(var2 / var) + (var + gap**2) / (2 * var2) - 0.5).sum(-1),
        "kl_self": np.zeros(batch),
    }
    for name, x in expected.items():
        assert got[name].shape == batch, name
        np.testing.assert_allclose(got[name], x, rtol=1e-5, atol=5e-6, err_msg=name)
    np.testing.assert_array_equal(got["mode"], mean)
    assert got["sample"].shape == (*batch, 3)


def test_kl_of_very_different_standard_deviations_is_finite():
    # sigma_1 = e^-50, sigma_2 = 1: KL = 50 + (e^-100 + 0) / 2 - 1/2 = 49.5, though e^-100 is 0 in float32
    narrow, wide = (Normal(jnp.zeros(1), jnp.full(1, s)) for s in (-50.0, 0.0))
    np.testing.assert_allclose(narrow.kl(wide), 49.5, rtol=1e-6)


def test_sampling_moments():
    n, mean, std = 200_000, np.array([0.5, -2.0]), np.array([0.1, 3.0])
    d = Normal(jnp.broadcast_to(jnp.asarray(mean, jnp.float32), (n, 2)), jnp.log(jnp.full((n, 2), std, jnp.float32)))
    x = np.asarray(d.sample(jax.random.key(1)), np.float64)
    z = (x - mean) / std
    root = np.sqrt(n)
    assert (np.abs(z.mean(0)) < 5 / root).all()  # mean: std 1 / sqrt n
    assert (np.abs((z**2).mean(0) - 1) < 5 * np.sqrt(2) / root).all()  # variance: std sqrt(2 / n)
    assert (np.abs((z**3).mean(0)) < 5 * np.sqrt(15) / root).all()
    assert (np.abs((z**4).mean(0) - 3) < 5 * np.sqrt(96) / root).all()
    assert abs((z[:, 0] * z[:, 1]).mean()) < 5 / root  # dimensions are independent


def test_entropy_is_the_mean_of_minus_log_prob():
    n = 200_000
    d = Normal(jnp.zeros((n, 2)), jnp.broadcast_to(jnp.array([-1.0, 0.5]), (n, 2)))
    surprise = -np.asarray(d.log_prob(d.sample(jax.random.key(2))), np.float64)
    assert abs(surprise.mean() - float(d.entropy()[0])) < 5 * surprise.std() / np.sqrt(n)


def test_importance_weights():
    # E_old[w] = 1 and E_old[w f] = E_new[f], here with f = the action
    n = 200_000
    old = Normal(jnp.zeros((n, 1)), jnp.zeros((n, 1)))
    new = Normal(jnp.full((n, 1), 0.2), jnp.full((n, 1), -0.1))
    a = old.sample(jax.random.key(3))
    w = np.exp(np.asarray(new.log_prob(a) - old.log_prob(a), np.float64))
    assert abs(w.mean() - 1.0) < 5 * w.std() / np.sqrt(n)
    wf = w * np.asarray(a)[:, 0]
    assert abs(wf.mean() - 0.2) < 5 * wf.std() / np.sqrt(n)


def test_env_action_is_clipped_and_log_prob_is_of_the_unclipped_action():
    d = Normal(jnp.zeros((1000, 1)), jnp.zeros((1000, 1)), low=(-0.5,), high=(0.5,), shape=(1,))
    raw = d.sample(jax.random.key(4))
    sent = d.env_action(raw)
    outside = np.abs(np.asarray(raw)) > 0.5
    assert 0.5 < outside.mean() < 0.7  # 2 (1 - Phi(.5)) = .617
    np.testing.assert_array_equal(sent, np.clip(raw, -0.5, 0.5))
    np.testing.assert_allclose(d.log_prob(raw), stats.norm.logpdf(np.asarray(raw, np.float64))[:, 0], rtol=1e-5)
    assert (d.log_prob(raw) != d.log_prob(sent))[outside[:, 0]].all()


BOXES = [
    spaces.Box(-1.0, 1.0, (1,)),
    spaces.Box(np.array([[-1, -2, -3], [0, 0, 0]], np.float32), np.array([[1, 2, 3], [1, 2, 3]], np.float32)),
    spaces.Box(-np.inf, np.inf, (2,)),
    spaces.Box(np.array([0, -np.inf], np.float32), np.array([np.inf, 1], np.float32)),
    spaces.Box(-1.0, 1.0, ()),
]


@pytest.mark.parametrize("batch", [(), (4,), (7, 4)])
@pytest.mark.parametrize("box", BOXES, ids=str)
def test_every_box(box, batch):
    head = head_for(box)
    assert head.size == int(np.prod(box.shape))
    raw = RNG.normal(0.0, 3.0, (*batch, head.size)).astype(np.float32)

    @jax.jit
    def sent_and_shapes(raw):
        d = head(jnp.zeros_like(raw), jnp.zeros_like(raw), None)
        return d.env_action(raw), d.log_prob(raw), d.entropy()

    sent, *others = (np.asarray(x) for x in sent_and_shapes(raw))
    assert all(x.shape == batch for x in others)
    assert sent.shape == (*batch, *box.shape)
    assert sent.dtype == box.dtype
    np.testing.assert_array_equal(sent, np.clip(raw.reshape(sent.shape), box.low, box.high))
    for one in sent.reshape(-1, *box.shape):
        assert box.contains(np.asarray(one))


def test_gradients_by_hand():
    # d log p / d mu = z / sigma, d log p / d log sigma = z^2 - 1, at mu = 1, sigma = 2, a = 4: z = 1.5
    by_mean, by_log_std = jax.grad(lambda m, s: Normal(m, s).log_prob(jnp.array([4.0])), argnums=(0, 1))(
        jnp.array([1.0]), jnp.log(jnp.array([2.0]))
    )
    np.testing.assert_allclose([by_mean[0], by_log_std[0]], [0.75, 1.25], rtol=1e-5)
