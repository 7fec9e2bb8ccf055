"""Behaviour cloning: value and gradient in float64, draws, refusals, run files, resume, a clone of a good policy."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.core.types import ConfigError
from ppax.devices.layout import Program
from ppax.extensions import Rows
from ppax.extensions.imitation import BehaviourCloning, clone
from ppax.networks import mlp, network
from ppax.networks.memories import GRU
from ppax.ppo.losses import NoPolicyLoss
from ppax.ppo.minibatches import Prioritised, Shuffle
from ppax.training.collection import collect
from support.teachers import teacher_of
from support.worlds import QUICK, SGD

QUIET = ppax.Log(console=False)
FLAGS = {"terminations": np.zeros(1, bool), "truncations": np.ones(1, bool)}
ONE_STEP = {"minibatch": Shuffle(1), "optimizer": SGD(), "max_grad_norm": None, "learning_rate": 1.0, "num_epochs": 1}


def recorded(policy, env, steps=500):
    """Episodes that a policy plays, as arrays, one stream after the other."""
    state = ppax.start(policy.agent, env, steps, jax.random.key(1))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    learner = jax.tree.map(jnp.asarray, policy.learner)
    rows = gather(policy.agent, env, learner, state.actor, steps, jax.random.key(2)).rollout.steps
    cut = np.asarray(rows.truncated).copy()
    cut[-1] = True
    valid = np.asarray(rows.valid).T.ravel()
    columns = {"observations": rows.obs, "actions": rows.action, "terminations": rows.terminated, "truncations": cut}
    return {name: np.swapaxes(x, 0, 1).reshape(-1, *x.shape[2:])[valid] for name, x in columns.items()}


def rollout_of(agent, env):
    state = ppax.start(agent, env, 8, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    return state.learner, gather(agent, env, state.learner, state.actor, 8, jax.random.key(1)).rollout


def test_value_and_gradient_are_those_of_the_likelihood():
    """One demonstrated step: the loss is 3 * -log softmax of its action, at its observation, in float64."""
    env = ppax.make("CartPole-v1", 4)
    obs = np.array([[0.3, -0.2, 0.1, 0.7]])
    demos = {"observations": obs, "actions": np.array([1]), **FLAGS}
    own = {"loss": NoPolicyLoss(), "vf_coef": 0.0, **ONE_STEP}
    agent = ppax.PPO(mlp(env, hidden=(5,)), extensions=(clone(env, demos, coef=3.0),), **own)
    learner, rollout = rollout_of(agent, env)
    params = jax.tree.map(lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size) + 1.0).reshape(x.shape), learner.params)
    out = jax.jit(agent.update, compiler_options=QUICK)(learner._replace(params=params), rollout, jax.random.key(2))
    tower, head = params["actor"]["0"], params["policy"]
    hidden = np.tanh(obs @ np.float64(tower["kernel"]) + np.float64(tower["bias"]))
    logits = hidden @ np.float64(head["kernel"]) + np.float64(head["bias"])
    p = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(out.metrics["cloning_loss"], -3.0 * np.log(p[0, 1]), rtol=1e-5)
    np.testing.assert_allclose(out.metrics["demonstration_log_prob"], np.log(p[0, 1]), rtol=1e-5)
    moved = np.float64(params["policy"]["kernel"]) - np.asarray(out.learner.params["policy"]["kernel"])
    np.testing.assert_allclose(moved, 3.0 * hidden.T @ (p - [[0.0, 1.0]]), rtol=1e-4, atol=1e-6)


def rows_of(index, key):
    """Rows of a minibatch of the sequences `index`, of two steps each."""
    env = ppax.make("CartPole-v1", 4)
    _, rollout = rollout_of(ppax.PPO(mlp(env, hidden=(2,)), minibatch=Shuffle(1)), env)
    steps = dataclasses.replace(rollout.steps, valid=jnp.ones((len(index), 2), bool))
    return Rows(None, None, None, None, steps, jax.random.key(key)[None], jnp.asarray(index))


def test_draws_are_uniform_and_belong_to_rows():
    index = np.arange(3000)
    drawn = np.asarray(rows_of(index, 0).draw(6))
    counts = np.bincount(drawn, minlength=6)
    assert len(counts) == 6
    assert np.abs(counts - 1000).max() < 150  # five standard deviations
    turned = np.asarray(rows_of(index[::-1].copy(), 0).draw(6)).reshape(-1, 2)[::-1].ravel()
    np.testing.assert_array_equal(turned, drawn)
    assert np.mean(np.asarray(rows_of(index, 1).draw(6)) == drawn) < 0.25


def test_gradient_accumulation_draws_the_same_steps():
    env = ppax.make("CartPole-v1", 4)
    demos = recorded(teacher_of(env), env, 20)
    found = []
    for rows in (8, 10**6):
        agent = ppax.PPO(
            mlp(env, hidden=(5,)), extensions=(clone(env, demos),), program=Program(chunk_rows=rows), **ONE_STEP
        )
        out = jax.jit(agent.update, compiler_options=QUICK)(*rollout_of(agent, env), jax.random.key(2))
        found.append(out.metrics["cloning_loss"])
    np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"memory": GRU(3)}, "without memory"), ({"minibatch": Prioritised()}, "no importance weights")],
)
def test_memories_and_importance_weights_are_refused(options, said):
    env = ppax.make("CartPole-v1", 4)
    memory = options.pop("memory", None) or network(env).memory
    demos = {"observations": np.zeros((1, 4)), "actions": np.array([1]), **FLAGS}
    agent = ppax.PPO(network(env, memory=memory), extensions=(clone(env, demos),), **options)
    with pytest.raises(ConfigError, match=said):
        jax.eval_shape(agent.update, *rollout_of(agent, env), jax.random.key(2))


def test_without_demonstrations_the_part_says_what_to_give():
    env = ppax.make("CartPole-v1", 4)
    with pytest.raises(ConfigError, match="must be demonstrations = "):
        clone(env)
    agent = ppax.PPO(mlp(env), extensions=(BehaviourCloning(),), minibatch=Shuffle(1))
    with pytest.raises(ConfigError, match="needs demonstrations: demonstrations = "):
        jax.eval_shape(agent.update, *rollout_of(agent, env), jax.random.key(2))


def test_a_run_file_names_its_demonstrations_and_a_resume_reads_them_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ppax.trust(f"{tmp_path}/demos.npz")
    world = ppax.make("CartPole-v1", 4)
    np.savez("demos.npz", **recorded(teacher_of(world), world, 20))
    table = {"demonstrations": "demos.npz", "coef": 0.5}
    plan = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 16}
    agent, env, _ = config.build(
        plan | {"agent": {"network": {"hidden": [4]}, "extensions": {"behaviour_cloning": table}}}
    )
    described = config.describe(agent)["extensions"]["behaviour_cloning"]
    assert described["demonstrations"] == str(tmp_path / "demos.npz")
    whole = ppax.fit(agent, env, 192, num_steps=16, seed=3, run_dir="whole", log=QUIET)
    ppax.fit(agent, env, 64, num_steps=16, seed=3, run_dir="parts", log=QUIET)
    resumed = ppax.resume("parts", total_steps=192)
    for x, y in zip(*(jax.tree.leaves(run.state.learner) for run in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(x, y)
    np.savez("demos.npz", **recorded(teacher_of(world), world, 10))
    jax.clear_caches()  # as in another process
    with pytest.raises(ConfigError, match="others than at the run's start"):
        ppax.resume("parts", total_steps=256)
    (tmp_path / "demos.npz").unlink()
    found = config.build(plan | {"agent": {"extensions": {"behaviour_cloning": described}}}).agent.extensions[0]
    assert found.checksum == described["checksum"]
    assert ppax.load("parts").act(np.zeros(4, np.float32)) in (0, 1)  # acting needs none


def test_a_clone_is_nearly_as_good_as_its_model():
    """At 30,720 steps; the negative control are the same steps with shuffled actions."""
    env = ppax.make("CartPole-v1", 16)
    teacher = teacher_of(env)
    demos = recorded(teacher, env)
    best, scores = teacher.evaluate(env, 32).mean_return, []
    shuffled = demos | {"actions": np.random.default_rng(0).permutation(demos["actions"])}
    for arrays in (demos, shuffled):
        own = {"loss": NoPolicyLoss(), "extensions": (clone(env, arrays),), "learning_rate": 3e-3}
        agent = ppax.PPO(mlp(env, hidden=(32,)), **own)
        state = ppax.start(agent, env, 32, jax.random.key(4))
        state, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 60)
        assert float(metrics["ratio_first_max_dev"]) < 1e-5
        scores.append(ppax.evaluate(agent, env, state.learner, jax.random.key(5), 32).mean_return)
    print(best, scores)
    assert best >= 450.0
    assert scores[0] >= 0.9 * best
    assert scores[1] < 0.5 * best
