"""DAgger: the share of the teacher's actions is beta, compiled and on the host; refusals, evaluation, learning."""

import dataclasses
import json
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.cli.main import main
from ppax.core.types import ConfigError, EnvReset, EnvStep, part, static
from ppax.envs import VectorEnv, host
from ppax.extensions.imitation import distill
from ppax.networks import mlp
from ppax.ppo.losses import NoPolicyLoss
from ppax.ppo.minibatches import Shuffle
from ppax.training.backends import backend_of
from support.teachers import HostRecall, Recall, latch_of, table_of
from support.worlds import QUICK

QUIET = ppax.Log(console=False)
SEEN, ACTIONS = spaces.Box(0.0, 1.0, (2,), np.float32), spaces.Discrete(2)


@part
class Lever:
    """Five steps with the same observation; the reward is the action that was received."""

    observation_space, action_space, num_agents = SEEN, ACTIONS, None

    def reset(self, key):
        return EnvReset(jnp.int32(0), jnp.array([1.0, 0.0]))

    def step(self, time, action, key):
        return EnvStep(time + 1, jnp.array([1.0, 0.0]), action.astype(jnp.float32), time >= 4, jnp.bool_(False))


class HostLever(gymnasium.Env):
    """Lever in Python."""

    observation_space, action_space = SEEN, ACTIONS

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.array([1.0, 0.0], np.float32), {}

    def step(self, action):
        self.time += 1
        return np.array([1.0, 0.0], np.float32), float(action), self.time >= 5, False, {}


LEVERS = {"compiled": partial(VectorEnv, Lever(), 32), "host": partial(host, HostLever, 4)}


def one_of(env, action):
    """Policy that always takes `action`."""
    return table_of(env, [action, action])


def acts_of(actor):
    """Whether the teacher has acted in each stream, [B]."""
    return actor.carry.extensions["distillation"][1]


def collected(agent, env, learner, steps):
    """Rollout of an agent with this learner, from the first reset on."""
    state = ppax.start(agent, env, steps, jax.random.key(0))
    gather = backend_of(env).rollouts(agent, state)
    return gather(learner, state.actor, jax.random.key(1)).collected


@pytest.mark.parametrize(
    ("kind", "beta"),
    [
        ("compiled", 0.0),
        ("compiled", 0.3),
        ("compiled", 1.0),
        ("host", 0.3),
        *(pytest.param("host", beta, marks=pytest.mark.nightly) for beta in (0.0, 1.0)),
    ],
)
def test_the_share_of_the_teachers_actions_is_beta(kind, beta):
    """Counted by the environment; the student always takes 0, the teacher 1. The log-probability is the student's."""
    with LEVERS[kind]() as env:
        student = one_of(env, 0)
        extensions = (distill(env, one_of(env, 1), beta=beta),)
        agent = dataclasses.replace(student.agent, extensions=extensions, loss=NoPolicyLoss(), minibatch=Shuffle(1))
        learner = agent.init(env.observation_space, jax.random.key(3))._replace(params=student.learner.params)
        actor, rollout, _ = collected(agent, env, learner, 64 if kind == "compiled" else 256)
        steps = rollout.steps
        valid, counted = np.asarray(steps.valid), np.asarray(steps.reward)
        np.testing.assert_array_equal(counted[valid], np.asarray(steps.action)[valid])
        share, error = counted[valid].mean(), np.sqrt(beta * (1.0 - beta) / valid.sum())
        assert abs(share - beta) <= 4.0 * error
        assert valid.sum() > 600
        np.testing.assert_allclose(np.asarray(steps.log_prob)[valid], -40.0 * counted[valid], atol=1e-3)
        if beta == 0.3:  # each step and each stream draws for itself: all pairs of successive steps are there
            both = (counted[:-1] + 2.0 * counted[1:])[valid[:-1] & valid[1:]]
            expected = np.array([0.49, 0.21, 0.21, 0.09])
            np.testing.assert_allclose(np.bincount(both.astype(int), minlength=4) / len(both), expected, atol=0.08)
            assert len(np.unique(counted[:8].T, axis=0)) > 2
        assert acts_of(actor).shape == (env.num_streams,)


