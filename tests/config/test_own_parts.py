"""Parts by import path in configurations: every kind, their options, groups, lists, and parts inside parts."""

import dataclasses
import sys

import pytest

import ppax
from ppax import config
from ppax.cli import options
from ppax.core import imports
from ppax.run import python_objects

PARTS = """
import dataclasses
from ppax.advantages import GAE
from ppax.critics import Regression
from ppax.losses import ClippedSurrogate
from ppax.networks import network
from ppax.networks.encoders import Flat
from ppax.networks.memories import GRU
from ppax.minibatches import Shuffle
from ppax.optimizers import Adam
from ppax.ppo.ppo import PPO
from ppax.schedules import Linear
from ppax.core.parts import number, part, slot, static
from ppax.core.types import Scalar


@part
class Advantage:
    inner: object = slot("advantage", "estimator inside", default=GAE())
    weight: Scalar = number("weight", default=0.5, low=0.0, high=1.0)
    scales: tuple[float, ...] = static("scales", default=(1.0, 2.0))
    mode: str = static("mode", default="a", choices=("a", "b"))
    limit: int | None = static("limit", default=None, low=1)
    table: object = None  # no option
    on: bool = static("on", default=False)

    def __call__(self, steps, next_value, gamma, ratio=None):
        return self.inner(steps, next_value, gamma, ratio)


@part
class Critic(Regression): ...
@part
class Loss(ClippedSurrogate): ...
@part
class Encoder(Flat): ...
@part
class Memory(GRU): ...
@part
class Minibatch(Shuffle): ...
@part
class Optimizer(Adam): ...
@part
class Schedule(Linear): ...


@part
class Network:
    net: object = None
    width: int = static("width", default=4, low=1)

    @classmethod
    def for_spaces(cls, env, **options):
        return cls(network(env, hidden=(options["width"],)), **options)

    def init(self, key, num_values=1): return self.net.init(key, num_values)
    def initial_carry(self): return self.net.initial_carry()
    def encode(self, params, obs): return self.net.encode(params, obs)
    def remember(self, *rest): return self.net.remember(*rest)
    def decide(self, *rest): return self.net.decide(*rest)


@part
class Needs:
    size: int = static("size")
    def __call__(self, distribution, batch): ...


@dataclasses.dataclass(frozen=True)
class Untraced:
    def __call__(self, distribution, batch): ...


@part
class Agent(PPO):
    bonus: Scalar = number("bonus", default=0.5, low=0.0)
    inner: object = slot("advantage", "another estimator", default=GAE())


@part
class Other(PPO):
    extra: Scalar = number("extra", default=1.0)


class Bare(PPO): ...


def sgd(learning_rate, momentum=0.5):
    import optax
    return optax.sgd(learning_rate, momentum)
"""


@pytest.fixture(autouse=True)
def library(tmp_path, monkeypatch):
    monkeypatch.setattr(imports, "_trusted", set())
    (tmp_path / "own_library.py").write_text(PARTS)
    monkeypatch.syspath_prepend(tmp_path)
    ppax.trust("own_library")
    yield
    sys.modules.pop("own_library", None)


def built(**agent):
    return config.build({"env": "CartPole-v1", "num_envs": 4, "agent": agent}).agent


@pytest.mark.parametrize("kind", ["critic", "loss", "minibatch", "optimizer", "schedule", "advantage"])
def test_every_kind_of_an_agents_part_has_an_import_path(kind):
    name = kind.capitalize()
    agent = built(**{kind: {"part": f"own_library:{name}"}})
    assert type(getattr(agent, kind)).__name__ == name
    plan = config.describe(agent)
    assert plan[kind]["part"] == f"own_library:{name}"
    assert config.build({"env": "CartPole-v1", "agent": plan}).agent == agent


@pytest.mark.parametrize("kind", ["encoder", "memory"])
def test_parts_of_the_network_have_an_import_path(kind):
    network = built(network={kind: {"part": f"own_library:{kind.capitalize()}"}}).network
    assert type(getattr(network, kind)).__name__ == kind.capitalize()


def test_a_network_is_made_for_the_spaces():
    network = built(network={"part": "own_library:Network", "width": 6}).network
    assert network.width == 6
    assert network.net.hidden == (6,)


