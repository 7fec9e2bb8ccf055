"""`compute_dtype = "auto"`: bfloat16 in training where the processor is faster in it and nothing raw is rounded."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.agents import precision
from ppax.agents.self_play import Pool, SelfPlay
from ppax.devices import platforms
from ppax.networks import Tower, mlp, network
from ppax.networks.memories import GRU, LRU, LSTM, Attention, MinGRU, Stack, Window
from ppax.policy.programs import InNumpy
from ppax.sweeps import directory, packing, runs
from support.worlds import QUICK, Leaky

WITH_UNIT, WITHOUT = "flags : fpu avx512_bf16 avx\n", "flags : fpu avx512f\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Return a function that gives the processor its flags; JAX's own precision is not set, as for users."""
    monkeypatch.setattr(platforms, "CPU_INFO", tmp_path / "cpuinfo")
    set_before = jax.config.jax_default_matmul_precision
    jax.config.update("jax_default_matmul_precision", None)
    yield lambda flags: (tmp_path / "cpuinfo").write_text(flags)
    jax.config.update("jax_default_matmul_precision", set_before)


class Of(dict):
    """Spaces of an environment that reads `size` numbers."""

    def __init__(self, size, image=False):
        shape = (12, 12, 3) if image else (size,)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8) if image else spaces.Box(-1, 1, shape, np.float32)
        self.action_space = spaces.Discrete(2)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ((network(Of(15)), False), "bfloat16"),
        ((network(Of(16)), False), "bfloat16"),  # the first layer does not round
        ((network(Of(16)), True), "bfloat16"),
        ((network(Of(15), hidden=()), False), "bfloat16"),
        ((network(Of(16), hidden=()), True), "float32"),  # the head would round observations
        ((network(Of(16), hidden=(), memory=GRU(16)), True), "float32"),
        ((network(Of(16), hidden=(16,), memory=GRU(16)), True), "bfloat16"),
        ((network(Of(5), hidden=(), memory=Window(3)), False), "bfloat16"),
        ((network(Of(5), hidden=(), memory=Window(4)), False), "float32"),  # 20 numbers of observations
        ((network(Of(5), hidden=(), memory=Window(4, hidden=())), False), "float32"),
        ((network(Of(5), hidden=(), memory=Stack(Window(4))), False), "float32"),
        ((network(Of(5), hidden=(8,), memory=Window(4)), False), "bfloat16"),
        ((network(Of(20), critic=Tower(hidden=())), False), "float32"),
        ((network(Of(4), memory=GRU(8)), False), "bfloat16"),
        ((network(Of(4), memory=Stack(GRU(8))), False), "bfloat16"),
        ((network(Of(0, image=True)), True), "float32"),  # convolutions
        ((Leaky(network(Of(4))), True), "float32"),  # a network of one's own
    ],
)
def test_the_dtype_of_products_in_training(case, expected, machine):
    built, normalised = case
    agent = ppax.PPO(built, normalize_obs=normalised)
    machine(WITH_UNIT)
    assert precision.in_training(agent).compute_dtype == expected
    machine(WITHOUT)
    assert precision.in_training(agent).compute_dtype == "float32"
    where_safe = dataclasses.replace(agent, compute_dtype="bfloat16_where_safe")  # on any machine
    assert precision.in_training(where_safe).compute_dtype == expected
    assert precision.in_training(precision.decide_dtype(agent, "float32")).compute_dtype == "float32"


