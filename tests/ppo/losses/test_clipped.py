"""Clipped surrogate: gradient of each branch, effect of each coefficient, invalid rows."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from ppax.distributions import Categorical
from ppax.ppo.losses import ClippedSurrogate, total_loss
from support.loss_rows import batch_of, compiled, run


def test_the_gradient_is_zero_only_outside_the_clip_range_in_the_improving_direction():
    # d loss / d log_prob = -A w / n, and 0 where w left [.8, 1.2] in the wanted direction
    cases = [
        # A, w, -A w or 0
        (1.0, 1.5, 0.0),
        (1.0, 1.1, -1.1),
        (1.0, 0.5, -0.5),  # gone the wrong way: must be able to come back
        (-1.0, 0.5, 0.0),
        (-1.0, 0.9, 0.9),
        (-1.0, 1.5, 1.5),  # the pessimistic branch: for A < 0 a large ratio is not clipped
        (2.0, 1.0, -2.0),  # a tie of both branches: the whole gradient, not half
        (-2.0, 1.0, 2.0),
    ]
    advantage, ratio, expected = np.array(cases).T
    got = run(ClippedSurrogate(0.2), np.log(ratio), batch_of(advantage))
    np.testing.assert_allclose(got.by_log_prob * 8, expected, rtol=1e-5)
    # the value: -mean min(w A, clip(w) A) = -(1.2 + 1.1 + .5 - .8 - .9 - 1.5 + 2 - 2) / 8
    np.testing.assert_allclose(got.loss, 0.05, rtol=1e-5)


def test_every_term_by_hand():
    # w = [1.5, .5], A = [1, -2]: min(1.5, 1.2) = 1.2; min(-1, -1.6) = -1.6; policy loss -(1.2 - 1.6) / 2 = .2
    # V - R = [1, -3]: value loss .5 (1 + 9) / 2 = 2.5;  entropy (1 + 2) / 2 = 1.5
    # loss = .2 + .5 * 2.5 - .1 * 1.5 = 1.3
    batch = batch_of([1.0, -2.0], old_log_prob=-1.0, target=[1.0, 5.0])
    loss, metrics, *_ = run(ClippedSurrogate(0.2), np.log([1.5, 0.5]) - 1.0, batch, 2.0, [1.0, 2.0], ent_coef=0.1)
    expected = {
        "loss": 1.3,
        "policy_loss": 0.2,
        "value_loss": 2.5,
        "entropy": 1.5,
        # k3 = w - 1 - log w: (.5 - .405465 + -.5 + .693147) / 2 = .143841
        "approx_kl": 0.143841,
        "clip_fraction": 1.0,
        "ratio_max": 1.5,
        "ratio_min": 0.5,
    }
    np.testing.assert_allclose(loss, 1.3, rtol=1e-5)
    assert metrics.keys() == expected.keys()
    for name, x in expected.items():
        np.testing.assert_allclose(metrics[name], x, rtol=1e-5, err_msg=name)


def test_dual_clip_bounds_the_ratio_for_negative_advantages():
    # c = 3: for A < 0 the objective is max(min(w A, clip(w) A), 3 A), so nothing beyond w = 3; A > 0 as without
    cases = [
        # A, w, objective, -A w or 0
        (-2.0, 4.0, -6.0, 0.0),
        (-2.0, 2.5, -5.0, 5.0),
        (-2.0, 0.5, -1.6, 0.0),
        (2.0, 4.0, 2.4, 0.0),
        (2.0, 0.5, 1.0, -1.0),
    ]
    for advantage, ratio, objective, slope in cases:
        got = run(ClippedSurrogate(0.2, dual_clip=3.0), np.log([ratio]), batch_of([advantage]))
        np.testing.assert_allclose([got.loss, got.by_log_prob[0]], [-objective, slope], rtol=1e-5)
    without = run(ClippedSurrogate(0.2), np.log([4.0]), batch_of([-2.0]))
    np.testing.assert_allclose([without.loss, without.by_log_prob[0]], [8.0, 8.0], rtol=1e-5)


def test_clip_fraction_counts_the_rows_outside():
    metrics = run(ClippedSurrogate(0.2), np.log([0.7, 0.85, 1.15, 1.3]), batch_of(np.ones(4))).metrics
    np.testing.assert_allclose(metrics["clip_fraction"], 0.5)


def test_clip_eps_changes_the_gradient():
    # w = 1.3, A = 1: outside .2, inside .4
    narrow, wide = (run(ClippedSurrogate(eps), np.log([1.3]), batch_of([1.0])).by_log_prob for eps in (0.2, 0.4))
    assert narrow == 0.0
    np.testing.assert_allclose(wide, -1.3, rtol=1e-6)


def test_vf_coef_scales_the_value_s_gradient():
    # d / d V of vf_coef * .5 mean (V - R)^2 = vf_coef (V - R) / n
    for vf_coef in (0.0, 0.5, 2.0):
        got = run(ClippedSurrogate(), [0.0, 0.0], batch_of([0.0, 0.0], target=[1.0, 5.0]), 2.0, vf_coef=vf_coef)
        np.testing.assert_allclose(got.by_value, vf_coef * np.array([1.0, -3.0]) / 2, rtol=1e-6)


def test_ent_coef_rewards_entropy():
    # d loss / d H = -ent_coef / n: descent raises the entropy
    for ent_coef in (0.0, 0.1):
        got = run(ClippedSurrogate(), [0.0, 0.0], batch_of([0.0, 0.0]), entropy=[1.0, 2.0], ent_coef=ent_coef)
        np.testing.assert_allclose(got.by_entropy, [-ent_coef / 2] * 2, rtol=1e-6)
        np.testing.assert_allclose(got.metrics["entropy"], 1.5, rtol=1e-6)  # also without a bonus


def test_ent_coef_through_a_real_distribution():
    # With A = 0 only the bonus is left: d loss / d z_j = ent_coef p_j (log p_j + H)
    batch = batch_of([0.0], action=np.array([1]))
    z = np.array([[0.0, 1.0, 3.0]], np.float32)

    @jax.jit
    @jax.grad
    def gradient(z):
        terms = ClippedSurrogate()(Categorical(z), batch)
        rest = {"further": {}, "metrics": {}, "batch": batch}
        return total_loss(terms, jnp.zeros(1), Categorical(z), vf_coef=0.5, ent_coef=0.1, **rest).loss

    p = np.exp(z[0]) / np.exp(z[0]).sum()
    entropy = -(p * np.log(p)).sum()
    np.testing.assert_allclose(gradient(z)[0], 0.1 * p * (np.log(p) + entropy), rtol=1e-5)


def test_invalid_rows_weigh_nothing():
    # Rows 1 and 3 do not count; what stands in them must change neither value nor gradient, nor any metric.
    valid = np.array([True, False, True, False])

    def everything(junk):
        advantage, target, log_prob, value = (
            np.where(valid, x, junk) for x in ([2, 0, -1, 0], [1, 1, 1, 1], [0.1, 0, -0.1, 0], [0, 0, 3, 0])
        )
        batch = batch_of(advantage, target=target, valid=valid)
        return run(ClippedSurrogate(0.2), log_prob, batch, value, np.abs(value), ent_coef=0.1)

    a, b, c = (everything(junk) for junk in (0.0, 1e6, -50.0))
    jax.tree.map(np.testing.assert_array_equal, a, b)
    jax.tree.map(np.testing.assert_array_equal, a, c)
    for gradient in a[2:]:
        np.testing.assert_array_equal(gradient != 0.0, valid)
    # the means are over the two rows that count: .5 ((0 - 1)^2 + (3 - 1)^2) / 2 = 1.25, (0 + 3) / 2 = 1.5,
    # -(2 e^.1 - e^-.1) / 2 = -.652753
    np.testing.assert_allclose(a.metrics["value_loss"], 1.25, rtol=1e-6)
    np.testing.assert_allclose(a.metrics["entropy"], 1.5, rtol=1e-6)
    np.testing.assert_allclose(a.metrics["policy_loss"], -(2 * np.exp(0.1) - np.exp(-0.1)) / 2, rtol=1e-6)
    np.testing.assert_allclose(a.metrics["ratio_max"], np.exp(0.1), rtol=1e-6)


def test_no_valid_row_gives_zero_and_no_gradient():
    got = run(ClippedSurrogate(), [1.0, 1.0], batch_of([1.0, 2.0], valid=False), 3.0, 3.0, ent_coef=0.1)
    assert got.loss == 0.0
    for gradient in got[2:]:
        np.testing.assert_array_equal(gradient, 0.0)


def test_an_extreme_ratio_stays_finite():
    for log_ratio in (1e3, -1e3, 89.0):  # e^89 is infinite in float32
        for advantage in (1.0, -1.0, 0.0):
            got = run(ClippedSurrogate(), [log_ratio / 2], batch_of([advantage], old_log_prob=-log_ratio / 2))
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(got)), (log_ratio, advantage)


def test_the_log_ratio_bound_does_not_change_ordinary_ratios():
    metrics = run(ClippedSurrogate(), [15.0], batch_of([1.0])).metrics
    np.testing.assert_allclose(metrics["ratio_max"], np.exp(15.0), rtol=1e-5)


def test_approx_kl_is_never_negative():
    # Each row alone, log-ratios of 1e-8 to 10 of either sign. Written as (w - 1) - log w, rounding makes rows of
    # 1e-4 as low as -6e-8, larger than their true 5e-9.
    size = np.logspace(-8, 1, 500)
    log_ratio = jnp.asarray(np.concatenate([size, -size]), jnp.float32)
    one_row = jax.vmap(lambda x: compiled(ClippedSurrogate(), x, x, x, batch_of([1.0])).metrics["approx_kl"])
    kl = np.asarray(one_row(log_ratio[:, None]))
    assert (kl >= 0.0).all()
    x = np.asarray(log_ratio, np.float64)
    np.testing.assert_allclose(kl, np.expm1(x) - x, rtol=1e-3, atol=2e-9)


def test_approx_kl_is_the_kl_from_old_to_new():
    # old N(0, 1), new N(.1, .8^2): KL(old || new) = log(.8) + (1 + .01) / (2 * .64) - .5 = .06592,
    # KL(new || old) = -log(.8) + (.64 + .01) / 2 - .5 = .04814: the other direction is far outside the error.
    rows = 400_000
    action = np.random.default_rng(0).normal(size=rows)
    old, new = stats.norm.logpdf(action), stats.norm.logpdf(action, 0.1, 0.8)
    kl = run(ClippedSurrogate(), new, batch_of(np.ones(rows), old_log_prob=old)).metrics["approx_kl"]
    exact = np.log(0.8) + 1.01 / 1.28 - 0.5
    x = new - old
    error = (np.expm1(x) - x).std() / np.sqrt(rows)
    assert abs(kl - exact) < 5 * error
    assert 5 * error < 0.002  # the two directions are .018 apart
