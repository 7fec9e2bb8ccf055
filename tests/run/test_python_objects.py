"""Runs made from Python objects: the run file rebuilds them, or lists the objects to pass."""

import dataclasses
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.agents.self_play import Pool, SelfPlay
from ppax.cli import main
from ppax.config import Log
from ppax.core import imports
from ppax.core.types import ConfigError, number, part, static
from ppax.envs import PartialView, PoolResets, TimeLimit, VectorEnv, builtin, grouped, host
from ppax.networks import mlp, network
from ppax.networks.encoders import Flat
from ppax.networks.heads import CategoricalHead
from ppax.ppo.critics import Regression
from ppax.ppo.losses import ClippedSurrogate
from ppax.ppo.minibatches import Shuffle
from ppax.ppo.optimizers import Adam
from ppax.ppo.schedules import Linear
from ppax.run import python_objects
from support.worlds import Counter


@part
class MyHead(CategoricalHead):
    """Head of another class with the same parameters: states of one fit the other."""


@part
class MyLoss(ClippedSurrogate):
    """Loss with settings that no run file can hold: a function and an array."""

    shape: Callable[[float], float] = static("of the bonus", default=abs)
    weights: object = number("of the parts", default=None)


@part
class MyOptimizer(Adam): ...


@part
class MyEncoder(Flat): ...


class MyCritic(Regression):
    """A subclass without fields of its own."""


@part
class MyPPO(ppax.PPO):
    bonus: object = number("number of its own", default=0.0)


@part
class MySchedule(Linear): ...


ENV = ppax.make("CartPole-v1", 4)


def ppo(**changes):
    return ppax.PPO(mlp(ENV, hidden=(4,)), minibatch=Shuffle(1), num_epochs=1, **changes)


def objects_of(agent, env=ENV, callbacks=()):
    """Objects listed in the run file, after a round trip through TOML."""
    run = config.Run(**env.settings.run_fields(), self_play=agent.pool or Pool())
    plan = config.describe_run(agent, env, dataclasses.replace(run, agents=agent.sharing))
    return python_objects.objects(agent, env, tomllib.loads(config.to_toml(plan)), callbacks)


def with_head(agent, head):
    return dataclasses.replace(agent, network=dataclasses.replace(agent.network, head=head))


def pursuit(change=lambda agents: agents):
    env = grouped(ppax.make("Pursuit-2", 4), {"prey": [0], "hunter": [1]})
    agents = change({name: ppax.PPO(network(group, hidden=(4,))) for name, group in env.groups.items()})
    return ppax.Groups(agents, env.sizes), env


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: ppo(loss=MyLoss(weights=jnp.ones(3))), "agent.loss (MyLoss)"),
        (lambda: ppo(critic=MyCritic()), "agent.critic (MyCritic)"),
        (lambda: ppo(optimizer=MyOptimizer()), "agent.optimizer (MyOptimizer)"),
        (lambda: ppo(schedule=MySchedule()), "agent.schedule (MySchedule)"),
        (lambda: with_head(ppo(), MyHead(2)), "agent.network.head (MyHead)"),
        (lambda: with_head(ppo(), CategoricalHead(2, start=1)), "agent.network.head.start"),
        (lambda: ppax.PPO(network(ENV, encoder=MyEncoder())), "agent.network.actor_readers.0.encoder (MyEncoder)"),
        (lambda: ppax.Independent(with_head(ppo(), MyHead(2)), 1), "agent.agent.network.head (MyHead)"),
        (lambda: dataclasses.replace(ppo(), network=partial(abs)), "agent.network (partial)"),
    ],
)
def test_agents_that_the_run_file_cannot_rebuild_are_listed(make, expected):
    assert objects_of(make())[0] == expected


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: VectorEnv(Counter(), 4), []),  # its run file has its import path, worlds:Counter
        (lambda: VectorEnv(Counter(), 4, name="mine"), []),
        (lambda: VectorEnv(TimeLimit(Counter(), 9), 4), []),
        (lambda: VectorEnv(TimeLimit(TimeLimit(Counter(), 9), 8), 4), ["env (TimeLimit)"]),
        (lambda: dataclasses.replace(ENV, env=PartialView(ENV.env, (0, 1, 2, 3))), ["env.env (PartialView)"]),
        (lambda: dataclasses.replace(ENV, env=TimeLimit(builtin.CartPole(), 99)), ["env.env.max_steps"]),
        (lambda: dataclasses.replace(ENV, env=TimeLimit(builtin.CartPole(gravity=1.0), 500)), ["env.env.env.gravity"]),
        (lambda: dataclasses.replace(ENV, resets=PoolResets(2)), ["env.resets (PoolResets)"]),
        (lambda: host(lambda: gymnasium.make("CartPole-v1"), 2), ["env (own)"]),
        (lambda: host(lambda: gymnasium.make("CartPole-v1"), 2, name="gymnasium/CartPole-v1"), None),
        (lambda: ppax.make("gymnasium/CartPole-v1", 2), []),
        (lambda: ppax.make("CartPole-v1", 4, action_repeat=2, env_params={"gravity": {"low": 8.0, "high": 9.0}}), []),
    ],
)
def test_environments_that_the_run_file_cannot_rebuild_are_listed(make, expected):
    env = make()
    found = [place for place in objects_of(ppo(), env) if place.startswith("env")]
    assert found == (["env (gymnasium/CartPole-v1)"] if expected is None else expected)


