"""Two-hot critic: bins, targets and the mean by hand and in float64; initial V; refused options."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import ConfigError
from ppax.networks import mlp
from ppax.ppo.critics import TwoHot

LINEAR = TwoHot(-2.0, 4.0, 4, "linear")  # bins -2, 0, 2, 4
SYMLOG = TwoHot(-20.0, 20.0, 5)  # symlog(20) = log 21; half of it is log sqrt 21


def test_bins_by_hand():
    np.testing.assert_array_equal(LINEAR.bins(), [-2.0, 0.0, 2.0, 4.0])
    np.testing.assert_allclose(SYMLOG.bins(), [-20.0, 1 - 21**0.5, 0.0, 21**0.5 - 1, 20.0], rtol=1e-6)
    # -1 to 7: symlog -log 2 to log 8 = 3 log 2, in steps of log 2
    np.testing.assert_allclose(TwoHot(-1.0, 7.0, 5).bins(), [-1.0, 0.0, 1.0, 3.0, 7.0], rtol=1e-6, atol=1e-6)
    bins = np.asarray(TwoHot().bins(), np.float64)
    np.testing.assert_allclose([bins[0], bins[50], bins[100]], [-1e6, 0.0, 1e6], rtol=1e-5)
    assert (np.diff(bins) > 0).all()


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (-2.0, [1, 0, 0, 0]),  # on a bin: weight 1 there
        (0.0, [0, 1, 0, 0]),
        (2.0, [0, 0, 1, 0]),
        (4.0, [0, 0, 0, 1]),
        (1.5, [0, 0.25, 0.75, 0]),
        (-0.5, [0.25, 0.75, 0, 0]),
        (3.0, [0, 0, 0.5, 0.5]),
        (-7.0, [1, 0, 0, 0]),  # outside: the nearest bin
        (99.0, [0, 0, 0, 1]),
    ],
)
def test_targets_by_hand(target, expected):
    np.testing.assert_array_equal(LINEAR.encode(jnp.float32(target)), expected)


@pytest.mark.parametrize("critic", [LINEAR, SYMLOG, TwoHot(), TwoHot(0.0, 1e4, 31)], ids=str)
def test_two_hot_target_has_the_target_as_its_mean(critic):
    bins = np.asarray(critic.bins(), np.float64)
    inside = np.random.default_rng(0).uniform(size=(len(bins) - 1, 20)) * np.diff(bins)[:, None] + bins[:-1, None]
    targets = np.concatenate([bins, inside.ravel()]).astype(np.float32)
    p = np.asarray(jax.vmap(critic.encode)(targets), np.float64)
    assert (p >= 0.0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-6)
    assert ((p > 1e-6).sum(axis=1) <= 2).all()
    np.testing.assert_allclose(p[: len(bins)], np.eye(len(bins)), atol=1e-6)
    np.testing.assert_allclose(p @ bins, targets, rtol=1e-5, atol=1e-5)
    # logits log(t) give V = target
    numbers = jnp.log(jnp.maximum(jnp.float32(p), 1e-30))
    np.testing.assert_allclose(jax.vmap(critic.value, (None, 0))((), numbers), targets, rtol=2e-5, atol=1e-5)


def test_v_is_the_mean_by_hand():
    # p = (.1, .2, .3, .4): -.2 + 0 + .6 + 1.6
    v = LINEAR.value((), jnp.log(jnp.array([0.1, 0.2, 0.3, 0.4])) + 5.0)
    np.testing.assert_allclose(v, 2.0, rtol=1e-6)
    # unbiased for varying returns: half -20, half 20, and half 0 with half 20 (a mean in symlog would be 3.6)
    half = jnp.log(jnp.array([0.5, 1e-30, 1e-30, 1e-30, 0.5]))
    np.testing.assert_allclose(SYMLOG.value((), half), 0.0, atol=1e-5)
    np.testing.assert_allclose(SYMLOG.value((), jnp.log(jnp.array([1e-30, 1e-30, 0.5, 1e-30, 0.5]))), 10.0, rtol=1e-6)


def test_loss_and_gradient_by_hand():
    # p = (.1, .2, .3, .4), R = 1.5: t = (0, .25, .75, 0); loss -.25 log .2 - .75 log .3, slope p - t
    numbers = jnp.log(jnp.array([0.1, 0.2, 0.3, 0.4])) - 3.0
    loss, slope = jax.value_and_grad(LINEAR.error, argnums=1)((), numbers, jnp.float32(1.5), jnp.float32(99.0))
    np.testing.assert_allclose(loss, -0.25 * np.log(0.2) - 0.75 * np.log(0.3), rtol=1e-6)
    np.testing.assert_allclose(slope, [0.1, -0.05, -0.45, 0.4], rtol=1e-5)
    # a target a million times as large has no larger gradient
    slope = jax.grad(TwoHot(num_bins=4).error, argnums=1)((), numbers, jnp.float32(1e6), jnp.float32(0.0))
    np.testing.assert_allclose(slope, [0.1, 0.2, 0.3, -0.6], rtol=1e-5)


@pytest.mark.parametrize(
    ("critic", "start", "near"),
    [
        (TwoHot(), 0.0, 1e-4),
        (TwoHot(-500.0, 500.0, 101, "linear"), 0.0, 1e-4),
        (TwoHot(-100.0, 300.0, 51, "linear"), 0.0, 1e-3),
        (TwoHot(-300.0, 100.0), 0.0, 1e-3),
        (TwoHot(-1.0, 5.0, 2, "linear"), 0.0, 1e-4),
        # 0 is a bound or outside: within 1 % of the range (66, 35 and 12 without a tilt)
        (TwoHot(0.0, 1000.0, 101, "linear"), 0.0, 10.0),
        (TwoHot(-500.0, 0.0, 51, "linear"), 0.0, 5.0),
        (TwoHot(0.0, 1e6), 0.0, 2.0),
        (TwoHot(5.0, 1000.0), 5.0, 5.0),
        # bins 0, 1, 3, 7 have weights 1, e^(-10/3)/2, e^(-20/3)/4, e^-10/8
        (TwoHot(0.0, 7.0, 4), 0.018495, 1e-5),
    ],
    ids=str,
)
def test_initial_value_is_near_zero(critic, start, near):
    state, rescale = critic.init()
    assert state == ()
    assert rescale.scale == 0.0
    np.testing.assert_allclose(critic.value((), rescale.shift), start, atol=near)
    probability = np.asarray(jax.nn.softmax(rescale.shift), np.float64)
    assert probability.min() > 1e-12, "a bin that learning does not reach"


def test_initial_logits_of_symmetric_and_of_traced_ranges():
    for critic in (TwoHot(), TwoHot(-500.0, 500.0, 101, "linear")):
        np.testing.assert_array_equal(critic.init().rescale.shift, -jnp.log1p(jnp.abs(critic.bins())))
    lows = jnp.array([-300.0, -100.0])
    mapped = jax.vmap(lambda low: TwoHot(low, 300.0).init().rescale.shift)(lows)
    for low, logits in zip(lows, mapped, strict=True):
        np.testing.assert_allclose(logits, TwoHot(float(low), 300.0).init().rescale.shift, atol=1e-3)


def test_targets_outside_the_bins_are_reported():
    targets = jnp.array([-3.0, -2.0, 0.0, 4.0, 4.1, 9.0])
    valid = jnp.array([True, True, True, True, True, False])
    np.testing.assert_allclose(LINEAR.metrics((), targets, valid)["targets_outside"], 0.4, rtol=1e-6)


@pytest.mark.parametrize("low", [3.0, 5])
def test_an_empty_range_is_refused(low):
    with pytest.raises(ConfigError, match=r"critic: low = .* must be below high = 3"):
        TwoHot(low, 3.0).init()


def test_an_empty_range_is_refused_before_a_run_starts(tmp_path):
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env), critic=TwoHot(5.0, 3.0))
    with pytest.raises(ConfigError, match=r"critic: low = 5 must be below high = 3"):
        ppax.fit(agent, env, total_steps=64, num_steps=8, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
