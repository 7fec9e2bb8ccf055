"""Teachers that read other entries of an observation than the student: targets, refusals, run files, acting."""

import jax
import numpy as np
import pytest

import ppax
from ppax.cli.main import main
from ppax.core.types import ConfigError
from ppax.envs import VectorEnv, host
from ppax.extensions.imitation import distill
from ppax.networks import network
from ppax.ppo.losses import NoPolicyLoss
from ppax.ppo.minibatches import Shuffle
from support.teachers import Entries, HostEntries
from support.trained import policy_of
from support.worlds import QUICK

QUIET = ppax.Log(console=False)
ROWS = 7


def world(*names):
    return VectorEnv(Entries(names), 4)


def policy(*names, **options):
    env = world(*names)
    return policy_of(ppax.PPO(network(env, hidden=(), **options)), env)


def drawn(env, seed=0):
    """Observations [ROWS, 1, ...] of an environment's space."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(size=(ROWS, 1, *space.shape)).astype(np.float32)
        for name, space in env.observation_space.spaces.items()
    }


def log_probs(teacher, x):
    """Log-probabilities of a teacher without hidden layers, in float64."""
    head = teacher.learner.params["policy"]
    logits = np.float64(x) @ np.float64(head["kernel"]) + np.float64(head["bias"])
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def targets(env, teacher, obs, **options):
    made = distill(env, teacher, **options).policy
    return np.asarray(made.follow((), obs, np.ones((ROWS, 1), bool), None).distribution.log_probs)


STUDENT = ("seen", "privileged")


@pytest.mark.parametrize(
    ("teacher", "read"),
    [
        (lambda: policy("privileged"), ("privileged",)),  # the student's environment has an entry more
        (lambda: policy("privileged", "seen"), ("privileged", "seen")),
        # the teacher's actor does not read an entry that the student's environment lacks
        (lambda: policy("privileged", "secret", "seen", actor_obs=("privileged",)), ("privileged",)),
    ],
)
def test_targets_are_those_of_the_entries_that_the_teacher_reads(teacher, read):
    env, teacher = world(*STUDENT), teacher()
    obs = drawn(env)
    expected = log_probs(teacher, np.concatenate([obs[name] for name in read], axis=-1))
    np.testing.assert_allclose(targets(env, teacher, obs), expected, rtol=1e-4, atol=1e-5)


def test_one_entry_is_the_whole_observation_of_a_teacher():
    """A teacher that was trained on a plain vector."""
    box = VectorEnv(Entries(("privileged",)), 4).observation_space["privileged"]

    class Plain:
        observation_space, action_space, num_agents = box, Entries.action_space, 1
        sizes, agent_names, actor_obs, name = (), (), (), "plain"

    agent = ppax.PPO(network(Plain, hidden=()))
    learner = agent.init(box, jax.random.key(3))
    teacher = ppax.Policy(agent, learner, ppax.policy.PolicySpec(box, Entries.action_space))
    env = world(*STUDENT)
    obs = drawn(env)
    found = targets(env, teacher, obs, teacher_obs=("privileged",))
    np.testing.assert_allclose(found, log_probs(teacher, obs["privileged"]), rtol=1e-4, atol=1e-5)
    with pytest.raises(ConfigError, match=r'give distillation\.teacher_obs = \["privileged"\]'):
        distill(env, teacher)


@pytest.mark.parametrize(
    ("teacher", "options", "said"),
    [
        (
            lambda: policy("privileged", "secret"),
            {},
            r"reads the entries 'secret', which the student's environment lacks; it has 'privileged', 'seen'\..*"
            r"agent\.network\.actor_obs",
        ),
        (lambda: policy("privileged"), {"teacher_obs": ("privilege",)}, r"no such entry.*nearest: privileged"),
        (lambda: policy("privileged"), {"teacher_obs": ("seen", "privileged")}, r"must be one entry for all 1"),
        (lambda: policy("privileged"), {"teacher_obs": ("seen",)}, r"has the observation space Dict.*must be that of"),
    ],
)
def test_a_teacher_that_reads_what_the_environment_lacks_is_refused(teacher, options, said):
    with pytest.raises(ConfigError, match=said):
        distill(world(*STUDENT), teacher(), **options)


def test_an_entry_of_another_space_is_refused():
    tasks = VectorEnv(Entries(("task",), 3), 4)
    teacher = policy_of(ppax.PPO(network(tasks, hidden=())), tasks)
    with pytest.raises(ConfigError, match=r"reads the entry 'task' as Discrete\(3.*has Discrete\(2"):
        distill(world("seen", "task"), teacher)


def test_a_student_may_see_images_and_its_teacher_the_state():
    env = world("pixels", "privileged")
    student = network(env, hidden=(4,), actor_obs=("pixels",))
    extensions = (distill(env, policy("privileged")),)
    agent = ppax.PPO(student, loss=NoPolicyLoss(), extensions=extensions, minibatch=Shuffle(1))
    state = jax.eval_shape(lambda key: ppax.start(agent, env, 4, key), jax.random.key(0))
    _, metrics = jax.eval_shape(lambda state: ppax.train(agent, env, state, 1), state)
    assert "teacher_kl" in metrics.names
    assert policy_of(agent, env).spec.unread == ("privileged",)


def test_the_command_line_trains_a_student_that_acts_without_privileged_entries(tmp_path, monkeypatch, capsys):
    """Teacher and student from the command line, with beta; then a bundle of the student and a resumed run."""
    monkeypatch.chdir(tmp_path)
    small = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "64", "--agent.network.hidden", "4"]
    small += ["--trust", "support", "--log.console", "false"]
    name = "support.teachers:Entries"
    assert main(["train", name, *small, "--run-dir", "teacher", "--agent.network.actor-obs", "privileged"]) == 0
    taught = ["--agent.network.actor-obs", "seen", "--agent.loss", "none", "--agent.extensions.distillation.beta", "1"]
    taught += ["--agent.extensions.distillation.teacher", "teacher", "--agent.schedule", "constant"]
    assert main(["train", name, *small, "--run-dir", "student", *taught]) == 0
    ppax.trust("support")
    student = ppax.load("student")
    assert student.act({"seen": np.zeros(2, np.float32)}) in (0, 1, 2)
    assert student.spec.unread == ("privileged", "task")
    student.export("student.zip", formats=["numpy"])
    assert ppax.resume("student", total_steps=96).state.iteration == 3
    with pytest.raises(ConfigError, match=r"distillation\.teacher: .*/teacher reads the entries 'privileged'"):
        distill(world("seen"), tmp_path / "teacher")


@pytest.mark.parametrize("memory", ["teacher", "student"])
def test_memory_of_the_teacher_or_the_student_alone(memory):
    env, gru = world(*STUDENT), {"memory": ppax.networks.memories.GRU(3)}
    teacher = policy("privileged", **(gru if memory == "teacher" else {}))
    student = network(env, hidden=(4,), actor_obs=("seen",), **(gru if memory == "student" else {}))
    extensions = (distill(env, teacher),)
    agent = ppax.PPO(student, loss=NoPolicyLoss(), extensions=extensions, minibatch=Shuffle(1), seq_len=4)
    state = ppax.start(agent, env, 8, jax.random.key(0))
    state, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 2)
    assert np.isfinite(metrics["teacher_kl"])
    assert float(metrics["teacher_kl"]) > 0.0
    assert len(jax.tree.leaves(state.actor.extensions["distillation"])) == (2 if memory == "teacher" else 0)


def test_in_python_environments_a_student_has_a_privileged_teacher():
    with host(HostEntries, 2) as env:
        privileged = policy_of(ppax.PPO(network(env, hidden=(), actor_obs=("privileged",))), env)
        student = network(env, hidden=(4,), actor_obs=("seen",))
        extensions = (distill(env, privileged, beta=0.5),)
        agent = ppax.PPO(student, loss=NoPolicyLoss(), extensions=extensions, minibatch=Shuffle(1))
        run = ppax.fit(agent, env, 32, num_steps=8, log=QUIET)
        assert run.policy().act({"seen": np.zeros(2, np.float32)}) in (0, 1, 2)