@pytest.mark.parametrize(
    "agent",
    [
        ppo(),
        ppo(learning_rate=jnp.float32(1e-3), gamma=np.float32(0.9), optimizer=Adam(eps=1e-7), schedule=Linear()),
        ppax.Independent(ppo(learning_rate=np.array([1e-3], np.float32)), 1),
        ppax.PPO(network(ENV, hidden=[8, 8], shared=True, memory=ppax.networks.memories.GRU(3)), seq_len=4),
    ],
)
def test_agents_that_the_run_file_rebuilds_are_not_listed(agent):
    assert objects_of(agent) == []


def test_a_subclass_of_ppo_without_an_import_path_is_the_only_object():
    agent = MyPPO(mlp(ENV, hidden=(4,)), bonus=2.0, learning_rate=0.1)
    assert objects_of(agent) == ["agent (MyPPO)"]
    plan = config.describe_run(agent, ENV, config.Run(**ENV.settings.run_fields()))
    assert config.build(python_objects.recorded(plan)).agent.learning_rate == 0.1


def test_parts_of_each_group_are_compared():
    agent, env = pursuit()
    assert objects_of(agent, env) == []
    assert objects_of(SelfPlay(agent, Pool(every=2, opponents=1), 4), env) == []
    agent, env = pursuit(lambda agents: agents | {"hunter": dataclasses.replace(agents["hunter"], loss=MyLoss())})
    assert objects_of(agent, env) == ["agent.agents.hunter.loss (MyLoss)"]


def test_presets_are_rebuilt_from_their_run_files():
    for name in ("CartPole-v1", "Pendulum-v1", "styles/brax", "styles/rl8", "styles/cleanrl"):
        built = config.build(config.find(name))
        assert objects_of(built.agent, built.env) == [], name