MEMORIES = {
    "none": None,
    "gru": GRU(16),
    "lstm": LSTM(16),
    "mingru": MinGRU(16),
    "lru": LRU(16),
    "attention": Attention(16),
    "window": Window(4),
    "window without layers": Window(4, hidden=()),
    "stack of windows": Stack(Window(4, hidden=(16,)), residual=True, norm=False),
    "stack": Stack(GRU(16), residual=True),
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize(("size", "hidden"), [(5, ()), (33, (16,))])
def test_no_product_of_a_network_that_may_round_reads_rounded_observations(memory, hidden, size):
    """Two observations that bfloat16 cannot tell apart have other features; a first layer computes their difference."""
    options = {} if MEMORIES[memory] is None else {"memory": MEMORIES[memory]}
    built = network(Of(size), hidden=hidden, activation="relu", policy_gain=1.0, **options)
    if not precision.may_round(built):
        assert hidden == ()  # with hidden layers none reads them
        return
    agent = ppax.PPO(built, compute_dtype="bfloat16")
    learner = agent.init(Of(size).observation_space, jax.random.key(0))
    for tower in ("actor", "critic") if hidden else ():
        layer = learner.params[tower]["0"]
        layer["kernel"] = jax.numpy.zeros_like(layer["kernel"]).at[0].set(1.0).at[1].set(-1.0)
    obs = jax.numpy.full((2, size), 1000.0).at[1, 0].set(1000.5)  # both are 1000 in bfloat16
    policy = jax.jit(agent.policy, compiler_options=QUICK)
    moved = policy(learner, agent.initial_carry(2), obs, jax.numpy.ones(2, bool), None).features
    assert any((np.asarray(x[0]) != np.asarray(x[1])).any() for x in jax.tree.leaves(moved))


@dataclasses.dataclass(frozen=True)
class OwnMemory:
    """A memory that is not one of ppax."""


def test_a_memory_of_ones_own_is_not_rounded():
    built = network(Of(4), memory=GRU(8))
    for memory in (OwnMemory(), Stack(OwnMemory())):
        assert not precision.may_round(dataclasses.replace(built, memory=memory))


def test_jax_own_setting_means_float32(machine):
    machine(WITH_UNIT)
    agent = ppax.PPO(network(Of(4)))
    with jax.default_matmul_precision("float32"):
        assert precision.in_training(agent).compute_dtype == "float32"
    assert precision.in_training(agent).compute_dtype == "bfloat16"


def test_every_learner_of_many_is_decided_and_a_given_dtype_stays(machine):
    machine(WITH_UNIT)
    env = ppax.make("Pursuit-2", 8)
    agent = ppax.PPO(mlp(env))
    independent = precision.in_training(ppax.Independent(agent, 2))
    assert independent.agent.compute_dtype == "bfloat16"
    exact = dataclasses.replace(agent, compute_dtype="float32")
    assert precision.decide_dtype(exact) == exact
    assert precision.in_training(exact) == exact
    assert precision.products_of(ppax.Independent(exact, 2), 16) == "float32"


def test_groups_and_self_play_are_decided(machine):
    machine(WITH_UNIT)
    env = ppax.make("Pursuit-3", 8)
    agent = ppax.PPO(mlp(env))
    groups = ppax.Groups({"a": agent, "b": dataclasses.replace(agent, compute_dtype="float32")}, (("a", 1), ("b", 2)))
    played = precision.in_training(SelfPlay(groups, Pool(every=1), 8))
    assert [one.compute_dtype for one in played.agent.agents.values()] == ["bfloat16", "float32"]
    assert precision.products_of(groups, 24) == "bfloat16, float32"
    later = ppax.Groups({"z": agent, "a": agent}, (("z", 1), ("a", 2)))
    for decide in (precision.decide_dtype, precision.in_training):  # groups are in the order of their agents
        assert list(decide(SelfPlay(later, Pool(every=1), 8)).agent.agents) == ["z", "a"]


def rounds(function, *arguments):
    """Return whether a program rounds the factors of a product."""
    return "rounded=True" in str(jax.make_jaxpr(function)(*arguments))


def test_training_rounds_and_acting_does_not(machine):
    machine(WITH_UNIT)
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env, hidden=(16, 16)))
    state = jax.jit(ppax.start, static_argnums=2, compiler_options=QUICK)(agent, env, 8, jax.random.key(0))
    assert rounds(lambda state: ppax.train(agent, env, state, 1), state)
    assert not rounds(lambda state: agent.policy(state.learner, (), state.actor.obs, state.actor.first, None), state)
    assert not rounds(lambda state: ppax.collect(agent, env, state.learner, state.actor, 8, jax.random.key(1)), state)
    machine(WITHOUT)
    jax.clear_caches()  # of traces on the other processor
    assert not rounds(lambda state: ppax.train(agent, env, state, 1), state)


def fitted(directory, machine, flags, total=4, resume=None):
    machine(flags)
    jax.clear_caches()
    if resume is not None:
        return ppax.resume(directory, console=False, total_steps=resume)
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env, hidden=(16, 16)), learning_rate=1e-2, schedule=ppax.schedules.Constant())
    return ppax.fit(agent, env, total * 32, run_dir=directory, num_steps=8, log=ppax.config.Log(console=False))


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_run_goes_on_in_its_own_precision_on_another_machine(tmp_path, machine):
    whole = fitted(tmp_path / "whole", machine, WITH_UNIT)
    exact = fitted(tmp_path / "exact", machine, WITHOUT)
    fitted(tmp_path / "half", machine, WITH_UNIT, total=2)
    shutil.copytree(tmp_path / "half", tmp_path / "passed")
    resumed = fitted(tmp_path / "half", machine, WITHOUT, resume=4 * 32)
    given = dataclasses.replace(whole.agent, compute_dtype="auto")  # the user passes the objects with which it began
    passed = ppax.resume(tmp_path / "passed", given, whole.env, console=False, total_steps=4 * 32)
    leaves = [jax.tree.leaves(run.state.learner.params) for run in (whole, resumed, exact, passed)]
    for one, other, third in zip(leaves[0], leaves[1], leaves[3], strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)
    assert any((np.asarray(one) != np.asarray(other)).any() for one, other in zip(leaves[0], leaves[2], strict=True))
    starts = json.loads((tmp_path / "half" / "about.json").read_text())["starts"]
    assert [start["products"] for start in starts] == ["bfloat16", "bfloat16"]
    # its evaluations are those of a run that was not interrupted: in float32
    actor, learner = resumed.state.actor, resumed.state.learner
    assert not rounds(lambda: resumed.agent.policy(learner, (), actor.obs, actor.first, None))
    # its run file repeats it in the same precision; that of the other run, on a machine with the unit, in its own
    machine(WITH_UNIT)
    repeated = {
        name: ppax.config.build(ppax.config.read(tmp_path / name / "run.toml")).agent for name in ("half", "exact")
    }
    machine(WITHOUT)
    assert [precision.in_training(agent).compute_dtype for agent in repeated.values()] == ["bfloat16", "float32"]


