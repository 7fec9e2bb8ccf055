"""KL penalty, DPO, SPO and rollback: values and gradients in closed form, and properties of all losses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from ppax.ppo import critics
from ppax.ppo.critics import Regression
from ppax.ppo.losses import DPO, SPO, ClippedSurrogate, KLPenalty, Rollback
from support.loss_rows import batch_of, run

LOSSES = [ClippedSurrogate(), KLPenalty(), DPO(), SPO(), Rollback()]


def test_kl_penalty_by_hand():
    # w = [2, .5], A = [1, -2], coefficient 3: k3 = w - 1 - log w = [.306853, .193147]
    # -w A + 3 k3 = [-2 + .920558, 1 + .579442]; slopes by log w: -w A + 3 (w - 1) = [-2 + 3, 1 - 1.5]
    got = run(KLPenalty(3.0), np.log([2.0, 0.5]), batch_of([1.0, -2.0]))
    np.testing.assert_allclose(got.loss, (-1.079442 + 1.579442) / 2, rtol=1e-5)
    np.testing.assert_allclose(got.by_log_prob * 2, [1.0, -0.5], rtol=1e-5)
    np.testing.assert_allclose(got.metrics["approx_kl"], (0.306853 + 0.193147) / 2, rtol=1e-5)


def test_the_penalty_pulls_back_to_the_policy_that_acted():
    """With no advantage only the penalty is left: its gradient is that of the exact KL(old || new)."""
    rows = 200_000
    action = np.random.default_rng(0).normal(size=rows)
    old = stats.norm.logpdf(action).astype(np.float32)

    def penalty(mean):
        log_prob = -0.5 * (action - mean) ** 2 - 0.5 * np.log(2 * np.pi)
        return run(KLPenalty(1.0), log_prob.astype(np.float32), batch_of(np.zeros(rows), old_log_prob=old)).loss

    # KL(N(0, 1) || N(m, 1)) = m^2 / 2; k3's spread at m = .3 is about .07
    for mean in (0.3, -0.3):
        assert abs(penalty(mean) - 0.045) < 5 * 0.07 / np.sqrt(rows)


def test_dpo_by_hand():
    # A = 1, w = 3, alpha 2: x = 2, drift = relu(2 - 2 tanh 1) = .476812; loss -(3 - .476812)
    # slope by log w: -w A + w A tanh^2(x / 2) = -3 (1 - .580026) = -1.259923
    got = run(DPO(), np.log([3.0]), batch_of([1.0]))
    np.testing.assert_allclose([got.loss, got.by_log_prob[0]], [-2.523188, -1.259923], rtol=1e-5)
    # A = -1, w = .5, beta .6: x = log 2 = .693147, tanh(1.155245) = .819480, drift = .693147 - .491688 = .201459
    # loss = .5 + .201459; slope -w A + A tanh^2 = .5 - .671547
    got = run(DPO(), np.log([0.5]), batch_of([-1.0]))
    np.testing.assert_allclose([got.loss, got.by_log_prob[0]], [0.701459, -0.171547], rtol=1e-4)
    # where the ratio went the unwanted way x < 0 and there is no drift: the plain surrogate
    for advantage, ratio in ((1.0, 0.5), (-1.0, 3.0)):
        got = run(DPO(), np.log([ratio]), batch_of([advantage]))
        np.testing.assert_allclose([got.loss, got.by_log_prob[0]], [-ratio * advantage] * 2, rtol=1e-5)


def test_spo_by_hand():
    # A = 2, w = 1.5, eps .25: penalty 2 * .25 / .5 = 1, loss 1 - 3; slope by log w: 2 * .5 * 1.5 / .25 - 3 = 3
    got = run(SPO(0.25), np.log([1.5]), batch_of([2.0]))
    np.testing.assert_allclose([got.loss, got.by_log_prob[0]], [-2.0, 3.0], rtol=1e-5)
    # A = -1, w = .5: penalty .25 / .5 = .5, loss .5 + .5; slope -.5 * .5 / .25 + .5 = -.5
    got = run(SPO(0.25), np.log([0.5]), batch_of([-1.0]))
    np.testing.assert_allclose([got.loss, got.by_log_prob[0]], [1.0, -0.5], rtol=1e-5)
    for advantage, best in ((3.0, 1.25), (-3.0, 0.75)):  # the optima, whatever the size of the advantage
        np.testing.assert_allclose(run(SPO(0.25), np.log([best]), batch_of([advantage])).by_log_prob, 0.0, atol=1e-5)
    got = run(SPO(0.25), np.log([1.2, 1.3, 0.7, 0.8]), batch_of([1.0] * 4))
    assert got.metrics["clip_fraction"] == 0.5


def test_rollback_by_hand():
    # A = 2, w = 1.5, eps .2, alpha .5: F = 1.5 * 1.2 - .5 * 1.5 = 1.05; loss -2.1; slope by log w: 2 * .5 * 1.5
    got = run(Rollback(0.2, 0.5), np.log([1.5]), batch_of([2.0]))
    np.testing.assert_allclose([got.loss, got.by_log_prob[0]], [-2.1, 1.5], rtol=1e-5)
    # A = -1, w = .5: F = 1.5 * .8 - .25 = .95; loss .95; slope -.5 * .5
    got = run(Rollback(0.2, 0.5), np.log([0.5]), batch_of([-1.0]))
    np.testing.assert_allclose([got.loss, got.by_log_prob[0]], [0.95, -0.25], rtol=1e-5)
    for advantage, ratio in ((1.0, 0.5), (-1.0, 1.5), (1.0, 1.1), (-1.0, 0.9)):  # the plain surrogate
        got = run(Rollback(0.2, 0.5), np.log([ratio]), batch_of([advantage]))
        np.testing.assert_allclose([got.loss, got.by_log_prob[0]], [-ratio * advantage] * 2, rtol=1e-5)
    log_ratio, advantage = np.random.default_rng(0).normal(size=(2, 100))
    old, new = (run(one, log_ratio, batch_of(advantage)) for one in (ClippedSurrogate(0.2), Rollback(0.2, 0.0)))
    np.testing.assert_allclose(new.by_log_prob, old.by_log_prob, atol=1e-6)


def test_alpha_is_for_good_actions_and_beta_for_bad_ones():
    def slope(advantage, ratio, **numbers):
        return float(run(DPO(**numbers), np.log([ratio]), batch_of([advantage])).by_log_prob[0])

    assert slope(1.0, 3.0, alpha=1.0) != slope(1.0, 3.0)
    assert slope(1.0, 3.0, beta=0.1) == slope(1.0, 3.0)
    assert slope(-1.0, 0.5, beta=0.1) != slope(-1.0, 0.5)
    assert slope(-1.0, 0.5, alpha=1.0) == slope(-1.0, 0.5)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_at_the_old_policy_every_loss_has_the_policy_gradient(loss):
    advantage = np.array([1.0, -2.0, 0.0, 3.0])
    got = run(loss, np.full(4, -1.3), batch_of(advantage, old_log_prob=-1.3))
    np.testing.assert_allclose(got.by_log_prob * 4, -advantage, rtol=1e-6)
    assert got.metrics["approx_kl"] == 0.0
    assert got.metrics["ratio_max"] == got.metrics["ratio_min"] == 1.0


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_value_and_entropy_terms_and_invalid_rows(loss):
    """The same critic and entropy in each loss; an invalid row changes nothing, whatever its values."""
    critic, coefficients = Regression(value_clip=1.0, huber_delta=2.0), {"vf_coef": 2.0, "ent_coef": 0.1}
    for junk in (0.0, 1e6, -50.0):
        valid = np.array([True, False, True])
        advantage, log_prob, value = (np.where(valid, x, junk) for x in ([0, 0, 0], [0, 0, 0], [5, 0, 5]))
        batch = batch_of(advantage, target=np.array([-3.0, junk, 9.0]), valid=valid)
        got = run(loss, log_prob, batch, value, np.array([1.0, junk, 2.0]), critic, **coefficients)
        # 2 * (14 + 14) / 2 - .1 * 1.5, as in test_regression: huber and clip together
        np.testing.assert_allclose(got.loss, 28.0 - 0.15, rtol=1e-6)
        np.testing.assert_allclose(got.by_value, [2.0, 0.0, 0.0], rtol=1e-6)
        np.testing.assert_allclose(got.by_entropy, [-0.05, 0.0, -0.05], rtol=1e-6)
        np.testing.assert_array_equal(got.by_log_prob, 0.0)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_an_extreme_ratio_stays_finite(loss):
    for log_ratio in (1e3, -1e3, 89.0):
        for advantage in (1.0, -1.0, 0.0):
            got = run(loss, [log_ratio / 2], batch_of([advantage], old_log_prob=-log_ratio / 2))
            assert all(np.isfinite(x).all() for x in jax.tree.leaves(got)), (log_ratio, advantage)


def test_options_that_are_off_are_not_in_the_program():
    def size(loss, **options):
        batch = batch_of(np.ones(3))

        def terms(x):
            return loss(_Constant(), batch).loss, critics.value_losses(Regression(**options), (), x[:, None], batch)

        return len(jax.make_jaxpr(terms)(jnp.zeros(3)).jaxpr.eqns)

    plain = size(ClippedSurrogate())
    assert size(ClippedSurrogate(dual_clip=1.5)) > plain
    assert all(size(ClippedSurrogate(), **{name: 1.5}) > plain for name in ("value_clip", "huber_delta"))
    assert size(KLPenalty()) < plain


class _Constant:
    def log_prob(self, action):
        return jnp.zeros(3)
