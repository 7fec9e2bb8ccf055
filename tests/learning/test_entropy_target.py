"""Entropy target: the learned coefficient by hand, the entropy that it reaches, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from ppax.learning.entropy_target import EntropyTarget
from worlds import QUICK

import ppax
from ppax import config
from ppax.arrays.metrics import Table
from ppax.envs import VectorEnv, builtin
from ppax.run.fit import fit_run


def test_the_coefficient_by_hand():
    control = EntropyTarget(target=0.5, rate=0.2)
    state = control.init(0.01)
    state = control.update(state, Table({"entropy": jnp.float32(0.2)}), jnp.array([[True, False]]))
    np.testing.assert_allclose(state, 0.2 * 0.3, rtol=1e-6)  # too little entropy: it rises
    state = control.update(state, Table({"entropy": jnp.float32(1.5)}), jnp.array([[True]]))
    np.testing.assert_allclose(control.coef(state, 0.01), 0.01 * np.exp(0.06 - 0.2), rtol=1e-6)
    assert control.update(state, Table({"entropy": jnp.float32(9.0)}), jnp.array([[False]])) == state
    np.testing.assert_allclose(control.metrics(state, 0.01)["ent_coef"], 0.01 * np.exp(-0.14), rtol=1e-6)
    far = control.update(state, Table({"entropy": jnp.float32(-1e9)}), jnp.array([[True]]))
    assert far == 14.0


def test_it_is_nothing_when_off():
    off = EntropyTarget()
    assert off.init(0.0) == off.update((), Table({}), jnp.array([True])) == ()
    assert off.coef((), 0.25) == 0.25
    assert dict(off.metrics((), 0.25)) == {}


ENV = VectorEnv(builtin.ActionProbe(), 64)  # one of two actions is better: the policy becomes deterministic


def trained(control, iterations=150):
    agent = ppax.PPO(
        ppax.networks.mlp(ENV, hidden=(8,)), learning_rate=5e-3, ent_coef=0.01, entropy=control, num_epochs=2
    )
    state = ppax.start(agent, ENV, 8, jax.random.key(0))
    train = jax.jit(ppax.train, compiler_options=QUICK)
    state = train(agent, ENV, state, iterations, iterations + 20).state
    return train(agent, ENV, state, 20, iterations + 20)


def test_the_entropy_reaches_the_target_and_not_without():
    state, metrics = trained(EntropyTarget(target=0.4, rate=0.2))
    assert abs(float(metrics["entropy"]) - 0.4) < 0.08
    assert float(metrics["ent_coef"]) > 0.02
    np.testing.assert_allclose(metrics["ent_coef"], 0.01 * np.exp(state.learner.entropy), rtol=1e-5)
    _, plain = trained(EntropyTarget())
    assert float(plain["entropy"]) < 0.1
    assert "ent_coef" not in plain


def test_the_loss_has_the_learned_coefficient():
    """With a change of log 3 the loss is that of three times the coefficient."""
    agent = ppax.PPO(ppax.networks.mlp(ENV, hidden=(8,)), ent_coef=0.1, entropy=EntropyTarget(target=0.4), num_epochs=1)
    other = ppax.PPO(ppax.networks.mlp(ENV, hidden=(8,)), ent_coef=0.3, num_epochs=1)
    state, plain = (ppax.start(one, ENV, 8, jax.random.key(0)) for one in (agent, other))
    moved = ppax.types.TrainState(
        **{**vars(state), "learner": state.learner._replace(entropy=jnp.log(jnp.float32(3.0)))}
    )
    train = jax.jit(ppax.train, compiler_options=QUICK)
    one, two = train(agent, ENV, moved, 1, 2), train(other, ENV, plain, 1, 2)
    np.testing.assert_allclose(one.metrics["loss"], two.metrics["loss"], rtol=1e-5)
    for x, y in zip(*(jax.tree.leaves(each.state.learner.params) for each in (one, two)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


def test_a_run_records_and_resumes_it(tmp_path):
    plan = {
        "env": "CartPole-v1",
        "num_envs": 4,
        "num_steps": 8,
        "total_steps": 128,
        "agent": {"network": {"hidden": [8]}, "ent_coef": 0.01, "entropy": {"target": 0.6, "rate": 0.5}},
        "log": {"console": False, "every": 1},
    }
    built = config.build(plan)
    whole = fit_run(*built, tmp_path / "whole")
    fit_run(*built, tmp_path / "cut", [lambda state, row: row["iteration"] == 2])
    resumed = ppax.resume(tmp_path / "cut", console=False)
    assert float(resumed.state.learner.entropy) == float(whole.state.learner.entropy) != 0.0
    for x, y in zip(*map(jax.tree.leaves, (whole.state.learner, resumed.state.learner)), strict=True):
        np.testing.assert_array_equal(x, y)
    rows = whole.history  # the coefficient of a row is the next one's
    expected = 0.01 * np.exp(np.cumsum([0.5 * (0.6 - row["entropy"]) for row in rows]))
    np.testing.assert_allclose([row["ent_coef"] for row in rows], expected, rtol=1e-5)
    ppax.load(tmp_path / "whole").act(np.zeros(4, np.float32))


def test_a_coefficient_of_zero_is_refused():
    agent = ppax.PPO(ppax.networks.mlp(ENV), entropy=EntropyTarget(target=0.4))
    with pytest.raises(ppax.ConfigError, match=r"ent_coef = 0: entropy\.target multiplies it"):
        ppax.fit(agent, ENV, total_steps=64)
    with pytest.raises(ppax.ConfigError, match=r"agent\.entropy\.rate = 0.0: must be above 0"):
        config.resolve({"agent": {"entropy": {"rate": 0}}})
