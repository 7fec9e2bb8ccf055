"""Gradient rules: the same gradient gives plain PPO bit for bit; the effect of others, with plain updates as oracle."""

import importlib
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ppax
from ppax import ConfigError, config
from ppax.arrays.metrics import reduced
from ppax.core import imports
from ppax.core.protocols import LossGradient
from ppax.core.types import ForwardPass, LearnerState, Scalar, Targets, number, part, static
from ppax.devices.layout import Program
from ppax.distributions import Categorical
from ppax.envs import VectorEnv, builtin
from ppax.extensions import Rows
from ppax.networks import mlp
from ppax.ppo.minibatches import Shuffle
from support.worlds import QUICK, SGD

ROOT = Path(__file__).parents[3]
ENV = VectorEnv(builtin.CartPole(), 4)
RATE, STEPS = 0.25, 8
UPDATE = jax.jit(ppax.PPO.update, compiler_options=QUICK)
# One step of gradient descent on the whole rollout
DESCENT = {"optimizer": SGD(), "learning_rate": RATE, "max_grad_norm": None, "num_epochs": 1, "minibatch": Shuffle(1)}


@part
class Same:
    """The gradient at the current parameters, computed again, and a metric."""

    def __call__(self, gradient, gradient_at, params):
        """Gradient at `params`."""
        again = gradient_at(params)
        return LossGradient(again.vector, reduced("max", {"largest": jnp.abs(again.vector).max()}))


@part
class Half:
    """Half of the gradient."""

    factor: Scalar = number("factor", default=0.5, low=0.0)

    def __call__(self, gradient, gradient_at, params):
        """Scaled gradient."""
        return LossGradient(self.factor * gradient.vector)


@part
class Returns:
    """Whatever it is given."""

    result: object = static("result", default=None)

    def __call__(self, gradient, gradient_at, params):
        """Return the result, or that of a function of the gradient."""
        return self.result(gradient) if callable(self.result) else self.result


@pytest.fixture(scope="module")
def start():
    agent = ppax.PPO(mlp(ENV, hidden=(8,)))
    state = ppax.start(agent, ENV, STEPS, jax.random.key(0))
    rollout = jax.jit(ppax.collect, static_argnums=4)(
        agent, ENV, state.learner, state.actor, STEPS, jax.random.key(1)
    ).rollout
    return state.learner, rollout


@pytest.fixture
def own_update(monkeypatch):
    """The example as a module that users have trusted."""
    monkeypatch.syspath_prepend(ROOT / "examples")
    monkeypatch.setattr(imports, "_trusted", {"own_update"})
    yield importlib.import_module("own_update")
    del sys.modules["own_update"]


def updated(start, gradient=None, learner=None, **options):
    """Return the result of an update with a gradient rule; None: PPO as it is."""
    rule = {} if gradient is None else {"gradient": gradient}
    agent = ppax.PPO(mlp(ENV, hidden=(8,)), **rule, **options)
    fresh = agent.init(ENV.observation_space, jax.random.key(0))
    given = start[0] if learner is None else learner
    given = given._replace(opt_state=fresh.opt_state, extensions=fresh.extensions)
    rollout = start[1]._replace(extensions=agent.init_streams(len(start[1].last_value)))
    return UPDATE(agent, given, rollout, jax.random.key(2))


def vector(learner):
    return np.asarray(ravel_pytree(learner.params)[0], np.float64)


def test_the_same_gradient_by_a_rule_of_ones_own_gives_plain_ppo_bit_for_bit(start):
    plain, same = updated(start, num_epochs=2), updated(start, Same(), num_epochs=2)
    jax.tree.map(np.testing.assert_array_equal, plain.learner, same.learner)
    metrics = dict(same.metrics)
    assert metrics.pop("largest") > 0.0
    assert metrics.keys() == dict(plain.metrics).keys()
    for name, x in plain.metrics.items():
        np.testing.assert_array_equal(metrics[name], x, err_msg=name)