def test_options_are_the_fields_with_their_checks():
    own = {"part": "own_library:Advantage"}
    options = {"weight": 0.25, "scales": [3.0], "mode": "b", "limit": "none", "on": True}
    advantage = built(advantage=own | options | {"inner": {"part": "own_library:Advantage", "weight": 1}}).advantage
    assert (advantage.weight, advantage.scales, advantage.mode, advantage.limit) == (0.25, (3.0,), "b", None)
    assert advantage.inner.weight == 1.0
    assert type(advantage.inner.inner) is ppax.advantages.GAE
    for wrong, text in (
        ({"weight": 1.5}, r"agent\.advantage\.weight = 1\.5: must be at most 1"),
        ({"mode": "c"}, r"must be one of a, b"),
        ({"limit": 0}, r"must be at least 1"),
        ({"wait": 1}, r"unknown option 'agent\.advantage\.wait'; did you mean 'agent\.advantage\.weight'"),
        ({"table": 1}, r"unknown option 'agent\.advantage\.table'"),
        (
            {"inner": {"part": "own_library:Advantage", "on": 3}},
            r"inner\.on = 3: must be of type bool",
        ),
    ):
        with pytest.raises(ppax.ConfigError, match=text):
            built(advantage=own | wrong)
    listed = [option.path for option in config.options({"agent": {"advantage": own}}) if ".advantage." in option.path]
    assert [path.rpartition(".advantage.")[2] for path in listed] == [
        *("part", "inner.part", "inner.gae_lambda", "weight", "scales", "mode", "limit", "on")
    ]


def test_a_part_that_cannot_be_made_says_why():
    with pytest.raises(ppax.ConfigError, match=r"loss\.part = 'own_library:Needs': TypeError: .*'size'"):
        built(loss={"part": "own_library:Needs"})
    with pytest.raises(ppax.ConfigError, match=r"JAX cannot trace .*decorator @part"):
        built(loss={"part": "own_library:Untraced"})


def test_a_factory_of_the_users_is_an_optimiser():
    agent = built(optimizer={"part": "own_library:sgd", "momentum": 0.75})
    assert agent.optimizer.momentum == 0.75
    assert not agent.optimizer.elementwise  # of a function of the user it is not known
    assert config.describe(agent)["optimizer"] == {"part": "own_library:sgd", "momentum": 0.75}


def test_an_agent_is_a_subclass_of_ppo_with_options_of_its_own():
    own = {"part": "own_library:Agent", "bonus": 2, "learning_rate": 0.25, "inner": {"part": "td_lambda"}}
    agent = built(**own)
    assert (type(agent).__name__, agent.bonus, agent.learning_rate) == ("Agent", 2.0, 0.25)
    assert type(agent.inner) is ppax.advantages.TDLambda
    assert config.build({"env": "CartPole-v1", "num_envs": 4, "agent": config.describe(agent)}).agent == agent
    independent = config.build({"env": "Pursuit-2", "agents": "independent", "agent": {"part": "own_library:Agent"}})
    assert type(independent.agent.agent).__name__ == "Agent"
    assert config.describe(independent.agent)["part"] == "own_library:Agent"
    for wrong, text in (
        ({"part": "own_library:Loss"}, "must be a subclass of ppax.PPO"),
        ({"part": "own_library:sgd"}, "must be a subclass of ppax.PPO"),
        ({"part": "own_library:Bare"}, "decorator @part"),
        ({"part": "own_library:Agent", "bonus": -1}, r"agent\.bonus = -1\.0: must be at least 0"),
        ({"bonus": 1}, r"unknown option 'agent\.bonus'"),
        ({"part": "pp"}, "must be one of ppo; nearest: ppo"),
    ):
        with pytest.raises(ppax.ConfigError, match=text):
            built(**wrong)
    with pytest.raises(ppax.ConfigError, match=r"must be a table, \[agent\]; write agent.part = 'own_library:Agent'"):
        config.build({"agent": "own_library:Agent"})


def test_an_agent_made_in_python_is_recorded_by_its_path():
    import own_library

    env = ppax.make("CartPole-v1", 4)
    agent = own_library.Agent(ppax.networks.mlp(env, hidden=(4,)), bonus=2.0)
    for one, change in ((agent, {}), (ppax.Independent(agent, 1), {"agents": "independent"})):
        plan = config.describe_run(one, env, config.Run(**env.settings.run_fields(), **change))
        assert (plan["env"], plan["agent"]["part"], plan["agent"]["bonus"]) == ("CartPole-v1", "own_library:Agent", 2.0)
        assert python_objects.objects(one, env, plan) == []
        assert config.build(plan).agent == one


