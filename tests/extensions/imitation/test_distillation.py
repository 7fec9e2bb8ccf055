"""Distillation: value and gradient in float64, refusals, run files, resume, and a student as good as its teacher."""

import dataclasses
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.core.types import ConfigError
from ppax.envs import VectorEnv
from ppax.extensions.imitation import Distillation, distill
from ppax.networks import mlp
from ppax.ppo.losses import NoPolicyLoss
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import collect
from support.teachers import WEIGHTS, teacher_of
from support.trained import policy_of
from support.worlds import QUICK, SGD, Spaced

QUIET = ppax.Log(console=False)
ONE_STEP = {
    "loss": NoPolicyLoss(),
    "minibatch": Shuffle(1),
    "optimizer": SGD(),
    "max_grad_norm": None,
    "learning_rate": 1.0,
    "num_epochs": 1,
    "vf_coef": 0.0,
}


def outputs(params, obs):
    """Hidden features and outputs of the policy's head, in float64."""
    tower, head = params["actor"]["0"], params["policy"]
    hidden = np.tanh(obs @ np.float64(tower["kernel"]) + np.float64(tower["bias"]))
    return hidden, hidden @ np.float64(head["kernel"]) + np.float64(head["bias"])


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_value_and_gradient_are_those_of_the_divergence(name):
    """One step of gradient descent with rate 1 on 2 KL(teacher || student) alone."""
    env = ppax.make(name, 4)
    teacher = policy_of(ppax.PPO(mlp(env, hidden=(6,))), env)
    agent = ppax.PPO(mlp(env, hidden=(5,)), extensions=(distill(env, teacher, coef=2.0),), **ONE_STEP)
    state = ppax.start(agent, env, 8, jax.random.key(0))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    rollout = gather(agent, env, state.learner, state.actor, 8, jax.random.key(1)).rollout
    params = jax.tree.map(lambda x: x + 0.3 * jnp.cos(jnp.arange(x.size) + 1.0).reshape(x.shape), state.learner.params)
    learner = state.learner._replace(params=params)
    out = jax.jit(agent.update, compiler_options=QUICK)(learner, rollout, jax.random.key(2))

    valid = np.asarray(rollout.steps.valid)
    obs = np.float64(rollout.steps.obs)[valid]
    (hidden, own), (_, wanted) = outputs(params, obs), outputs(teacher.learner.params, obs)
    if name == "CartPole-v1":
        p, q = softmax(wanted), softmax(own)
        divergence, slope = (p * (np.log(p) - np.log(q))).sum(-1), q - p
    else:
        deviations = [np.exp(np.float64(one["log_std"])) for one in (teacher.learner.params, params)]
        s, t = deviations
        divergence = (np.log(t / s) + (s**2 + (wanted - own) ** 2) / (2.0 * t**2) - 0.5).sum(-1)
        slope = (own - wanted) / t**2
    np.testing.assert_allclose(out.metrics["teacher_kl"], divergence.mean(), rtol=1e-4)
    np.testing.assert_allclose(out.metrics["distillation_loss"], 2.0 * divergence.mean(), rtol=1e-4)
    moved = np.float64(params["policy"]["kernel"]) - np.asarray(out.learner.params["policy"]["kernel"])
    np.testing.assert_allclose(moved, 2.0 * hidden.T @ slope / len(obs), rtol=1e-3, atol=1e-5)
    np.testing.assert_array_equal(out.learner.params["value"]["kernel"], params["value"]["kernel"])


def test_the_teacher_has_statistics_of_its_own():
    """A teacher that standardises observations does so with its statistics, and the student with none."""
    env = ppax.make("CartPole-v1", 4)
    teacher = policy_of(ppax.PPO(mlp(env, hidden=(6,)), normalize_obs=True), env)
    obs = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    taught = distill(env, teacher).policy.follow((), obs[:, None], np.ones((7, 1), bool), None)
    actions = np.asarray(taught.distribution.log_probs)[:, 0].argmax(-1)
    np.testing.assert_array_equal(actions, teacher.act(obs))
    other = dataclasses.replace(teacher.agent, normalize_obs=False)
    plain = ppax.Policy(other, teacher.learner._replace(obs_stats=None), teacher.spec)
    assert distill(env, plain).policy != distill(env, teacher).policy


class Cases:
    """Teachers that do not fit CartPole, each with the words of its refusal."""

    @staticmethod
    def other_space(env):
        other = ppax.make("Pendulum-v1", 2)
        return policy_of(ppax.PPO(mlp(other)), other)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (Cases.other_space, "has the observation space Box.*must be that of the student"),
        (lambda env: 3, "a int; must be a path, or what ppax.load"),
        (lambda env: "", "must be teacher = "),
        (lambda env: "no/such/run", "distillation.teacher = '.*no/such/run': does not exist"),
    ],
)
def test_teachers_that_do_not_fit_are_refused(make, said):
    env = ppax.make("CartPole-v1", 2)
    with pytest.raises(ConfigError, match=said):
        distill(env, make(env))


