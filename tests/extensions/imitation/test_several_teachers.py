"""Several teachers: which of them is followed, by task or by value; memory, acting, run files, sweeps, refusals."""

import dataclasses
import shutil
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli.main import main
from ppax.core.types import ConfigError
from ppax.devices.layout import Program
from ppax.envs import VectorEnv, grouped, host
from ppax.extensions.imitation import ByTask, ByValue, distill
from ppax.networks import network
from ppax.ppo.losses import NoPolicyLoss
from ppax.ppo.minibatches import Shuffle
from ppax.training.collection import collect
from support.teachers import Entries, HostEntries, always
from support.trained import policy_of, random_learner
from support.worlds import QUICK

QUIET = ppax.Log(console=False)
TWO = VectorEnv(Entries(("seen", "privileged", "task")), 4)


def world(*names, tasks=2):
    return VectorEnv(Entries(names, tasks), 4)


def teachers_of(env, count=2, **options):
    """Policies with different random weights, whose V is on both sides of 0."""
    agent = ppax.PPO(network(env, hidden=(4,), **options))
    learners = [random_learner(agent, env, seed) for seed in range(count)]
    for learner in learners:
        learner.params["value"]["bias"] = np.zeros(1, np.float32)
    return [policy_of(agent, env, learner) for learner in learners]


def observed(env, rows=12):
    """Observations [rows, 4, ...] of random steps, with both tasks among them."""
    agent = ppax.PPO(network(env, hidden=()))
    state = ppax.start(agent, env, rows, jax.random.key(2))
    gather = jax.jit(collect, static_argnums=4, compiler_options=QUICK)
    steps = gather(agent, env, state.learner, state.actor, rows, jax.random.key(1)).rollout.steps
    return steps.obs, steps.first


SELECTIONS = {
    "task": (ByTask("task"), lambda obs: obs["task"] - 5),
    "onehot": (ByTask("onehot"), lambda obs: obs["onehot"][..., 1]),
    "inner": (ByTask("inner.task"), lambda obs: obs["inner"]["task"]),
    "columns": (ByTask("vector", columns=(2, 3)), lambda obs: obs["vector"][..., 3]),
    "number": (ByTask("vector", columns=(-1,)), lambda obs: obs["vector"][..., 4]),
}


@pytest.mark.parametrize("name", list(SELECTIONS))
def test_each_row_has_the_targets_of_the_teacher_of_its_task(name):
    select, task_of = SELECTIONS[name]
    entry = {"columns": "vector", "number": "vector"}.get(name, name)
    env = world("seen", entry)
    each = teachers_of(env)
    obs, first = observed(env)
    together = distill(env, teachers=each, select=select)
    found = together.policy.follow((), obs, first, None, together.select)
    own = [distill(env, one).policy.follow((), obs, first, None).distribution.log_probs for one in each]
    task = np.asarray(task_of(jax.tree.map(np.asarray, obs))).astype(int)
    assert set(task.ravel()) == {0, 1}
    expected = np.where(task[..., None] == 1, own[1], own[0])
    np.testing.assert_array_equal(found.distribution.log_probs, expected)


def test_a_number_beyond_the_teachers_is_that_of_the_nearest():
    number = Entries().observation_space["seen"]
    rows = np.stack([ByTask()(np.float32([x]), None, number) for x in (-1.0, 0.2, 0.9, 2.0)])
    np.testing.assert_array_equal(rows, [-1, 0, 1, 2])
    env = world("vector", "seen", tasks=3)
    obs, first = observed(env)
    each = teachers_of(env)
    found = distill(env, teachers=each, select=ByTask("vector", columns=(-1,)))
    rows = found.policy.follow((), obs, first, None, found.select).distribution.log_probs
    last = distill(env, each[1]).policy.follow((), obs, first, None).distribution.log_probs
    beyond = np.asarray(obs["vector"][..., -1]) == 2.0
    assert beyond.any()
    np.testing.assert_array_equal(np.asarray(rows)[beyond], np.asarray(last)[beyond])


