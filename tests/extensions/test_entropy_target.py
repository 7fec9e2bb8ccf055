"""Entropy target: the learned coefficient by hand, the entropy that it reaches, and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.arrays.metrics import Table
from ppax.envs import VectorEnv, builtin
from ppax.extensions import EntropyTarget, ExtensionState, Learned
from ppax.ppo.diagnostics import History
from ppax.run.fit import fit_run
from support.worlds import QUICK


def test_the_coefficient_by_hand():
    control, agent = EntropyTarget(target=0.5, rate=0.2), ppax.PPO(None, ent_coef=0.01)

    def after(state, entropy, acts):
        learned = Learned(None, History({}, None, jnp.array(acts)), Table({"entropy": jnp.float32(entropy)}))
        return control.after(agent, None, state, control.begin(state), learned)

    state = after(control.init(agent, None, None).state, 0.2, [[True, False]]).state
    np.testing.assert_allclose(state, 0.2 * 0.3, rtol=1e-6)  # too little entropy: it rises
    state, metrics = after(state, 1.5, [[True]])[1:]
    np.testing.assert_allclose(control.adapt(agent, state).ent_coef, 0.01 * np.exp(0.06 - 0.2), rtol=1e-6)
    assert after(state, 9.0, [[False]]).state == state
    np.testing.assert_allclose(metrics["ent_coef"], 0.01 * np.exp(-0.14), rtol=1e-6)
    far = after(state, -1e9, [[True]]).state
    assert far == 14.0


ENV = VectorEnv(builtin.ActionProbe(), 64)  # one of two actions is better: the policy becomes deterministic


def trained(*extensions, iterations=150):
    agent = ppax.PPO(
        ppax.networks.mlp(ENV, hidden=(8,)), learning_rate=5e-3, ent_coef=0.01, extensions=extensions, num_epochs=2
    )
    state = ppax.start(agent, ENV, 8, jax.random.key(0))
    train = jax.jit(ppax.train, compiler_options=QUICK)
    state = train(agent, ENV, state, iterations, iterations + 20).state
    return train(agent, ENV, state, 20, iterations + 20)


def test_the_entropy_reaches_the_target_and_not_without():
    state, metrics = trained(EntropyTarget(target=0.4, rate=0.2))
    assert abs(float(metrics["entropy"]) - 0.4) < 0.08
    assert float(metrics["ent_coef"]) > 0.02
    np.testing.assert_allclose(
        metrics["ent_coef"], 0.01 * np.exp(state.learner.extensions["entropy_target"].state), rtol=1e-5
    )
    _, plain = trained()
    assert float(plain["entropy"]) < 0.1
    assert "ent_coef" not in plain


def test_the_loss_has_the_learned_coefficient():
    """With a change of log 3 the loss is that of three times the coefficient."""
    agent = ppax.PPO(
        ppax.networks.mlp(ENV, hidden=(8,)), ent_coef=0.1, extensions=(EntropyTarget(target=0.4),), num_epochs=1
    )
    other = ppax.PPO(ppax.networks.mlp(ENV, hidden=(8,)), ent_coef=0.3, num_epochs=1)
    state, plain = (ppax.start(one, ENV, 8, jax.random.key(0)) for one in (agent, other))
    learned = {"entropy_target": ExtensionState(jnp.log(jnp.float32(3.0)))}
    moved = dataclasses.replace(state, learner=state.learner._replace(extensions=learned))
    train = jax.jit(ppax.train, compiler_options=QUICK)
    one, two = train(agent, ENV, moved, 1, 2), train(other, ENV, plain, 1, 2)
    np.testing.assert_allclose(one.metrics["loss"], two.metrics["loss"], rtol=1e-5)
    for x, y in zip(*(jax.tree.leaves(each.state.learner.params) for each in (one, two)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-7)


def test_a_run_records_and_resumes_it(tmp_path):
    target = {"target": 0.6, "rate": 0.5}
    plan = {
        "env": "CartPole-v1",
        "num_envs": 4,
        "num_steps": 8,
        "total_steps": 128,
        "agent": {"network": {"hidden": [8]}, "ent_coef": 0.01, "extensions": {"entropy_target": target}},
        "log": {"console": False, "every": 1},
    }
    built = config.build(plan)
    whole = fit_run(*built, tmp_path / "whole")
    fit_run(*built, tmp_path / "cut", [lambda state, row: row["iteration"] == 2])
    resumed = ppax.resume(tmp_path / "cut", console=False)
    found = [float(run.state.learner.extensions["entropy_target"].state) for run in (resumed, whole)]
    assert found[0] == found[1] != 0.0
    for x, y in zip(*map(jax.tree.leaves, (whole.state.learner, resumed.state.learner)), strict=True):
        np.testing.assert_array_equal(x, y)
    rows = whole.history  # the coefficient of a row is the next one's
    expected = 0.01 * np.exp(np.cumsum([0.5 * (0.6 - row["entropy"]) for row in rows]))
    np.testing.assert_allclose([row["ent_coef"] for row in rows], expected, rtol=1e-5)
    ppax.load(tmp_path / "whole").act(np.zeros(4, np.float32))


def test_a_coefficient_of_zero_is_refused():
    agent = ppax.PPO(ppax.networks.mlp(ENV), extensions=(EntropyTarget(target=0.4),))
    with pytest.raises(ppax.ConfigError, match=r"ent_coef = 0: entropy_target multiplies it"):
        ppax.fit(agent, ENV, total_steps=64)
    with pytest.raises(ppax.ConfigError, match=r"agent\.extensions\.entropy_target\.rate = 0.0: must be above 0"):
        config.resolve({"agent": {"extensions": {"entropy_target": {"rate": 0}}}})
