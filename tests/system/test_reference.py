"""Whole `PPO.update` against the float64 reference learner: parameters, statistics and losses."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import reference
from ppax.devices.layout import Program
from ppax.extensions import ExtensionState
from ppax.extensions.kl_control import KLState
from ppax.ppo import batches
from support.reference_cases import (
    CASES,
    HYPER,
    LAID_OUT,
    OPTIONS,
    PARAMS_ATOL,
    distance,
    flat_params,
    hyper_of,
    play,
    replay,
)


@pytest.mark.parametrize(
    "program",
    [Program(1, 5), Program(2, 4), *(pytest.param(Program(2, n), marks=pytest.mark.nightly) for n in (None, 1))],
    ids=str,
)
@pytest.mark.parametrize(
    "case",
    [*CASES[:2], LAID_OUT, CASES[4]],
    ids=["rows", "sequences", "popart", "masked"],
)
def test_every_layout_of_the_program_agrees_with_the_reference(case, program):
    assert distance(case, replay(case, hyper_of(case)), program) < PARAMS_ATOL


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if i < 9 or i % 3 == 0 else pytest.mark.nightly) for i, case in enumerate(CASES)],
    ids=lambda case: "-".join(map(str, case)),
)
def test_update_agrees_with_the_reference(case):
    played, updated = play(case), replay(case, hyper_of(case))
    assert distance(case, updated) < PARAMS_ATOL
    moved = max(np.abs(updated[-1].params[k] - p).max() for k, p in played.start.items())
    assert moved > 1e-3  # the parameters changed
    for learner, metrics, ours in zip(played.learners, played.metrics, updated, strict=True):
        history = {name: np.array([step[name] for step in ours.losses]) for name in ours.losses[0]}
        assert len(ours.losses) == 4 * case.minibatches
        rows = history.pop("rows") > 0
        del history["choices"]
        for name, x in history.items():
            x = x[rows]  # leave out minibatches without a valid row
            expected = x.max() if name == "ratio_max" else x.min() if name == "ratio_min" else x.mean()
            # standardisation in a minibatch of few rows divides by a small std, and the policy loss is a mean of terms
            # of size 1 that cancel
            np.testing.assert_allclose(metrics[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
        dev = max(history["ratio_max"][0] - 1.0, 1.0 - history["ratio_min"][0])
        np.testing.assert_allclose(metrics["ratio_first_max_dev"], dev, rtol=1e-3, atol=2e-6)
        for ships, theirs in ((learner.obs_stats, ours.opt_state.obs), (learner.reward_stats, ours.opt_state.reward)):
            if ships is not None:
                assert ships.count[0] == theirs.count
                np.testing.assert_allclose(ships.mean.high, theirs.mean, rtol=1e-6, atol=1e-6)
                np.testing.assert_allclose(ships.var.high, theirs.var, rtol=1e-6)
        if hyper_of(case).critic == "popart":
            expected = reference.scale_of(ours.opt_state.targets)
            theirs = learner.critic.mean, jnp.sqrt(learner.critic.var), learner.critic.weight
            np.testing.assert_allclose(theirs, [*expected.values(), ours.opt_state.targets.weight], rtol=1e-5)
            np.testing.assert_allclose([metrics["popart_mean"], metrics["popart_std"]], theirs[:2])
        rate, coef, _ = learner.extensions.get("kl_control", ExtensionState(KLState())).state
        np.testing.assert_allclose(1.0 if rate is None else rate, ours.opt_state.rate, rtol=1e-5)
        np.testing.assert_allclose(1.0 if coef is None else coef, ours.opt_state.coef)


@pytest.mark.parametrize(
    "changed",
    [
        {"gamma": 0.94},
        {"gae_lambda": 0.92},
        {"clip_eps": 0.16},
        {"vf_coef": 0.72},
        {"ent_coef": 0.025},
        {"ent_coef": -0.02},
        {"learning_rate": 1.01e-3},
        {"max_grad_norm": 1.0},
        {"b1": 0.91},
        {"b2": 0.998},
        {"adam_eps": 1e-8},
        {"normalize_obs": False},
        {"normalize_reward": False},
        {"normalize_advantage": "rollout"},
        {"normalize_advantage": "off"},
    ],
    ids=str,
)
def test_a_changed_number_does_not_agree(changed):
    case = CASES[8]  # all options on
    assert distance(case, replay(case, hyper_of(case)._replace(**changed))) > 10 * PARAMS_ATOL


@pytest.mark.parametrize(
    ("option", "changed"),
    [
        ("dual", {"dual_clip": 1.3}),
        ("dual", {"dual_clip": np.inf}),
        ("dual", {"huber_delta": 1.3}),
        ("value", {"value_clip": 0.4}),
        ("kl", {"kl_coef": 0.9}),
        ("kl", {"huber_delta": 1.3}),
        ("dpo", {"alpha": 0.4}),
        ("dpo", {"beta": 0.12}),
        ("dpo", {"value_clip": 0.4}),
        ("spo", {"clip_eps": 0.2}),
        ("rollback", {"clip_eps": 0.2}),
        ("rollback", {"slope": 0.3}),
        ("stop", {"target_kl": np.inf}),
        ("rate", {"rate_target": 0.012}),
        ("rate", {"rate_max": 1e-2}),
        ("coef", {"coef_target": 0.05}),
        ("kl all", {"rate_target": None}),
        ("kl all", {"coef_target": None}),
        ("epoch", {"recompute": "never"}),
        ("epoch", {"recompute": "minibatch"}),
        ("minibatch", {"recompute": "epoch"}),
        ("vtrace epoch", {"rho_clip": 1.0}),
        ("vtrace epoch", {"c_clip": 1.0}),
        ("vtrace minibatch", {"rho_clip": 1.0}),
        ("drip", {"reward_spread_decay": 0.5}),
        ("quantile", {"kappa": 0.5}),
        ("popart", {"critic": "regression"}),
        ("popart", {"rate": 0.35}),
        ("popart clips", {"value_clip": 0.4}),
        ("popart clips", {"huber_delta": 1.3}),
        ("two_hot", {"bins": (-2.0, -1.0, 0.1, 1.0, 2.0, 3.0)}),
        ("two_hot epoch", {"recompute": "never"}),
        ("features", {"feature_coef": 0.42}),
    ],
    ids=str,
)
def test_a_changed_option_does_not_agree(option, changed):
    case = next(case for case in CASES if case.option == option)
    assert distance(case, replay(case, hyper_of(case)._replace(**changed))) > 10 * PARAMS_ATOL


def test_a_draw_without_importance_weights_does_not_agree():
    case = next(case for case in CASES if case.option == "weights")
    played = play(case)
    ours = reference.update(
        played.start, reference.init(played.start, (2, 2)), played.rollouts[0], hyper_of(case), played.drawn[0].index
    )
    theirs = flat_params(played.learners[0].params)
    assert max(np.abs(theirs[name] - p).max() for name, p in ours.params.items()) > 10 * PARAMS_ATOL


def test_every_kl_control_acts_at_some_steps_and_not_at_others():
    def updates(option):
        case = next(case for case in CASES if case.option == option)
        return case, replay(case, hyper_of(case))

    case, stopped = updates("stop")
    skipped = [[step["updates_skipped"] for step in update.losses] for update in stopped]
    assert any(0 < sum(steps) < len(steps) for steps in skipped)
    # the stopped update has the gradient steps before the stop and none after
    applied = [int(update.opt_state.adam.step) for update in stopped]
    assert applied == list(np.cumsum([len(steps) - sum(steps) for steps in skipped]))
    counts = [
        int(next(x for x in jax.tree.leaves(learner.opt_state) if x.ndim == 0)) for learner in play(case).learners
    ]
    assert counts == applied
    assert max(update.opt_state.rate for update in updates("rate")[1]) == 1.2  # up to rate_max
    assert min(update.opt_state.rate for update in updates("kl all")[1]) < 1.0
    assert {update.opt_state.coef for update in updates("coef")[1]} & {2.0, 4.0}
    assert {update.opt_state.coef for update in updates("kl all")[1]} & {0.5, 0.25}


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r._replace(terminated=r.truncated, truncated=r.terminated),
        # the trace crosses a truncation
        lambda r: r._replace(truncated=np.zeros_like(r.truncated), reward=np.nan_to_num(r.reward)),
        lambda r: r._replace(terminated=r.terminated | r.truncated),  # truncation without bootstrapping
        lambda r: r._replace(last_value=0 * r.last_value),
        lambda r: r._replace(reward_trace=r.reward),
        lambda r: r._replace(log_prob=r.log_prob + 0.01),
        lambda r: r._replace(action=np.clip(r.action, -1, 1)),
        lambda r: r._replace(**{k: np.nan_to_num(getattr(r, k)) for k in ("obs", "log_prob", "reward", "reward_trace")},
                             valid=np.ones_like(r.valid)),  # invalid rows used
    ],
    ids=["swapped", "no truncation", "done", "no last value", "no trace", "log_prob", "clipped action", "all valid"],
)  # fmt: skip
def test_a_changed_rollout_does_not_agree(change):
    case = CASES[8]
    assert distance(case, replay(case, hyper_of(case), change)) > 10 * PARAMS_ATOL


def case_of(option):
    return next(case for case in CASES if case.option == option)


GRADIENTS = {
    "separate": (CASES[0], {}),
    "normal": (CASES[1], {}),
    "masked shared": (CASES[2], {}),
    "normal shared": (CASES[3], {}),
    "dual": (CASES[0], {"dual_clip": 1.1, "huber_delta": 0.6}),
    "kl": (CASES[0], {"objective": "kl", "kl_coef": 0.8, "value_clip": 0.5}),
    "dpo": (CASES[0], {"objective": "dpo", "alpha": 0.3, "beta": 0.1, "value_clip": 0.5, "huber_delta": 0.6}),
    "spo": (CASES[0], {"objective": "spo", "clip_eps": 0.15}),
    "rollback": (CASES[0], {"objective": "rollback", "slope": 0.6}),
    "popart": (CASES[0], {"critic": "popart", "mean": 0.3, "std": 1.7, "value_clip": 0.5, "huber_delta": 0.6}),
    "two_hot": (case_of("two_hot"), OPTIONS["two_hot"].hyper),
    "quantile": (case_of("quantile"), OPTIONS["quantile"].hyper),
    "features": (CASES[0], {"feature_coef": 0.4}),
    "features shared": (CASES[3], {"feature_coef": 0.4}),
}


@pytest.mark.parametrize(("case", "changed"), GRADIENTS.values(), ids=GRADIENTS)
def test_reference_gradient_equals_finite_differences(case, changed):
    """Central differences, step 1e-6: error about 1e-10 where nothing clips within the step."""
    params, rollout, hyper = play(case).start, play(case).rollouts[0], HYPER._replace(**changed)
    rows = tuple(np.argwhere(rollout.valid).T)
    rng = np.random.default_rng(0)
    mask = None if rollout.action_mask is None else rollout.action_mask[rows]
    a, target, old = rng.normal(size=(3, len(rows[0])))
    batch = reference.Rows(rollout.obs[rows], rollout.action[rows], rollout.log_prob[rows], mask, a, target, old)
    info, gradient = reference.loss_and_gradient(params, batch, hyper)
    assert 0.1 < info.get("clip_fraction", 0.5) < 0.9
    assert gradient.keys() == params.keys()
    for name, p in params.items():
        for at in np.ndindex(p.shape):
            loss = []
            for step in (1e-6, -1e-6):
                near = p.copy()
                near[at] += step
                loss.append(reference.loss_and_gradient(params | {name: near}, batch, hyper)[0]["loss"])
            assert abs((loss[0] - loss[1]) / 2e-6 - gradient[name][at]) < 1e-8, (name, at)


def test_standardize_maps_constant_advantages_to_0_and_keeps_single_ones():
    valid = jnp.array([True, True, False, True])
    np.testing.assert_array_equal(batches.standardize(jnp.array([3.0, 3.0, 9.0, 3.0]), valid)[valid], 0.0)
    # the mean of these constants is rounded, so their computed std is rounding only
    for constant, count in ((0.1, 7), (3.3, 31), (-0.1, 333), (1e3 / 3, 8191)):
        rows = jnp.ones(count, bool)
        np.testing.assert_array_equal(batches.standardize(jnp.full(count, constant), rows), 0.0)
        # advantages that differ by rounding only
        nearly = constant * (1.0 + 1e-7 * jnp.cos(jnp.arange(count)))
        np.testing.assert_array_equal(batches.standardize(nearly, rows), 0.0)
        # advantages with small, real differences
        unlike = batches.standardize(constant * (1.0 + 1e-3 * (jnp.arange(count) % 2)), rows)
        np.testing.assert_allclose(unlike.std(), 1.0, rtol=1e-2)
    one = jnp.array([True, False, False, False])
    assert batches.standardize(jnp.array([3.0, jnp.nan, 9.0, 3.0]), one)[0] == 3.0
    none = batches.standardize(jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.zeros(4, bool))
    np.testing.assert_array_equal(none, [1.0, 2.0, 3.0, 4.0])
    # valid rows 1 and 5: mean 3, population std 2, so -1 and 1 (with ddof = 1: -0.71 and 0.71)
    two = batches.standardize(jnp.array([1.0, 7.0, 7.0, 5.0]), jnp.array([True, False, False, True]))
    np.testing.assert_allclose([two[0], two[3]], [-1.0, 1.0], rtol=1e-6)