@pytest.mark.filterwarnings("error::UserWarning")
def test_groups_of_which_one_rounds_go_on_in_their_own_precision_on_another_machine(tmp_path, machine):
    def of(name, flags, total):
        machine(flags)
        jax.clear_caches()
        env = ppax.envs.grouped(ppax.make("Pursuit-2", 4), {"a": [0], "b": [1]})
        dtypes = {"a": "auto", "b": "float32"}
        agents = {
            name: ppax.PPO(mlp(group, hidden=(16, 16)), compute_dtype=dtypes[name], learning_rate=1e-2, num_epochs=1)
            for name, group in env.groups.items()
        }
        agent, log = ppax.Groups(agents, env.sizes), ppax.config.Log(console=False)
        return ppax.fit(agent, env, total * 64, run_dir=tmp_path / name, num_steps=8, log=log)

    whole = of("whole", WITH_UNIT, 4)
    of("half", WITH_UNIT, 2)
    machine(WITHOUT)
    jax.clear_caches()
    resumed = ppax.resume(tmp_path / "half", console=False, total_steps=4 * 64)
    leaves = [jax.tree.leaves({name: x.params for name, x in run.state.learner.items()}) for run in (whole, resumed)]
    for one, other in zip(*leaves, strict=True):
        np.testing.assert_array_equal(one, other)
    starts = json.loads((tmp_path / "half" / "about.json").read_text())["starts"]
    assert [start["products"] for start in starts] == ["bfloat16, float32"] * 2


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        (("bfloat16_where_safe",), "bfloat16_where_safe"),
        (("float32",), "float32"),
        (("float32", "bfloat16_where_safe"), "bfloat16_where_safe"),
        (("bfloat16",), ""),  # nothing was decided
    ],
)
def test_the_decision_that_a_run_has_recorded(dtypes, expected):
    first, *others = [{"compute_dtype": dtype} for dtype in dtypes]
    groups = {"groups": {str(i): {"agent": one} for i, one in enumerate([first, *others])}} if others else {}
    assert precision.recorded_dtype({"agent": first} | groups) == expected


def test_all_members_of_a_sweep_have_one_precision_on_whichever_machine_they_train(tmp_path, machine, monkeypatch):
    """Those that begin later, on another machine or on a worker of Ray, too; `auto` is not swept."""
    monkeypatch.setattr(runs, "_train", lambda path, recorded, *_: recorded)
    values = {"agent.network.hidden": [[32], []]}
    base = {"env": "Navigator-8", "num_envs": 2, "num_steps": 4, "total_steps": 64, "agent": {"num_epochs": 1}}
    machine(WITH_UNIT)
    ppax.sweep_runs(base, values, run_dir=tmp_path / "sweep")
    machine(WITHOUT)
    ppax.sweep_runs(base, values, run_dir=tmp_path / "other")
    for flags in (WITH_UNIT, WITHOUT):
        machine(flags)
        for name, expected in (("sweep", ["bfloat16", "float32"]), ("other", ["float32", "float32"])):
            found = packing.packed(directory.read(tmp_path / name).members)
            agents = [task.agent for pack in found for task in pack.tasks]
            assert [precision.in_training(agent).compute_dtype for agent in agents] == expected
    with pytest.raises(ppax.ConfigError, match=r"agent\.compute_dtype = 'auto': it stands for another dtype"):
        ppax.sweep_runs(base, {"agent.compute_dtype": ["auto", "bfloat16"]}, run_dir=tmp_path / "refused")


def test_policies_and_hosts_compute_in_float32(machine, tmp_path):
    machine(WITH_UNIT)
    with ppax.make("gymnasium/CartPole-v1", 2) as env:
        agent = ppax.PPO(mlp(env, hidden=(16,)), compute_dtype="bfloat16_where_safe")
        run = ppax.fit(agent, env, 32, run_dir=tmp_path / "run", num_steps=8, log=ppax.config.Log(console=False))
        assert json.loads((tmp_path / "run" / "about.json").read_text())["starts"][0]["products"] == "float32"
        program = ppax.compile(agent, env, ppax.start(agent, env, 8, jax.random.key(0)))
        assert "bf16" not in program.program.as_text()
    policy = run.policy()
    policy.act(np.zeros(4, np.float32))
    assert {type(one) for one in policy._programs.values()} == {InNumpy}  # which computes in float32