@pytest.mark.parametrize("kind", list(LEVERS))
def test_an_evaluation_is_of_the_student_alone(kind):
    with LEVERS[kind]() as env:
        student = one_of(env, 0)
        extensions = (distill(env, one_of(env, 1), beta=1.0),)
        agent = dataclasses.replace(student.agent, extensions=extensions, loss=NoPolicyLoss())
        for deterministic in (True, False):
            out = ppax.evaluate(agent, env, student.learner, jax.random.key(0), 4, deterministic)
            np.testing.assert_array_equal(out.returns, 0.0)
        mine = ppax.Policy(agent, student.learner, student.spec)
        first = jnp.ones(3, bool)
        out = mine.step(mine.initial_carry(3), jnp.ones((3, 2)), first, key=jax.random.key(0))
        np.testing.assert_array_equal(out.action, 0)


RECALLS = {"compiled": partial(VectorEnv, Recall(), 16), "host": partial(host, HostRecall, 4)}


@pytest.mark.parametrize("kind", list(RECALLS))
def test_a_teacher_acts_by_its_own_memory(kind):
    """With beta = 1 every action equals the cue, which only the teacher remembers."""
    with RECALLS[kind]() as env:
        extensions = (distill(env, latch_of(env), beta=1.0),)
        agent = ppax.PPO(mlp(env, hidden=(4,)), extensions=extensions, loss=NoPolicyLoss(), minibatch=Shuffle(1))
        learner = agent.init(env.observation_space, jax.random.key(0))
        actor, rollout, _ = collected(agent, env, learner, 18)  # the last episode goes on
        steps = rollout.steps
        np.testing.assert_array_equal(np.asarray(steps.reward)[np.asarray(steps.valid)], 1.0)
        assert 0.1 < np.mean(steps.action) < 0.9
        assert acts_of(actor).all()
        assert np.any(actor.carry.extensions["distillation"][0][0])


def test_a_schedule_lowers_beta_in_a_run_file(tmp_path):
    """With coef = 0 the student stays at even chances: the mean reward of a step is 0.5 + 0.5 beta."""
    env = VectorEnv(Lever(), 64)
    teacher = ppax.PPO(mlp(env, hidden=(4,)), learning_rate=0.05)
    teacher = ppax.fit(teacher, env, 6 * 64 * 60, num_steps=60, run_dir=tmp_path / "one", log=QUIET)
    pulls = teacher.evaluate(64, deterministic=False).mean_return / 5.0  # of an evaluation: nearly all
    assert pulls > 0.98
    ppax.trust(f"{tmp_path}/one")
    extensions = {"distillation": {"teacher": str(tmp_path / "one"), "coef": 0.0, "beta": 1.0}}
    schedule = {"part": "linear", "leaves": ["extensions.distillation.beta"]}
    parts = {"loss": {"part": "none"}, "extensions": extensions, "schedule": schedule, "network": {"hidden": [4]}}
    agent, _, _ = config.build({"env": "CartPole-v1", "agent": parts}, env)
    assert float(agent.extensions[0].beta) == 1.0
    run = ppax.fit(agent, env, 4 * 64 * 60, num_steps=60, log=ppax.Log(every=1, console=False))
    betas = [row["extensions.distillation.beta"] for row in run.history]
    np.testing.assert_allclose(betas, [1.0, 0.75, 0.5, 0.25])
    means = [row["episode_return"] / 5.0 for row in run.history]
    np.testing.assert_allclose(means, [0.5 + 0.5 * beta for beta in betas], atol=0.04)


def command(folder):
    """Words of the command line for a student of CartPole in two iterations, whose teacher is in `folder`."""
    pole = ppax.make("CartPole-v1", 4)
    ppax.fit(ppax.PPO(mlp(pole, hidden=(4,))), pole, 32, num_steps=8, run_dir=folder / "pole", log=QUIET)
    words = ["train", "CartPole-v1", "--total-steps", "64", "--num-envs", "4", "--num-steps", "8", "--log.every", "1"]
    return [
        *words,
        "--agent.extensions",
        "distillation",
        "--agent.extensions.distillation.teacher",
        str(folder / "pole"),
    ]