@pytest.mark.parametrize("scales", [(), (1.0, 0.1, 3.0)])
def test_by_value_each_row_has_the_targets_of_the_teacher_with_the_highest_value(scales):
    each = teachers_of(TWO, 3)
    obs, first = observed(TWO)
    together = distill(TWO, teachers=each, select=ByValue(scales))
    found = np.asarray(together.policy.follow((), obs, first, None, together.select).distribution.log_probs)
    flat = jax.tree.map(lambda x: np.asarray(x).reshape(-1, *x.shape[2:]), obs)
    values = np.stack([one.act(flat, return_value=True).value for one in each], -1) * np.array(scales or (1.0,))
    best = values.argmax(-1).reshape(first.shape)
    own = [distill(TWO, one).policy.follow((), obs, first, None).distribution.log_probs for one in each]
    assert len(set(best.ravel())) > 1
    np.testing.assert_array_equal(found, np.take_along_axis(np.stack(own), best[None, ..., None], 0)[0])


def test_by_value_a_teacher_needs_what_its_critic_reads():
    """Its actor reads the first entry alone."""
    env = world("seen", "privileged")
    teacher = teachers_of(env, 1, actor_obs=("seen",))[0]
    seen = world("seen")
    distill(seen, teachers=[teacher] * 2, select=dataclasses.replace(Always()))
    with pytest.raises(ConfigError, match=r"teachers\[0\].*reads the entries 'privileged'"):
        distill(seen, teachers=[teacher] * 2, select=ByValue())


@ppax.types.part
class Always:
    """Rule of a user: the last teacher."""

    needs_value = False

    def check(self, observation, teachers):
        assert len(teachers) == 2

    def __call__(self, obs, values, space):
        return jnp.int32(1)


def test_a_rule_of_ones_own_selects():
    each = teachers_of(TWO)
    obs, first = observed(TWO)
    together = distill(TWO, teachers=each, select=Always())
    found = together.policy.follow((), obs, first, None, together.select).distribution.log_probs
    own = distill(TWO, each[1]).policy.follow((), obs, first, None).distribution.log_probs
    np.testing.assert_array_equal(found, own)


def test_each_teacher_has_a_memory_of_its_own():
    """The first without one, the second and third with different ones; over two rollouts."""
    gru, window = ppax.networks.memories.GRU(3), ppax.networks.memories.Window(2)
    each = [teachers_of(TWO, 1, **options)[0] for options in ({}, {"memory": gru}, {"memory": window})]
    together = distill(TWO, teachers=each, select=ByValue())
    assert together.memory[0] == "1: float32[3]"
    assert {text[0] for text in together.memory} == {"1", "2"}
    memory = together.init_streams(4)
    alone = [distill(TWO, one) for one in each]
    own = [one.init_streams(4) for one in alone]
    obs, first = observed(TWO)
    for rows in (slice(0, 6), slice(6, 12)):
        part, begins = jax.tree.map(lambda x, rows=rows: x[rows], (obs, first))
        taught = together.policy.follow(memory, part, begins, None, together.select)
        each_taught = [one.policy.follow(mine, part, begins, None) for one, mine in zip(alone, own, strict=True)]
        memory, own = taught.memory, [one.memory for one in each_taught]
        expected = [array for one in own for array in one]
        assert len(expected) == len(memory)
        for x, y in zip(memory, expected, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-6)
        rows_of = np.stack([one.distribution.log_probs for one in each_taught])
        distance = np.abs(rows_of - np.asarray(taught.distribution.log_probs)).max(-1).min(0)
        np.testing.assert_allclose(distance, 0.0, atol=1e-5)


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_the_teacher_of_the_task_acts(kind):
    """With beta = 1 every action is that of the task's teacher, which the environment pays."""
    env = TWO if kind == "compiled" else host(HostEntries, 4)
    extensions = (distill(env, teachers=[always(env, 0), always(env, 1)], select=ByTask("task"), beta=1.0),)
    agent = ppax.PPO(network(env, hidden=(4,)), loss=NoPolicyLoss(), extensions=extensions, minibatch=Shuffle(1))
    run = ppax.fit(agent, env, 4 * 16, num_steps=16, log=QUIET)
    assert run.history[-1]["episode_return"] == 4.0
    if kind == "host":
        env.close()