def test_a_rule_changes_the_step_of_sgd_by_its_factor(start):
    before = vector(start[0])
    whole, half = (vector(updated(start, rule, **DESCENT).learner) - before for rule in (None, Half(0.5)))
    assert np.abs(whole).max() > 1e-3
    np.testing.assert_allclose(half, 0.5 * whole, atol=1e-7)


@pytest.mark.parametrize("rows", [10**6, 4])  # also with gradient accumulation
def test_sharpness_aware_step_is_the_gradient_after_a_climb_of_length_rho(start, own_update, rows):
    """Foret et al. 2021: w - rate g(w + rho g(w) / |g(w)|), with g from plain updates by SGD at both places."""
    learner, rho = start[0], 0.3
    before, tree = vector(learner), ravel_pytree(learner.params)[1]

    def gradient_at(w):
        there = updated(start, learner=learner._replace(params=tree(jnp.float32(w))), **DESCENT)
        return (np.float32(w) - vector(there.learner)) / RATE, there.metrics["loss"]

    here, loss = gradient_at(before)
    up, higher = gradient_at(before + rho * here / np.linalg.norm(here))
    sharp = own_update.SharpnessAware(rho=rho)
    out = updated(start, sharp, program=Program(chunk_rows=rows), **DESCENT)
    step = (before - vector(out.learner)) / RATE
    np.testing.assert_allclose(step, up, atol=3e-5)
    assert np.abs(step - here).max() > 1e-2  # plain PPO takes another step
    np.testing.assert_allclose(out.metrics["sharpness"], higher - loss, atol=1e-5)
    np.testing.assert_allclose(out.metrics["loss"], loss, atol=1e-6)  # metrics of PPO are those at the parameters
    assert out.metrics["ratio_first_max_dev"] < 1e-5


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, "it returned a NoneType"),
        (lambda gradient: gradient.vector, "it returned a"),
        (lambda gradient: LossGradient(gradient.vector[:-1]), r"'vector' has shape \[\d+\] and must have \[\d+\]"),
        (lambda gradient: LossGradient(gradient.vector, {"each": gradient.vector[:3]}), r"'each' has shape \[3\] and"),
        (lambda gradient: LossGradient(gradient.vector, {"loss": gradient.vector.sum()}), "the metric 'loss' of the"),
    ],
)
def test_results_that_are_no_gradient_are_refused(start, result, message):
    with pytest.raises(ConfigError, match=rf"agent\.gradient: Returns must return .*LossGradient.*{message}"):
        updated(start, Returns(result))


def test_a_gradient_that_is_no_part_is_refused_with_the_default():
    agent = ppax.PPO(mlp(ENV, hidden=(8,)), gradient=Same)
    with pytest.raises(
        ConfigError, match=r"agent\.gradient: .*Same.* is no part: write gradient=ppax\.gradients\.Plain"
    ):
        ppax.start(agent, ENV, STEPS, jax.random.key(0))


def test_the_number_of_a_rule_is_swept_without_another_program(start):
    """A factor of 1 is plain PPO, of 0 no step."""
    learner, rollout = start
    agent = ppax.PPO(mlp(ENV, hidden=(8,)), num_epochs=1, optimizer=SGD(), gradient=Half(jnp.array([0.0, 1.0])))
    axes = jax.tree.map(lambda x: None if jnp.ndim(x) == 0 else 0, agent)
    given = learner._replace(opt_state=agent.init(ENV.observation_space, jax.random.key(0)).opt_state)
    with jax.debug_key_reuse(False):
        run = jax.vmap(lambda agent: agent.update(given, rollout, jax.random.key(2)), (axes,))
        out = jax.jit(run, compiler_options=QUICK)(agent).learner.params
    still, plain = (jax.tree.map(lambda x, i=i: x[i], out) for i in (0, 1))
    jax.tree.map(np.testing.assert_array_equal, still, learner.params)
    expected = updated(start, num_epochs=1, optimizer=SGD()).learner.params
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), plain, expected)
    assert any(np.abs(a - b).max() > 1e-6 for a, b in zip(*map(jax.tree.leaves, (plain, still)), strict=True))