def test_another_distribution_is_refused():
    env = ppax.make("Pendulum-v1", 4)
    teacher = policy_of(ppax.PPO(mlp(env, distribution="squashed")), env)
    agent = ppax.PPO(mlp(env), extensions=(distill(env, teacher),), minibatch=Shuffle(1))
    state = ppax.start(agent, env, 8, jax.random.key(0))
    with pytest.raises(ConfigError, match=r"distribution SquashedNormal, those of the student Normal"):
        jax.eval_shape(lambda state: ppax.train(agent, env, state, 1), state)


def test_rows_that_are_not_valid_leave_the_gradient_finite():
    """Episodes of four steps; zeros in the steps between them are no parameters of a beta distribution."""
    env = VectorEnv(Spaced("box"), 4)
    net = mlp(env, hidden=(4,), distribution="beta")
    agent = ppax.PPO(net, extensions=(distill(env, policy_of(ppax.PPO(net), env)),), **ONE_STEP)
    state = ppax.start(agent, env, 8, jax.random.key(0))
    state, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 1)
    assert int(state.iteration) == 1
    assert float(metrics["grad_norm"]) > 0.0
    assert float(metrics["teacher_kl"]) > 0.0


def test_without_a_teacher_the_part_says_what_to_give():
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env), extensions=(Distillation(),))
    state = ppax.start(agent, env, 8, jax.random.key(0))
    with pytest.raises(ConfigError, match="needs a teacher: teacher = "):
        jax.eval_shape(lambda state: ppax.train(agent, env, state, 1), state)


def test_a_run_file_names_its_teacher_and_a_resume_reads_it_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ppax.trust(f"{tmp_path}/teacher")
    plan = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 16, "agent": {"network": {"hidden": [4]}}}
    agent, env, _ = config.build(plan)
    ppax.fit(agent, env, 64, num_steps=16, run_dir="teacher", log=QUIET)
    table = {"part": "distillation", "teacher": "teacher", "coef": 0.5}
    student, env, _ = config.build({**plan, "agent": plan["agent"] | {"extensions": {"distillation": table}}})
    described = config.describe(student)["extensions"]["distillation"]
    found = {"teacher": "", "checksum": "", "beta": None, "memory": [], "teachers": [], "teacher_obs": []}
    found["select"] = {"part": "task", "entry": "", "columns": []}
    assert described | {"teacher": "", "checksum": ""} == table | found
    assert described["teacher"] == str(tmp_path / "teacher")
    assert len(described["checksum"]) == 64

    whole = ppax.fit(student, env, 192, num_steps=16, seed=3, run_dir="whole", log=QUIET)
    ppax.fit(student, env, 64, num_steps=16, seed=3, run_dir="parts", log=QUIET)
    monkeypatch.chdir("/")  # the recorded path holds from everywhere
    resumed = ppax.resume(tmp_path / "parts", total_steps=192)
    for x, y in zip(*(jax.tree.leaves(run.state.learner) for run in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(x, y)

    shutil.move(tmp_path / "teacher", tmp_path / "gone")
    jax.clear_caches()  # as in another process: a program in memory has its teacher
    with pytest.raises(ConfigError, match=r"distillation.teacher = .*does not exist"):
        ppax.resume(tmp_path / "parts", total_steps=256)
    assert ppax.load(tmp_path / "parts").act(np.zeros(4, np.float32)) in (0, 1)  # acting needs no teacher
    other, env, _ = config.build(plan)
    ppax.fit(other, env, 64, num_steps=16, seed=9, run_dir=tmp_path / "teacher", log=QUIET)
    jax.clear_caches()
    with pytest.raises(ConfigError, match="another policy than that of the run's start"):
        ppax.resume(tmp_path / "parts", total_steps=256)


def test_teachers_are_equal_by_what_they_do():
    """A program is compiled for its teacher: equal ones share it, others do not."""
    env = ppax.make("CartPole-v1", 2)
    one, same, other = teacher_of(env), teacher_of(env), teacher_of(env, -WEIGHTS)
    relu = teacher_of(env, activation="relu")
    parts = [distill(env, policy) for policy in (one, same, other, relu)]
    structures = [jax.tree.structure(part) for part in parts]
    assert structures[0] == structures[1]
    assert structures[0] != structures[2]
    assert structures[0] != structures[3]


def trained(extensions, iterations, env, loss=None):
    """Mean return of a student after so many iterations of 16 x 32 steps."""
    agent = ppax.PPO(mlp(env, hidden=(32,)), loss=loss or NoPolicyLoss(), extensions=extensions, learning_rate=3e-3)
    state = ppax.start(agent, env, 32, jax.random.key(4))
    state, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, iterations)
    assert float(metrics["ratio_first_max_dev"]) < 1e-5
    return ppax.evaluate(agent, env, state.learner, jax.random.key(5), 32).mean_return


def test_a_student_reaches_its_teacher():
    """At 10,240 steps; negative controls: no teacher, and a teacher that always does the opposite."""
    env = ppax.make("CartPole-v1", 16)
    teacher = teacher_of(env)
    best = teacher.evaluate(env, 32).mean_return
    student = trained((distill(env, teacher),), 20, env)
    alone = trained((), 20, env)
    opposite = trained((distill(env, teacher_of(env, -WEIGHTS)),), 20, env)
    print(best, student, alone, opposite)
    assert best >= 450.0
    assert student >= 0.95 * best
    assert max(alone, opposite) < 0.5 * best