def test_an_agent_of_another_class_keeps_what_all_agents_have():
    base = {"agent": {"part": "own_library:Agent", "bonus": 2.0, "learning_rate": 0.25}}
    changed = config.overridden(base, {"agent": {"part": "own_library:Other"}})
    assert changed == {"agent": {"part": "own_library:Other", "learning_rate": 0.25}}
    assert config.plain(base) == {"agent": {"learning_rate": 0.25}}
    plan = base | {"env": "Pursuit-2", "groups": {"prey": {"players": [0]}, "hunter": {"players": [1]}}}
    plan["groups"]["prey"]["agent"] = {"part": "own_library:Other", "extra": 3.0}
    agents = config.build(plan).agent.agents
    assert (type(agents["prey"]).__name__, agents["prey"].extra, agents["prey"].learning_rate) == ("Other", 3.0, 0.25)
    assert (type(agents["hunter"]).__name__, agents["hunter"].bonus) == ("Agent", 2.0)


def test_an_agent_is_named_on_the_command_line():
    def parsed(*words):
        return options.parse_run("train", list(words), options.add_train)[1]["agent"]

    agent = parsed("CartPole-v1", "--agent", "own_library:Agent", "--agent.bonus", "3", "--agent.gamma", "0.5")
    assert (agent["part"], agent["bonus"], agent["gamma"]) == ("own_library:Agent", 3.0, 0.5)
    preset = parsed("CartPole-v1")
    assert agent | preset | {"gamma": 0.5} == agent | {"part": "ppo"}  # all that the preset sets stays
    plan = options.parse_run(
        "train",
        [
            "Pursuit-2",
            "--groups.prey.players",
            "0",
            "--groups.hunter.players",
            "1",
            "--groups.prey.agent",
            "own_library:Agent",
        ],
        options.add_train,
    )[1]
    assert plan["groups"]["prey"]["agent"]["part"] == "own_library:Agent"


def test_a_group_has_parts_of_its_own():
    plan = {
        "env": "Pursuit-2",
        "num_envs": 4,
        "agent": {"loss": {"part": "own_library:Loss", "clip_eps": 0.3}},
        "groups": {
            "prey": {"players": [0], "agent": {"loss": {"clip_eps": 0.1}}},
            "hunter": {"players": [1], "agent": {"loss": {"part": "kl_penalty"}}},
        },
    }
    agents = config.build(plan).agent.agents
    assert (type(agents["prey"].loss).__name__, agents["prey"].loss.clip_eps) == ("Loss", 0.1)
    assert type(agents["hunter"].loss) is ppax.losses.KLPenalty


def test_plain_has_default_parts_in_the_place_of_the_users():
    plan = {
        "env": "own_library:World",
        "agent": {"loss": {"part": "own_library:Loss", "clip_eps": 0.3}, "optimizer": {"part": "optax:lion"}},
        "log": {"to": [{"part": "tensorboard"}, {"part": "own_library:Log"}]},
    }
    assert config.plain(plan) == {"env": "own_library:World", "agent": {"optimizer": {"part": "optax:lion"}}}
    assert config.plain(plan, lambda place: False) == plan


def test_an_unannotated_class_is_described_without_failing():
    import own_library

    agent = dataclasses.replace(built(num_epochs=1), advantage=own_library.Advantage(table=object()))
    assert config.describe(agent)["advantage"]["part"] == "own_library:Advantage"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "own_library:Loss",
            r"a part for advantage; Loss.__call__ takes .* and is called with \(self, steps, ",
        ),
        ("own_library.Advantage", "a part of your own has an import path, own_library:Advantage$"),
        ("own/own_library.py:Advantage", "a part of your own has an import path, own.own_library:Advantage$"),
    ],
)
def test_names_of_parts_of_the_wrong_kind_or_form(name, text):
    with pytest.raises(ppax.ConfigError, match=text):
        config.build({"env": "CartPole-v1", "agent": {"advantage": {"part": name}}})
