"""Categorical distribution: against scipy and closed forms in float64, sampling, masks, spaces with a start."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from scipy import special, stats

from ppax.distributions import Categorical
from ppax.distributions.categorical import FEW

LOGITS = np.random.default_rng(0).normal(0.0, 2.0, (7, 4, 5)).astype(np.float32)


@jax.jit
def answers(d, other, action, key):
    return {
        "log_prob": d.log_prob(action),
        "entropy": d.entropy(),
        "kl": d.kl(other),
        "mode": d.mode(),
        "sample": d.sample(key),
    }


@jax.jit
def gradients(z, mask, other):
    """Return gradients of log_prob (of action 0), entropy and kl with respect to the logits."""

    def f(z):
        d = Categorical.masked(z, mask)
        return {"log_prob": d.log_prob(jnp.array(0)), "entropy": d.entropy(), "kl": d.kl(other)}

    return jax.jacrev(f)(z)


@pytest.mark.parametrize("size", [1, 2, FEW, FEW + 1])
@pytest.mark.parametrize("batch", [(), (4,), (7, 4)])
def test_against_float64(batch, size):
    z = np.random.default_rng(size).normal(0.0, 2.0, (*batch, size)).astype(np.float32)
    other = z[..., ::-1]
    log_p, log_q = (special.log_softmax(x.astype(np.float64), -1) for x in (z, other))
    p = np.exp(log_p)
    for a in range(size):
        got = answers(Categorical(z), Categorical(other), np.full(batch, a, np.int32), jax.random.key(0))
        expected = {
            "log_prob": log_p[..., a],
            "entropy": stats.entropy(p, axis=-1),
            "kl": (p * (log_p - log_q)).sum(-1),
            "mode": z.argmax(-1),
        }
        for name, x in expected.items():
            assert got[name].shape == batch, name
            np.testing.assert_allclose(got[name], x, atol=3e-6, err_msg=name)
        assert got["sample"].shape == batch
        assert got["sample"].dtype == got["mode"].dtype == jnp.int32


@pytest.mark.parametrize("largest", [0, 1, 2])
def test_large_logits_stay_finite(largest):
    d = Categorical(jnp.roll(jnp.array([1e4, 0.0, -1e4]), largest))
    assert d.log_prob(jnp.array(largest)) == 0.0
    assert d.log_prob(jnp.array((largest + 2) % 3)) == -2e4
    assert d.entropy() == 0.0
    assert jnp.isfinite(jax.grad(lambda z: Categorical(z).entropy())(d.logits)).all()


def test_kl_of_itself_is_zero_and_differs_by_direction():
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.2, 0.3, 0.5])
    a, b = (Categorical(jnp.log(jnp.asarray(x, jnp.float32))) for x in (p, q))
    np.testing.assert_allclose(a.kl(a), 0.0, atol=1e-7)
    np.testing.assert_allclose(a.kl(b), stats.entropy(p, q), rtol=1e-5)
    np.testing.assert_allclose(b.kl(a), stats.entropy(q, p), rtol=1e-5)


def test_sampling_frequencies():
    n, p = 200_000, np.array([0.5, 0.3, 0.15, 0.05])
    d = Categorical(jnp.broadcast_to(jnp.log(jnp.asarray(p, jnp.float32)), (n, 4)))
    seen = np.bincount(d.sample(jax.random.key(1)), minlength=4) / n
    assert (np.abs(seen - p) < 5 * np.sqrt(p * (1 - p) / n)).all()


def test_rows_are_sampled_independently():
    d = Categorical(jnp.zeros((100_000, 2, 2)))
    a = d.sample(jax.random.key(2))
    # two fair coins agree half of the time: 5 sigma = 5 * .5 / sqrt(1e5) = .008
    assert abs((a[:, 0] == a[:, 1]).mean() - 0.5) < 0.008


def test_masked_actions_are_never_sampled_and_contribute_nothing():
    z = jnp.asarray(LOGITS[0, 0])
    mask = jnp.array([True, False, True, False, True])
    d = Categorical.masked(z, mask)
    inside = Categorical(z[np.array([0, 2, 4])])
    many = Categorical.masked(jnp.broadcast_to(z, (100_000, 5)), jnp.broadcast_to(mask, (100_000, 5)))
    seen = np.bincount(many.sample(jax.random.key(3)), minlength=5)
    assert seen[1] == seen[3] == 0
    p = np.asarray(jnp.exp(inside.log_probs), np.float64)
    assert (np.abs(seen[[0, 2, 4]] / 1e5 - p) < 5 * np.sqrt(p * (1 - p) / 1e5)).all()
    np.testing.assert_allclose(d.entropy(), inside.entropy(), rtol=1e-6)
    np.testing.assert_allclose([d.log_prob(jnp.array(a)) for a in (0, 2, 4)], inside.log_probs, rtol=1e-6)
    assert d.log_prob(jnp.array(1)) < -1e30
    highest = Categorical.masked(z, jnp.arange(5) != z.argmax())
    assert highest.mode() == np.argsort(LOGITS[0, 0])[-2]
    other = Categorical.masked(z[::-1], mask)
    np.testing.assert_allclose(d.kl(other), inside.kl(Categorical(z[::-1][np.array([0, 2, 4])])), rtol=1e-5)


def test_masks_of_different_rows_are_independent():
    d = Categorical.masked(jnp.zeros((2, 3)), jnp.array([[True, False, False], [False, True, True]]))
    np.testing.assert_allclose(d.entropy(), [0.0, np.log(2.0)], atol=1e-7)


@pytest.mark.parametrize("size", [FEW, FEW + 1])
def test_gradients_against_float64(size):
    z, other = np.random.default_rng(1).normal(0.0, 2.0, (2, size)).astype(np.float32)
    z[1] = z[0] = z.max()  # ties of the largest
    p, q = (special.softmax(x.astype(np.float64)) for x in (z, other))
    entropy, kl = stats.entropy(p), stats.entropy(p, q)
    expected = {
        "log_prob": np.eye(size)[0] - p,
        "entropy": -p * (np.log(p) + entropy),
        "kl": p * (np.log(p / q) - kl),
    }
    for name, gradient in gradients(z, None, Categorical(jnp.asarray(other))).items():
        np.testing.assert_allclose(gradient, expected[name], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("allowed", [(0,), (0, 2), (0, 1, 2, 3, 4), ()])
def test_gradients_with_a_mask_are_finite_and_leave_masked_logits_alone(allowed):
    mask = np.isin(np.arange(5), allowed)
    for name, gradient in gradients(LOGITS[0, 0], mask, Categorical.masked(jnp.asarray(LOGITS[0, 1]), mask)).items():
        assert np.isfinite(gradient).all(), name
        if allowed:
            np.testing.assert_array_equal(gradient[~mask], 0.0, err_msg=name)
        # one action, or none, which means the first, is certain whatever the logits
        assert (gradient != 0.0).any() == (len(allowed) > 1), name


def test_all_false_mask_allows_the_first_action_only():
    z = jnp.asarray(LOGITS[0, :2])
    d = Categorical.masked(z, jnp.array([[False] * 5, [True] * 4 + [False]]))
    np.testing.assert_array_equal(d.log_prob(jnp.array([0, 4]))[0], 0.0)
    assert (d.log_prob(jnp.array([1, 4])) < -1e30).all()
    assert d.entropy()[0] == d.kl(Categorical.masked(z[::-1], jnp.zeros((2, 5), bool)))[0] == 0.0
    assert d.entropy()[1] > 0.5
    many = Categorical.masked(jnp.broadcast_to(z[0], (10_000, 5)), jnp.zeros((10_000, 5), bool))
    assert not many.sample(jax.random.key(0)).any()
    np.testing.assert_array_equal(Categorical.masked(z, None).logits, z)


def test_importance_weights():
    # E_old[w] = 1 and E_old[w f] = E_new[f], here with f = the action's number
    n = 200_000
    old, new = (Categorical(jnp.broadcast_to(jnp.asarray(LOGITS[0, i]) / 4, (n, 5))) for i in (0, 1))
    a = old.sample(jax.random.key(4))
    w = np.exp(np.asarray(new.log_prob(a) - old.log_prob(a), np.float64))
    assert abs(w.mean() - 1.0) < 5 * w.std() / np.sqrt(n)
    wf = w * np.asarray(a)
    exact = (special.softmax(LOGITS[0, 1].astype(np.float64) / 4) * np.arange(5)).sum()
    assert abs(wf.mean() - exact) < 5 * wf.std() / np.sqrt(n)


def test_env_action_of_a_space_that_does_not_start_at_zero():
    space = spaces.Discrete(3, start=-1)
    d = Categorical(jnp.array([[0.0, 0.0, 5.0], [5.0, 0.0, 0.0]]), start=int(space.start))
    a = d.mode()
    np.testing.assert_array_equal(a, [2, 0])  # stored as 0 .. n - 1
    np.testing.assert_array_equal(d.env_action(a), [1, -1])
    sent = d.env_action(d.sample(jax.random.key(5)))
    assert all(space.contains(np.int64(x)) for x in sent)
    masked = Categorical.masked(d.logits, jnp.ones((2, 3), bool), start=-1)
    np.testing.assert_array_equal(masked.env_action(a), [1, -1])