REFUSED = {
    "no such entry": (ByTask("taks"), r"select\.entry = 'taks': no such entry; .*nearest: task"),
    "too few tasks": (ByTask("task"), r"'task': has 2 tasks, and there are 3 teachers"),
    "not a vector": (ByTask(""), r"the observation is a Dict: privileged, seen, task; must be a number or a vector"),
    "columns of a number": (ByTask("task", (0,)), r"columns = \[0\]: .* is one number; leave columns out"),
    "no such column": (ByTask("privileged", (0, 1, 5)), r"has 3 columns, 0 to 2, .*nearest to 5: 2"),
    "too few columns": (ByTask("privileged", (0, 1)), r"has 2 tasks, and there are 3 teachers"),
    "scales": (ByValue((1.0,)), r"select\.scales has 1 numbers, and there are 3 teachers"),
}


@pytest.mark.parametrize("name", list(REFUSED))
def test_rules_that_do_not_fit_are_refused(name):
    select, said = REFUSED[name]
    with pytest.raises(ConfigError, match=said):
        distill(TWO, teachers=teachers_of(TWO, 3), select=select)


def test_values_of_normalised_rewards_need_scales():
    agent = ppax.PPO(network(TWO, hidden=()), normalize_reward=True)
    each = [policy_of(agent, TWO), *teachers_of(TWO, 1)]
    with pytest.raises(ConfigError, match=r"the teachers 0 .*normalize_reward.*distillation\.select\.scales"):
        distill(TWO, teachers=each, select=ByValue())
    distill(TWO, teachers=each, select=ByValue((2.0, 1.0)))


def test_one_and_several_teachers_together_are_refused():
    one, other = teachers_of(TWO)
    with pytest.raises(ConfigError, match="there is a teacher, too; must be one of the two"):
        distill(TWO, one, teachers=[one, other])
    with pytest.raises(ConfigError, match=r"must be a list; for one write teacher = \"runs/a\""):
        distill(TWO, teachers="runs/a")
    with pytest.raises(ConfigError, match=r"distillation\.checksum: has 1, and there are 2 teachers"):
        distill(TWO, teachers=["a", "b"], checksum="0")


def test_teachers_with_other_distributions_are_refused():
    env = ppax.make("Pendulum-v1", 4)
    each = [policy_of(ppax.PPO(network(env, distribution=kind)), env) for kind in ("normal", "squashed")]
    agent = ppax.PPO(network(env), extensions=(distill(env, teachers=each, select=ByValue()),), minibatch=Shuffle(1))
    state = jax.eval_shape(lambda key: ppax.start(agent, env, 4, key), jax.random.key(0))
    with pytest.raises(ConfigError, match=r"teachers\[1\]: .* SquashedNormal, those of teacher 0 Normal"):
        jax.eval_shape(lambda state: ppax.train(agent, env, state, 1), state)