# ---------------------------------------------------------------- runs


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Finished run of one iteration with a user-defined head and a callback."""
    path, agent = tmp_path_factory.mktemp("runs") / "mine", with_head(ppo(), MyHead(2))
    log = Log(every=1, checkpoint_seconds=0.0, console=False)
    ppax.fit(agent, ENV, 32, run_dir=path, num_steps=8, log=log, callbacks=[lambda state, row: None])
    return path, agent


@pytest.mark.parametrize("verb", ["resume", "evaluate", "play"])
def test_commands_name_the_object_to_pass(run, verb, capsys):
    assert main.main([verb, str(run[0])]) == main.USAGE
    said = capsys.readouterr().err
    assert "cannot hold: agent.network.head (MyHead). Pass the same agent in Python" in said
    resumes, loads = f"run = ppax.resume('{run[0]}', agent=agent)", f"policy = ppax.load('{run[0]}', agent=agent), then"
    assert (resumes in said, loads in said) == (verb == "resume", verb != "resume")


def test_the_command_resume_names_the_callbacks_it_lacks(tmp_path, capsys):
    """The run file is invalid, so nothing is trained or compiled."""
    objects = ["callbacks (watch, Keep), which resume does not need"]
    (tmp_path / "run.toml").write_text(config.to_toml({"env": "no such", "objects": objects}))
    assert main.main(["resume", str(tmp_path)]) == main.USAGE  # because of the environment
    text = (
        f"this run had callbacks (watch, Keep), which are not called here; ppax.resume('{tmp_path}', callbacks=[...])"
    )
    assert text in capsys.readouterr().out


def test_train_refuses_a_run_file_with_objects(run, capsys):
    assert main.main(["train", str(run[0] / "run.toml")]) == main.USAGE
    assert "objects = agent.network.head (MyHead): this run was made from Python objects" in capsys.readouterr().err


def test_resume_continues_with_the_object(run):
    path, agent = run
    plan = config.read(path / "run.toml")
    assert plan[config.OBJECTS] == ["agent.network.head (MyHead)", "callbacks (<lambda>), which resume does not need"]
    resumed = ppax.resume(path, agent, console=False)  # the environment has a name, so it need not be passed
    assert type(resumed.agent.network.head) is MyHead
    assert int(resumed.state.iteration) == 1


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, r"cannot hold: env \(Counter\)\. Pass the same env in Python: run = ppax.resume\('runs/x', env=env\)"),
        ({"agent": 1}, r"cannot hold: env \(Counter\)"),
        ({"env": 1}, None),
    ],
)
def test_only_objects_that_are_not_passed_are_required(given, text):
    plan = {"env": "", config.OBJECTS: ["env (Counter)", "callbacks (f)"]}
    ask = partial(python_objects.require_passed, plan, given.get("agent"), given.get("env"), "runs/x")
    if text is None:
        ask()
    else:
        with pytest.raises(ConfigError, match=text):
            ask()


@pytest.mark.parametrize("wrong", [3, "agent", [1], {"agent": 1}])
def test_objects_that_are_not_texts_are_refused(wrong):
    with pytest.raises(ConfigError, match="objects"):
        python_objects.require_passed({"env": "CartPole-v1", config.OBJECTS: wrong}, None, None, "runs/x")


def test_the_line_that_resumes_a_run_trusts_what_its_file_names_and_nothing_else(monkeypatch):
    plan = {"env": "river:River", "init_from": {"run": "runs/arm1"}, "env_params": {"map": "./maps/a"}}
    assert python_objects.resume_line(plan, Path("it")) == "ppax resume it --trust ./maps/a --trust river"
    assert python_objects.trust_flags([plan]) == " --trust ./maps/a --trust river --trust runs/arm1"
    monkeypatch.setattr(imports, "_of_settings", lambda: {"river"})
    assert python_objects.resume_line(plan, Path("it")) == "ppax resume it --trust ./maps/a"
    assert python_objects.resume_line({"env": "CartPole-v1"}, Path("it")) == "ppax resume it"
    with imports.trusting(["short_names", "./maps"], beside=True):
        assert python_objects.resume_line({"env": "CartPole-v1"}, Path("it")) == "ppax resume it --trust short_names"
    objects = ["env (Counter)", "agent.network.head (MyHead)", "callbacks (f)"]
    line = python_objects.resume_line({"env": "", config.OBJECTS: objects}, Path("it"))
    assert line == "ppax.resume('it', agent=agent, env=env) in Python"


def test_callbacks_alone_need_no_object():
    plan = {"env": "CartPole-v1", "num_envs": 4, config.OBJECTS: ["callbacks (f)"]}
    python_objects.require_passed(plan, None, None, "runs/x")
    assert config.build(plan).env.num_envs == 4