def test_the_number_0_of_each_example_is_plain_ppo_and_another_is_not(start, own_update):
    plain = updated(start, **DESCENT).learner
    for rule, extension in (
        (own_update.SharpnessAware(rho=0.0), own_update.SmallLogits(coef=0.0)),
        (own_update.SharpnessAware(rho=0.1), own_update.SmallLogits(coef=10.0)),
    ):
        same = rule.rho == 0.0
        for change in ({"gradient": rule}, {"extensions": (extension,)}):
            moved = np.abs(vector(updated(start, **change, **DESCENT).learner) - vector(plain)).max()
            assert moved == 0.0 if same else moved > 1e-4, change


def test_term_of_the_logits_by_hand(own_update):
    params = {"policy": {"kernel": jnp.eye(2), "bias": jnp.array([0.0, 1.0])}}
    logits = Categorical(jnp.array([[1.0, 2.0], [3.0, 0.0]]))
    policy = ForwardPass((), logits, None, None, {"actor": jnp.array([[1.0, 1.0], [3.0, -1.0]])})
    rows = Rows(None, None, policy, LearnerState(params, (), None, None), None, None, None)
    terms = own_update.SmallLogits(coef=0.5).terms(rows)
    np.testing.assert_allclose(terms.losses["logits_loss"], [0.5 * (1 + 4) / 2, 0.5 * 9 / 2])  # logits [1, 2], [3, 0]


def test_advantage_on_a_logarithmic_scale_by_hand(own_update):
    targets = Targets(jnp.array([np.e - 1.0, 1.0 - np.e, 0.0]), jnp.array([1.0, 2.0, 3.0]))
    found = own_update.Symlog(lambda *_: targets)(None, None, 0.9)
    np.testing.assert_allclose(found.advantage, [1.0, -1.0, 0.0], rtol=1e-6)
    np.testing.assert_array_equal(found.value, targets.value)


def test_examples_by_their_import_paths_in_a_configuration(own_update):
    parts = {
        "gradient": {"part": "own_update:SharpnessAware", "rho": 0.25},
        "extensions": {"small_logits": {"part": "own_update:SmallLogits", "coef": 0.5}},
        "advantage": {"part": "own_update:Symlog", "inner": {"part": "gae", "gae_lambda": 0.5}},
    }
    agent = config.build({"agent": parts}).agent
    assert agent.gradient == own_update.SharpnessAware(0.25)
    assert config.describe(agent)["gradient"] == parts["gradient"]
    assert agent.advantage.inner.gae_lambda == 0.5
    assert config.describe(ppax.PPO(mlp(ENV)))["gradient"] == {"part": "plain"}
    with pytest.raises(ConfigError, match=r"agent\.gradient\.rho = -1.*0"):
        config.build({"agent": {"gradient": parts["gradient"] | {"rho": -1.0}}})


def test_classes_of_the_page_are_those_of_the_example():
    page, example = ((ROOT / path).read_text() for path in ("docs/change_the_update.md", "examples/own_update.py"))
    classes = re.findall(r"@part\nclass .*?(?=\n\n\n)", example, re.DOTALL)
    assert len(classes) == 3
    assert all(code in page for code in classes)


@pytest.mark.nightly
def test_invariants_of_ppo_hold_with_another_gradient(own_update):
    agent = ppax.PPO(mlp(ENV, hidden=(8,)), gradient=own_update.SharpnessAware(rho=0.1), minibatch=Shuffle(2))
    report = ppax.selftest(agent, ENV, 16, jax.random.key(0))
    assert report.passed, report