def test_a_run_file_names_its_teachers_and_a_resume_reads_them_again(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ppax.trust("support")
    plan = {"env": "support.teachers:Entries", "num_envs": 4, "num_steps": 8}
    for name, memory in (("a", {}), ("b", {"memory": {"part": "gru", "width": 3}})):
        agent, env, _ = config.build(plan | {"agent": {"network": {"hidden": [4], **memory}}})
        ppax.fit(agent, env, 32, num_steps=8, run_dir=name, log=QUIET)
        ppax.trust(f"{tmp_path}/{name}")
    table = {"teachers": ["a", "b"], "select": {"part": "task", "entry": "task"}}
    student, env, _ = config.build(
        plan
        | {"agent": {"network": {"hidden": [4], "actor_obs": ["seen", "task"]}, "extensions": {"distillation": table}}}
    )
    described = config.describe(student)["extensions"]["distillation"]
    assert list(described["teachers"]) == [str(tmp_path / "a"), str(tmp_path / "b")]
    assert len(described["checksum"].split()) == 2
    assert list(described["memory"]) == ["1: float32[3]", "1: float32[3]"]
    assert described["teacher"] == ""
    assert described["select"] == {"part": "task", "entry": "task", "columns": []}

    typed = ["--agent.extensions.distillation.teachers", "a", "b", "--agent.extensions.distillation.select", "task"]
    typed += ["--agent.extensions.distillation.select.entry", "task", "--num-envs", "4", "--num-steps", "8"]
    capsys.readouterr()
    assert main(["train", plan["env"], *typed, "--trust", "support", "--dry-run"]) == 0
    printed = tomllib.loads(capsys.readouterr().out)["agent"]["extensions"]["distillation"]
    assert printed["select"] == {"part": "task", "entry": "task", "columns": []}
    assert [Path(one).name for one in printed["teachers"]] == ["a", "b"]

    whole = ppax.fit(student, env, 96, num_steps=8, run_dir="whole", log=QUIET)
    stop = {"callbacks": [lambda state, row: row["iteration"] >= 1]}
    ppax.fit(student, env, 96, num_steps=8, run_dir="half", log=QUIET, **stop)
    resumed = ppax.resume("half")
    for x, y in zip(*(jax.tree.leaves(run.state.learner) for run in (whole, resumed)), strict=True):
        np.testing.assert_array_equal(x, y)
    shutil.rmtree("b")
    shutil.copytree("a", "b")
    jax.clear_caches()  # as in another process: a program in memory has its teachers
    with pytest.raises(ConfigError, match=r"teachers\[1\] = .*/b': another policy than that of the run's start"):
        ppax.resume("half", total_steps=128)


def small(env, each, coef=1.0, **options):
    extensions = (distill(env, teachers=each, select=ByTask("task"), coef=coef),)
    given = {"minibatch": Shuffle(1), "loss": NoPolicyLoss(), "num_epochs": 1} | options
    return ppax.PPO(network(env, hidden=()), extensions=extensions, **given)


def test_members_of_a_sweep_have_the_same_teachers():
    swept = small(TWO, teachers_of(TWO), jnp.array([0.5, 2.0]))
    states = ppax.start_sweep(swept, TWO, 4, jax.random.split(jax.random.key(0), 2))
    _, metrics = jax.jit(ppax.sweep, compiler_options=QUICK)(swept, TWO, states, 1)
    ratio = np.asarray(metrics["distillation_loss"]) / np.asarray(metrics["teacher_kl"])
    np.testing.assert_allclose(ratio, [0.5, 2.0], rtol=1e-5)


@pytest.mark.nightly
def test_on_several_devices_the_targets_are_the_same():
    found = []
    for devices in (1, 2):
        agent = small(TWO, teachers_of(TWO), program=Program(devices=devices))
        state = ppax.start(agent, TWO, 4, jax.random.key(0))
        found.append(float(jax.jit(ppax.train, compiler_options=QUICK)(agent, TWO, state, 1)[1]["teacher_kl"]))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["Independent", "Groups"])
def test_many_agents_have_several_teachers(kind, vmapped_keys):
    """Agents apart, and groups of which one has teachers."""
    env = ppax.make("Pursuit-2", 4)
    each = [policy_of(ppax.PPO(network(env, hidden=())), env, None)] * 2
    select = ByValue()

    def pupil(space):
        extensions = (distill(space, teachers=each, select=select),)
        return ppax.PPO(network(space, hidden=()), extensions=extensions, minibatch=Shuffle(1), loss=NoPolicyLoss())

    if kind == "Independent":
        agent = ppax.Independent(pupil(env), 2)
    else:
        env = grouped(env, {"prey": [0], "hunters": [1]})
        plain = ppax.PPO(network(env.groups["prey"], hidden=()), minibatch=Shuffle(1))
        agent = ppax.Groups({"prey": plain, "hunters": pupil(env.groups["hunters"])}, env.sizes)
    state = ppax.start(agent, env, 4, jax.random.key(0))
    _, metrics = jax.jit(ppax.train, compiler_options=QUICK)(agent, env, state, 1)
    found = [float(metrics[name]) for name in metrics if "teacher_kl" in name]
    assert found
    assert np.isfinite(found).all()
