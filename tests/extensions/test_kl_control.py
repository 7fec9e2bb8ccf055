"""KL control: each rule by hand, and in updates with sweeps, gradient accumulation and resumed state."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ppax
from ppax.devices.layout import Program
from ppax.envs import TimeLimit, VectorEnv, builtin
from ppax.extensions import ExtensionState, KLControl, Learned
from ppax.extensions.kl_control import COEF_RANGE, KLState, rate_change
from ppax.networks import mlp
from ppax.ppo.diagnostics import History
from ppax.ppo.losses import KLPenalty
from ppax.ppo.minibatches import Shuffle, ShuffleRows
from ppax.ppo.optimizers import ActorCritic, Optax
from ppax.training.collection import collect
from support.learned import extended
from support.worlds import QUICK

BOUNDS = {"lowest": 1e-5, "highest": 1e-2}
PENALTY = ppax.PPO(None, loss=KLPenalty(3.0), learning_rate=1e-3)  # hooks of KL control read no network


def begun(control, agent=PENALTY):
    """State inside an update, of a control that has just been made."""
    return control.begin(control.init(agent, None, None).state)


def observed(control, inner, kl):
    """Inner state and decision after a minibatch whose KL is `kl`."""
    return control.observe(PENALTY, inner, {"approx_kl": jnp.float32(kl)}, jnp.bool_(True))


def ended(control, inner, kls, acts):
    """Result after an update whose gradient steps [epochs, minibatches] had these KLs."""
    learned = Learned(None, History({"approx_kl": jnp.asarray(kls)}, None, jnp.asarray(acts)), {})
    return control.after(PENALTY, None, (), inner, learned)


@pytest.mark.parametrize(
    ("now", "kl", "after"),
    [
        # target 0.01: above 0.02 the rate falls by 1.5, below 0.005 it grows by 1.5
        (3e-3, 0.021, 2e-3),
        (3e-3, 0.019, 3e-3),
        (3e-3, 0.006, 3e-3),
        (3e-3, 0.004, 4.5e-3),
        (3e-3, 0.0, 3e-3),  # nothing has moved yet
        (3e-3, 1e-13, 3e-3),  # but for rounding
        (8e-3, 0.004, 1e-2),  # the bounds
        (1.2e-5, 0.03, 1e-5),
        (5e-2, 0.004, 5e-2),  # a rate outside its bounds is not pulled inside: only changes are bounded
        (5e-2, 0.03, 5e-2 / 1.5),
        (5e-6, 0.03, 5e-6),
        (5e-6, 0.004, 7.5e-6),
        (0.0, 0.004, 0.0),
        (0.0, 0.03, 0.0),
    ],
)
def test_learning_rate_rule_of_the_kl(now, kl, after):
    change = rate_change(jnp.float32(now), jnp.float32(kl), 0.01, **BOUNDS)
    assert np.isfinite(change)
    np.testing.assert_allclose(now * change, after, rtol=1e-5)


@pytest.mark.parametrize(
    ("kl", "after"), [(0.031, 2.0), (0.029, 1.0), (0.014, 1.0), (0.013, 0.5), (1e-9, 0.5), (0.0, 1.0)]
)
def test_kl_coefficient_rule_of_the_kl(kl, after):
    """Target 0.02: doubled above 0.03, halved below 0.01333, but not at 0; only steps of the last epoch count."""
    control = KLControl(coef_target=0.02)
    kls = jnp.array([[9.0, 9.0], [0.9 * kl, 1.1 * kl]])
    kept = ended(control, begun(control), kls, jnp.ones((2, 2), bool))
    assert kept.state.coef == after
    assert control.adapt(PENALTY, kept.state).loss.kl_coef == 3.0 * after
    assert control.adapt(PENALTY, kept.state).learning_rate == 1e-3
    assert dict(kept.metrics) == {"kl_coef": 3.0 * after}


def test_minibatches_without_allowed_actions_do_not_change_the_kl_coefficient():
    """Their KL of 0 would halve the mean KL, 0.031, and therefore the coefficient."""
    control, kls = KLControl(coef_target=0.02), jnp.array([[0.0, 0.031, 0.0, 0.0]])
    assert ended(control, begun(control), kls, [[False, True, False, False]]).state.coef == 2.0
    assert ended(control, begun(control), kls, np.zeros((1, 4), bool)).state.coef == 1.0


@pytest.mark.parametrize("name", ["target_kl", "rate_target", "coef_target"])
def test_a_control_is_refused_with_a_single_gradient_step(name):
    env = ppax.make("CartPole-v1", 2)
    options = {"extensions": (KLControl(**{name: 0.01}),), "loss": KLPenalty(), "num_epochs": 1}
    with pytest.raises(
        ppax.ConfigError, match=rf"kl_control\.{name}: with one gradient step .*num_minibatches to at least 2"
    ):
        ppax.start(ppax.PPO(mlp(env), minibatch=Shuffle(1), **options), env, 8, jax.random.key(0))
    ppax.start(ppax.PPO(mlp(env), minibatch=Shuffle(2), **options), env, 8, jax.random.key(0))


def test_the_coefficient_stays_finite_for_ever():
    control = KLControl(coef_target=0.02)
    for kl, end in ((1.0, COEF_RANGE), (1e-9, 1 / COEF_RANGE)):
        kept = control.init(PENALTY, None, None).state
        for _ in range(50):
            kept = ended(control, control.begin(kept), jnp.full((1, 2), kl), np.ones((1, 2), bool)).state
        assert kept.coef == end


def test_an_early_stop_lasts_for_the_update_and_nan_stops_too():
    control = KLControl(target_kl=0.02)
    state, seen, goes_on = begun(control), [], []
    for kl in (0.0, 0.02, 0.021, 0.0):
        state, proceed, metrics = observed(control, state, kl)
        seen.append(bool(state.stopped))
        goes_on.append(bool(proceed))
        assert float(metrics["updates_skipped"]) == state.stopped
    assert seen == [False, False, True, True]
    assert goes_on == [True, True, False, False]
    kept = ended(control, state, jnp.zeros((1, 4)), np.ones((1, 4), bool)).state
    assert jax.tree.leaves(kept) == []
    assert not control.begin(kept).stopped  # the next update begins anew
    assert bool(observed(control, begun(control), jnp.nan).inner.stopped)


def test_the_learning_rate_does_not_change_after_an_early_stop():
    control = KLControl(target_kl=0.02, rate_target=0.01)
    state, rates = begun(control), []
    for kl in (0.001, 0.03, 0.03, 0.03):
        state = observed(control, state, kl).inner
        rates.append(float(state.rate))
    np.testing.assert_allclose(rates, [1.5, 1.0, 1.0, 1.0], rtol=1e-6)


def test_a_minibatch_that_the_policy_does_not_learn_from_changes_no_control():
    control = KLControl(target_kl=0.02, rate_target=0.01)
    out = control.observe(PENALTY, begun(control), {"approx_kl": jnp.float32(0.03)}, jnp.bool_(False))
    assert (float(out.inner.rate), bool(out.inner.stopped), bool(out.proceed)) == (1.0, False, True)


def test_what_cannot_work_is_refused_by_name():
    env = ppax.make("CartPole-v1", 2)
    with pytest.raises(ppax.ConfigError, match=r"kl_control\.coef_target: ClippedSurrogate has no kl_coef.*KLPenalty"):
        ppax.start(ppax.PPO(mlp(env), extensions=(KLControl(coef_target=0.01),)), env, 8, jax.random.key(0))


def test_controls_that_are_off_keep_no_state():
    off, agent = KLControl(), ppax.PPO(None)
    assert off.init(agent, None, None) == ExtensionState(KLState())
    assert begun(off, agent) == KLState()
    assert observed(off, KLState(), 9.0) == (KLState(), None, {})
    assert off.adapt(agent, KLState()) is agent


# ---------------------------------------------------------------- inside an update


def make(**options):
    env = VectorEnv(TimeLimit(builtin.CartPole(), 9), 6)
    agent = ppax.PPO(mlp(env, hidden=(16,)), **{"learning_rate": 0.02, "minibatch": Shuffle(3)} | options)
    state = ppax.start(agent, env, 12, jax.random.key(0))
    rollout = jax.jit(collect, static_argnums=4)(agent, env, state.learner, state.actor, 12, jax.random.key(1)).rollout
    return agent, state.learner, rollout


@functools.partial(jax.jit, compiler_options=QUICK)
def learn(agent, learner, rollout):
    return agent.update(learner, rollout, jax.random.key(2))


def bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


def test_a_stopped_update_is_one_with_fewer_epochs():
    """With one minibatch an epoch is a step: stopping before step k leaves exactly what k updates of one step leave."""
    agent, learner, rollout = make(minibatch=Shuffle(1), num_epochs=6)
    whole = learn(agent, learner, rollout)
    one_step = dataclasses.replace(agent, num_epochs=1)
    learners, kls = [learner], []
    for _ in range(5):
        after, metrics = learn(one_step, learners[-1], rollout)[:2]
        learners.append(after)
        kls.append(float(metrics["approx_kl"]))  # before the step
    target = 0.5 * (kls[3] + kls[4])
    assert max(kls[:4]) < target < kls[4]
    stopped = learn(*extended(agent, learner, rollout, KLControl(target)))
    for one, other in zip(jax.tree.leaves(stopped.learner), jax.tree.leaves(learners[4]), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    np.testing.assert_allclose(stopped.metrics["updates_skipped"], 2 / 6)
    assert "updates_skipped" not in whole.metrics
    # a target that is never reached changes nothing
    far = learn(*extended(agent, learner, rollout, KLControl(1e3)))
    assert bits(far.learner) == bits(whole.learner)
    assert far.metrics["updates_skipped"] == 0.0


def test_sweep_members_stop_independently(vmapped_keys):
    agent, learner, rollout = make()
    targets = jnp.array([1e-5, 3e-3, 1e3])

    def one(target):
        controlled, *rest = extended(agent, learner, rollout, KLControl(target))
        return controlled.update(*rest, jax.random.key(2))

    swept = jax.jit(jax.vmap(one), compiler_options=QUICK)(targets)
    skipped = swept.metrics["updates_skipped"]
    assert skipped[0] > skipped[1] > skipped[2] == 0.0
    for i, target in enumerate(targets):
        alone = learn(*extended(agent, learner, rollout, KLControl(target)))
        np.testing.assert_allclose(alone.metrics["updates_skipped"], skipped[i])
        for a, b in zip(jax.tree.leaves(alone.learner.params), jax.tree.leaves(swept.learner.params), strict=True):
            np.testing.assert_allclose(a, b[i], atol=1e-5)


def test_controls_do_not_depend_on_chunks():
    """KL of the whole minibatch decides, for any number of chunks."""
    control = KLControl(1e-3, 1e-2, rate_max=0.1, coef_target=1e-3)
    agent, learner, rollout = make(extensions=(control,), loss=KLPenalty(), learning_rate=0.01)
    whole = learn(dataclasses.replace(agent, program=Program(chunk_rows=10**6)), learner, rollout)
    assert 0.0 < whole.metrics["updates_skipped"] < 1.0
    assert whole.learner.extensions["kl_control"].state.rate != 1.0
    pieces = learn(dataclasses.replace(agent, program=Program(chunk_rows=4)), learner, rollout)
    for one, other in zip(jax.tree.leaves(whole.learner), jax.tree.leaves(pieces.learner), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_the_rate_is_kept_from_update_to_update_and_reported():
    agent, learner, rollout = make(extensions=(KLControl(rate_target=10.0),), learning_rate=1e-4, num_epochs=1)
    rates = []
    for _ in range(3):
        learner, metrics = learn(agent, learner, rollout)[:2]
        rates.append(float(metrics["learning_rate"]))
    # KL is far below 10 / 2, so every step grows by 1.5 but the first, where nothing has moved: 2 of 3, then 3 of 3
    np.testing.assert_allclose(rates, 1e-4 * 1.5 ** np.array([2.0, 5.0, 8.0]), rtol=1e-5)


# ---------------------------------------------------------------- stop of the actor alone


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def learn_by_hand(params, steps, num_epochs, rates, momentum, target):
    """Return parameters, momentum of the actor, and the KL before each gradient step, after an update in float64.

    Policy and value are linear in the observation, gamma is 0 (the value target is the reward), an epoch is one step,
    and both optimisers are SGD, that of the actor with momentum. The actor learns until the KL exceeds `target`, the
    critic in all steps.
    """
    obs, reward, old, value = (np.asarray(x, np.float64).reshape(72, -1) for x in steps[:4])
    action, advantage = np.asarray(steps[4]).reshape(72), reward - value
    ones = np.eye(2)[action]
    policy, critic = ({name: np.asarray(x, np.float64) for name, x in params[of].items()} for of in ("policy", "value"))
    speed = {name: np.zeros_like(x) for name, x in policy.items()}
    kls, stopped = [], False
    for _ in range(num_epochs):
        chances = softmax(obs @ policy["kernel"] + policy["bias"])
        log_ratio = np.log((chances * ones).sum(-1, keepdims=True)) - old
        ratio = np.exp(log_ratio)
        kls.append(float((ratio - 1.0 - log_ratio).mean()))
        stopped = stopped or kls[-1] > target
        inside = np.where(advantage > 0.0, ratio <= 1.2, ratio >= 0.8)
        of_logits = -advantage * ratio * inside * (ones - chances) / 72
        of_value = 0.5 * (obs @ critic["kernel"] + critic["bias"] - reward) / 72  # vf_coef = 0.5
        if not stopped:
            gradient = {"kernel": obs.T @ of_logits, "bias": of_logits.sum(0)}
            speed = {name: momentum * speed[name] + x for name, x in gradient.items()}
            policy = {name: x - rates[0] * speed[name] for name, x in policy.items()}
        gradient = {"kernel": obs.T @ of_value, "bias": of_value.sum(0)}
        critic = {name: x - rates[1] * gradient[name] for name, x in critic.items()}
    return {"policy": policy, "value": critic}, speed, kls


SEPARATE = ActorCritic(actor=Optax(optax.sgd, momentum=0.9), critic=Optax(optax.sgd), actor_scale=20.0)


def test_the_actor_stops_alone_as_in_a_loop_by_hand():
    env = VectorEnv(builtin.CartPole(), 12)
    agent = ppax.PPO(
        mlp(env, hidden=()),
        minibatch=Shuffle(1),
        optimizer=SEPARATE,
        learning_rate=0.1,
        gamma=0.0,
        max_grad_norm=None,
        normalize_advantage="off",
        num_epochs=6,
    )
    state = ppax.start(agent, env, 6, jax.random.key(0))
    rollout = jax.jit(collect, static_argnums=4)(agent, env, state.learner, state.actor, 6, jax.random.key(1)).rollout
    steps = rollout.steps
    assert steps.valid.all()
    assert not steps.ended.any()
    inputs = (steps.obs, steps.reward, steps.log_prob, steps.value, steps.action)
    by_hand = functools.partial(learn_by_hand, state.learner.params, inputs, 6, (2.0, 0.1), 0.9)
    kls = by_hand(np.inf)[2]
    assert kls[0] < 1e-6 < kls[1] < 0.5 * kls[2]
    target = 0.5 * (kls[1] + kls[2])
    expected, speed, _ = by_hand(target)
    controlled = extended(agent, state.learner, rollout, KLControl(target, stops="actor"))
    out = learn(*controlled)
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-6),
        {name: out.learner.params[name] for name in expected},
        expected,
    )
    momentum = optax.tree.get(out.learner.opt_state.inner_states["actor"], "trace")["policy"]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-6), dict(momentum), speed)
    np.testing.assert_allclose(out.metrics["updates_skipped"], 4 / 6)
    # the loop without a stop, and a stop of both, are others
    for other, name in ((by_hand(np.inf)[0], "policy"), (None, "value")):
        both = learn(*extended(agent, state.learner, rollout, KLControl(target))).learner.params
        assert np.abs(np.asarray((other or both)[name]["kernel"]) - expected[name]["kernel"]).max() > 1e-3


def test_an_actor_stops_alone_in_a_sweep_and_begins_again_in_the_next_update(vmapped_keys):
    agent, learner, rollout = make(optimizer=ActorCritic(), max_grad_norm=None)
    targets = jnp.array([1e-5, 1e3])

    def one(target):
        controlled, *rest = extended(agent, learner, rollout, KLControl(target, stops="actor"))
        first = controlled.update(*rest, jax.random.key(2))
        second = controlled.update(first.learner, rest[1], jax.random.key(3))
        return first.learner.params, first.metrics["updates_skipped"], second.metrics["updates_skipped"]

    params, skipped, again = jax.jit(jax.vmap(one), compiler_options=QUICK)(targets)
    assert 0.5 < skipped[0] < 1.0
    assert skipped[1] == again[1] == 0.0
    # the policy has moved away from the one that acted, so the second update stops before its first step
    assert again[0] == 1.0
    moved = [jax.tree.map(lambda x: float(jnp.abs(x[0] - x[1]).max()), params[name]) for name in ("policy", "value")]
    assert min(jax.tree.leaves(moved[0])) > 1e-3
    assert max(jax.tree.leaves(moved[1])) < 1e-6  # critics learn the same, whenever their actors stop


@pytest.mark.parametrize(
    ("options", "control", "text"),
    [
        ({}, KLControl(0.01, stops="actor"), "Adam takes the steps of actor and critic together.*actor_critic.*all"),
        ({"optimizer": ActorCritic()}, KLControl(stops="actor"), "nothing stops without a target; set kl_control.targ"),
    ],
)
def test_an_actor_that_cannot_stop_alone_is_refused(options, control, text):
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(mlp(env), extensions=(control,), **options)
    with pytest.raises(ppax.ConfigError, match=rf"kl_control\.stops = 'actor': {text}"):
        ppax.start(agent, env, 8, jax.random.key(0))


@pytest.mark.parametrize(("rows", "refused"), [(64, True), (32, False)])
def test_one_minibatch_of_all_rows_is_refused_where_its_size_is_known(rows, refused):
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env, (4,)), minibatch=ShuffleRows(rows), num_epochs=1, extensions=(KLControl(0.01),))

    def trained():
        return ppax.fit(agent, env, 64, num_steps=16, log=ppax.Log(console=False))

    if refused:
        with pytest.raises(ppax.ConfigError, match=r"kl_control\.target_kl: with one gradient step .* fewer rows"):
            trained()
    else:
        assert trained().history