def test_beside_another_policy_loss_it_is_refused(tmp_path, capsys):
    env = VectorEnv(Lever(), 4)
    agent = ppax.PPO(mlp(env), extensions=(distill(env, one_of(env, 1), beta=0.5),))
    said = r"distillation\.beta: some actions are the teacher's.*ClippedSurrogate.*must be none, or with agent\.loss = "
    with pytest.raises(ConfigError, match=said):
        ppax.start(agent, env, 8, jax.random.key(0))
    words = command(tmp_path)
    assert main([*words, "--agent.extensions.distillation.beta", "0.5"]) == 2
    assert "distillation.beta: some actions are the teacher's" in capsys.readouterr().err
    assert main([*words, "--agent.extensions.distillation.beta", "1.5", "--agent.loss", "none"]) == 2
    assert "nearest valid value: 1" in capsys.readouterr().err


@pytest.mark.nightly
def test_it_trains_from_the_command_line(tmp_path, capsys):
    words = [
        *command(tmp_path),
        "--agent.extensions.distillation.beta",
        "1",
        "--agent.loss",
        "none",
        "--eval.episodes",
        "2",
    ]
    words += ["--agent.schedule", "linear", "--agent.schedule.leaves", "extensions.distillation.beta"]
    assert main([*words, "--run-dir", str(tmp_path / "student")]) == 0
    rows = (tmp_path / "student" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["extensions.distillation.beta"] for row in rows] == [1.0, 0.5]


def test_other_runs_act_by_the_same_program():
    """Without beta there is no state of a teacher, and no operation for it."""
    env = VectorEnv(Lever(), 4)
    plain = ppax.PPO(mlp(env))
    taught = dataclasses.replace(plain, extensions=(distill(env, latch_of(env)),))
    learner = jax.eval_shape(lambda key: plain.init(env.observation_space, key), jax.random.key(0))
    inputs = (), jnp.zeros((4, 2)), jnp.ones(4, bool), None, jax.random.key(0)
    texts = [str(jax.make_jaxpr(agent.act)(learner, *inputs)) for agent in (plain, taught)]
    assert texts[0] == texts[1]
    assert taught.start_carry(4) == ()


@part
class Lock:
    """Right actions, one for each place, open a lock; a wrong one ends the episode. The reward of a right one is 1."""

    secret: tuple[int, ...] = static(default=(2, 0, 3, 1, 1, 2, 0, 3, 2, 0, 1, 3))

    num_agents = None
    action_space = spaces.Discrete(4)

    @property
    def observation_space(self):
        return spaces.Box(0.0, 1.0, (len(self.secret),), np.float32)

    def reset(self, key):
        return EnvReset(jnp.int32(0), jax.nn.one_hot(0, len(self.secret)))

    def step(self, place, action, key):
        right = action == jnp.asarray(self.secret)[place]
        after = place + 1
        over = ~right | (after == len(self.secret))
        return EnvStep(after, jax.nn.one_hot(after, len(self.secret)), right.astype(jnp.float32), over, over & False)


def opened(env, teacher, beta):
    """Mean return of a student after two iterations of 16 x 16 steps."""
    extensions = (distill(env, teacher, beta=beta),)
    agent = ppax.PPO(mlp(env, hidden=()), loss=NoPolicyLoss(), extensions=extensions, learning_rate=0.1)
    state = ppax.start(agent, env, 16, jax.random.key(4))
    state, _ = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 2)
    return ppax.evaluate(agent, env, state.learner, jax.random.key(5), 16).mean_return


def test_a_teacher_that_acts_shows_states_that_the_student_does_not_reach():
    """Twelve places, of which each is learned for itself. Negative control: the student acts alone."""
    env = VectorEnv(Lock(), 16)
    secret = np.array(env.env.secret)
    shown, alone = (opened(env, table_of(env, secret), beta) for beta in (0.9, None))
    print(shown, alone)
    assert shown == 12.0
    assert alone <= 9.0
