"""Environments by import path: compiled and on the host, as classes, functions and objects, with their parameters."""

import importlib
import sys

import gymnasium
import jax
import pytest

import ppax
from ppax import config
from ppax.cli.envs import describe_env
from ppax.cli.main import main
from ppax.core import imports
from ppax.envs import HostEnv, VectorEnv, host
from ppax.run import python_objects

COMPILED = """
import dataclasses
import jax, jax.numpy as jnp, numpy as np
from typing import NamedTuple
from gymnasium import spaces
from ppax.envs import TimeLimit
from ppax.core.types import EnvReset, EnvStep, Scalar, number, part, static


class State(NamedTuple):
    place: jax.Array


@part
class River:
    stride: Scalar = number("length of a step", default=0.2, low=0.0)
    width: int = static("number of observations", default=1, low=1)
    num_agents = None
    action_space = spaces.Discrete(2)

    @property
    def observation_space(self):
        return spaces.Box(-np.inf, np.inf, (self.width,), np.float32)

    def reset(self, key):
        return EnvReset(State(jnp.zeros(())), jnp.zeros(self.width))

    def step(self, state, action, key):
        place = state.place + jnp.where(action == 1, self.stride, -self.stride)
        done = jnp.abs(place) >= 1.0
        return EnvStep(State(place), jnp.full(self.width, place), place, done, jnp.zeros((), bool))


@part
class Sized:
    size: int = static("number of observations")
    marks: tuple[int, ...] = static("marks", default=(1,))
    num_agents = None
    action_space = spaces.Discrete(2)
    observation_space = property(lambda self: spaces.Box(-np.inf, np.inf, (self.size,), np.float32))

    def reset(self, key): ...
    def step(self, state, action, key): ...


@part
class Rapid(River):
    stride: Scalar = number("length of a step", default=dataclasses.MISSING)
    width: int = static("number of observations", default=1)


def short(limit=7):
    return TimeLimit(River(), limit)


WIDE = River(width=3)


def number_of():
    return 3


class Half:
    observation_space = None

    def reset(self, key): ...
"""
HOST = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv


class Pole(CartPoleEnv):
    def __init__(self, gravity=9.8, render_mode=None):
        super().__init__(render_mode=render_mode)
        self.gravity = gravity


def limited(steps=3):
    return gymnasium.wrappers.TimeLimit(Pole(), steps)


RUNNING = Pole()
"""


@pytest.fixture(autouse=True)
def worlds(tmp_path, monkeypatch):
    monkeypatch.setattr(imports, "_trusted", set())
    (tmp_path / "own_worlds.py").write_text(COMPILED)
    (tmp_path / "own_hosts.py").write_text(HOST)
    monkeypatch.syspath_prepend(tmp_path)
    ppax.trust("own_worlds", "own_hosts")
    yield
    for name in ("own_worlds", "own_hosts"):
        sys.modules.pop(name, None)


def value(env, name):
    env = env.env if isinstance(env, VectorEnv) else env
    while name not in vars(env):
        env = env.env
    return getattr(env, name)


def test_a_class_is_made_with_its_parameters():
    env = ppax.make("own_worlds:River", 3, env_params={"stride": 0.3, "width": 2})
    assert isinstance(env, VectorEnv)
    assert (env.num_envs, env.name, value(env, "stride"), value(env, "width")) == (3, "own_worlds:River", 0.3, 2)
    assert env.observation_space.shape == (2,)
    with pytest.raises(ppax.ConfigError, match=r"env_params.stride = -1.0: must be at least 0"):
        ppax.make("own_worlds:River", 3, env_params={"stride": -1.0})
    with pytest.raises(ppax.ConfigError, match=r"unknown option 'env_params.strife'; did you mean 'stride'"):
        ppax.make("own_worlds:River", 3, env_params={"strife": 1.0})
    with pytest.raises(ppax.ConfigError, match=r"unknown option 'env_params.max_step'; did you mean 'max_steps'"):
        ppax.make("own_worlds:River", 3, env_params={"max_step": 20})


def test_numbers_are_drawn_at_a_reset():
    env = ppax.make("own_worlds:River", 64, env_params={"stride": {"low": 0.1, "high": 0.4}})
    state, _, _ = env.reset(jax.random.key(0))
    drawn = state.env.numbers["stride"]
    assert 0.1 <= float(drawn.min()) < 0.2 < 0.3 < float(drawn.max()) <= 0.4


def test_a_function_and_an_object_stand_for_their_environment():
    assert value(ppax.make("own_worlds:short", 2), "max_steps") == 7
    assert value(ppax.make("own_worlds:short", 2, env_params={"max_steps": 5, "stride": 0.5}), "max_steps") == 5
    assert value(ppax.make("own_worlds:short", 2, env_params={"limit": 4}), "max_steps") == 4
    assert ppax.make("own_worlds:WIDE", 2).observation_space.shape == (3,)
    with pytest.raises(ppax.ConfigError, match="an environment, made already"):
        ppax.make("own_worlds:WIDE", 2, env_params={"nothing": 4})


def test_any_compiled_environment_takes_a_time_limit():
    env = ppax.make("own_worlds:River", 2, env_params={"max_steps": 9, "stride": 0.5})
    assert (type(env.env).__name__, value(env, "max_steps"), value(env, "stride")) == ("TimeLimit", 9, 0.5)
    drawn = ppax.make("own_worlds:River", 64, env_params={"max_steps": {"low": 3, "high": 9}})
    limits = drawn.reset(jax.random.key(0))[0].env.numbers["max_steps"]
    assert 3 <= float(limits.min()) < 5 < 7 < float(limits.max()) <= 9
    assert value(ppax.envs.other_params(ppax.make("own_worlds:River", 2), {"max_steps": 3}), "max_steps") == 3
    assert value(ppax.make("own_worlds:WIDE", 2, env_params={"max_steps": 3}), "max_steps") == 3
    with pytest.raises(ppax.ConfigError, match=r"env_params.max_steps = 0: must be at least 1"):
        ppax.make("own_worlds:River", 2, env_params={"max_steps": 0})


def test_arguments_without_a_default_are_given_or_named():
    env = ppax.make("own_worlds:Sized", 2, env_params={"size": 3, "marks": [1, 2]})
    assert (env.observation_space.shape, value(env, "marks")) == ((3,), (1, 2))
    with pytest.raises(
        ppax.ConfigError, match=r"env_params of own_worlds:Sized: missing .*'size'; its arguments: size"
    ):
        ppax.make("own_worlds:Sized", 2)
    drawn = ppax.make("own_worlds:Rapid", 64, env_params={"stride": {"low": 0.1, "high": 0.4}})
    strides = drawn.reset(jax.random.key(0))[0].env.numbers["stride"]
    assert 0.1 <= float(strides.min()) < 0.2 < 0.3 < float(strides.max()) <= 0.4


def test_an_argument_of_a_function_is_not_drawn_but_numbers_of_its_environment_are():
    with pytest.raises(ppax.ConfigError, match=r"so it cannot be drawn.*; give one value, or draw max_steps, stride"):
        ppax.make("own_worlds:short", 2, env_params={"limit": {"low": 3, "high": 9}})


def test_arguments_of_a_gymnasium_class_are_drawn_as_by_host():
    given = {"gravity": {"low": 3.0, "high": 9.0}}
    with ppax.make("own_hosts:Pole", 2, env_params=given) as env:
        assert env.settings.env_params == given
        mine, one = (
            host(sys.modules["own_hosts"].Pole, 2, env_params=given).host.factories[0](),
            env.host.factories[0](),
        )
        found = []
        for seed in (7, 8):
            one.reset(seed=seed)
            mine.reset(seed=seed)
            assert one.unwrapped.gravity == mine.unwrapped.gravity
            found.append(one.unwrapped.gravity)
        assert found[0] != found[1]
        assert all(3.0 <= gravity <= 9.0 for gravity in found)
    with ppax.envs.other_params(ppax.make("own_hosts:Pole", 2), given) as env:
        env.host.factories[0]().reset(seed=1)
    for wrong, text in (
        ({"wind": {"low": 1.0, "high": 2.0}}, r"env_params of own_hosts:Pole: .*'wind'; its arguments: gravity"),
        (
            {"render_mode": {"low": 1.0, "high": 2.0}},
            "render_mode: cannot be drawn at a reset, for it is no number: None",
        ),
        ({"gravity": {"low": 3.0, "high": 2.0}}, r"gravity\.low = 3\.0: must be at most"),
        ({"gravity": [3.0, 9.0]}, r'gravity = .*must be one number; a range is \{"low": 3.0, "high": 9.0\}'),
    ):
        with pytest.raises(ppax.ConfigError, match=text):
            ppax.make("own_hosts:Pole", 2, env_params=wrong)


@pytest.mark.parametrize(
    ("name", "params", "drawn"),
    [
        ("own_hosts:Pole", {"gravity": 9.8}, ["gravity"]),
        ("own_hosts:limited", {"steps": 3}, ["steps"]),
        ("own_worlds:River", {"stride": 0.2, "width": 1}, ["stride"]),
        ("own_worlds:short", {"limit": 7, "max_steps": 7, "stride": 0.2, "width": 1}, ["max_steps", "stride"]),
        ("own_worlds:WIDE", {"stride": 0.2, "width": 3}, ["stride"]),
        ("own_worlds:Rapid", {"width": 1}, ["stride"]),
        ("gymnasium/Pendulum-v1", {"g": 10.0}, ["g"]),
    ],
)
def test_the_command_envs_lists_arguments_and_those_that_can_be_drawn(name, params, drawn):
    about = describe_env(name)
    assert (about["env_params"], about["can_be_drawn"]) == (params, drawn)
    assert about.get("needed") == (["stride"] if name == "own_worlds:Rapid" else None)


def test_other_parameters_for_the_evaluation():
    env = ppax.make("own_worlds:short", 2)
    assert value(ppax.envs.other_params(env, {"max_steps": 3}), "max_steps") == 3
    assert value(ppax.envs.other_params(env, {"limit": 3}), "max_steps") == 3


def test_gymnasium_classes_and_functions_run_on_the_host():
    with ppax.make("own_hosts:Pole", 2, env_params={"gravity": 3.0}) as env:
        assert isinstance(env, HostEnv)
        assert env.host.factories[0]().gravity == 3.0
        assert env.settings.env_params == {"gravity": 3.0}
        assert config.describe_run(ppax.PPO(ppax.networks.mlp(env)), env, config.Run(env=env.name))["env"] == env.name
    with ppax.make("own_hosts:limited", 2, env_params={"steps": 5}) as env:
        assert isinstance(env.host.factories[0](), gymnasium.wrappers.TimeLimit)
    with pytest.raises(ppax.ConfigError, match=r"env_params of own_hosts:Pole: .*'wind'"):
        ppax.make("own_hosts:Pole", 2, env_params={"wind": 5})
    with pytest.raises(ppax.ConfigError, match="one running environment cannot be copied"):
        ppax.make("own_hosts:RUNNING", 2)


def test_what_is_no_environment_is_refused():
    with pytest.raises(ppax.ConfigError, match=r"must be an environment: .*; Half has no step"):
        ppax.make("own_worlds:Half", 2)
    with pytest.raises(ppax.ConfigError, match=r"must be an environment: .*; a int has no observation_space"):
        ppax.make("own_worlds:number_of", 2)
    with pytest.raises(ppax.ConfigError, match="vectorization = 'async': own_worlds:River is stepped inside"):
        ppax.make("own_worlds:River", 2, vectorization="async")


def test_worker_processes_import_it_too():
    with ppax.make("own_hosts:limited", 2, vectorization="async") as env:
        assert len(env.host.reset([0, 1])) == 2


REGISTERING = """
import gymnasium, pathlib
pathlib.Path(__file__).with_name("executed").touch()
gymnasium.register(id="corp/Mine-v0", entry_point="corp_mines:Mine", kwargs={"size": 4})

class Mine(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(-1, 1, (2,)), gymnasium.spaces.Discrete(2)
    def __init__(self, size=5, render_mode=None):
        self.size = size
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self.observation_space.sample() * 0, {}
    def step(self, action):
        self.t += 1
        return self.observation_space.sample() * 0, 1.0, self.t >= self.size, False, {}
"""


@pytest.fixture
def mines(tmp_path, monkeypatch):
    """Package that registers an id when it is imported; yields the file that it writes then. Nobody trusts it yet."""
    (tmp_path / "corp_mines.py").write_text(REGISTERING)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(imports, "_trusted", set())
    monkeypatch.setattr(imports, "_beside", set())
    monkeypatch.setenv("PPAX_SETTINGS", str(tmp_path / "settings.toml"))
    yield tmp_path / "executed"
    forget()


def forget():
    """Undo the import, as if it were another process."""
    sys.modules.pop("corp_mines", None)
    gymnasium.registry.pop("corp/Mine-v0", None)


def test_a_module_of_an_id_is_imported_if_it_is_trusted(mines):
    for call in (
        lambda: ppax.make("gymnasium/corp_mines:corp/Mine-v0", 2),
        lambda: config.build({"env": "gymnasium/corp_mines:corp/Mine-v0"}),
        lambda: config.completed({"env": "gymnasium/corp_mines:corp/Mine-v0"}),
    ):
        with pytest.raises(imports.Untrusted, match=r"env = 'gymnasium/corp_mines:corp/Mine-v0': .*--trust corp_mines"):
            call()
    assert not mines.exists()
    ppax.trust("corp_mines")
    env = ppax.make("gymnasium/corp_mines:corp/Mine-v0", 2)
    assert mines.exists()
    assert env.settings.env == "gymnasium/corp_mines:corp/Mine-v0"


@pytest.mark.parametrize("module", ["os", "ppax", "a-b"])
def test_modules_that_cannot_be_trusted(mines, module):
    with pytest.raises(ppax.ConfigError, match=r"cannot be trusted|must name a module before its colon"):
        ppax.make(f"gymnasium/{module}:corp/Mine-v0", 2)


def test_a_run_of_a_registered_id_goes_on_by_command(mines, tmp_path, capsys):
    """Also one made in Python after an import, whose name in the run file has no module."""
    importlib.import_module("corp_mines")
    env = ppax.make("gymnasium/corp/Mine-v0", 2)
    agent = ppax.PPO(ppax.networks.network(env, hidden=(4,)))
    ppax.fit(agent, env, 40, num_steps=10, run_dir=tmp_path / "run", log=ppax.Log(console=False))
    forget()
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2"]) == 2
    assert "If a package registers it, --trust PACKAGE" in capsys.readouterr().err
    trust = ["--trust", "./a/path", "--trust", "corp_mines"]  # of what is trusted, only packages are imported
    assert main(["evaluate", str(tmp_path / "run"), "--episodes", "2", *trust]) == 0
    forget()
    assert main(["resume", str(tmp_path / "run"), "--total-steps", "80", "--trust", "corp_mines"]) == 0


def test_the_form_without_the_suite_is_suggested(mines):
    with pytest.raises(ppax.ConfigError, match="did you mean 'gymnasium/corp_mines:corp/Mine-v0'"):
        ppax.make("corp_mines:corp/Mine-v0", 2)


def recorded(env):
    """Options of the environment in the run file of a run made in Python, and the objects that it lacks."""
    agent = ppax.PPO(ppax.networks.mlp(env))
    plan = config.describe_run(agent, env, config.Run(**env.settings.run_fields()))
    return (
        plan["env"],
        plan.get("env_params", {}),
        [x for x in python_objects.objects(agent, env, plan) if x.startswith("env")],
    )


def test_environments_made_in_python_are_recorded_by_import_path(monkeypatch):
    import own_hosts
    import own_worlds

    monkeypatch.setattr(imports, "_trusted", set())
    assert recorded(VectorEnv(own_worlds.River(), 2)) == ("own_worlds:River", {}, [])
    wide = VectorEnv(own_worlds.River(stride=0.5, width=2), 2)
    assert recorded(wide) == ("own_worlds:River", {"stride": 0.5, "width": 2}, [])
    with host(own_hosts.Pole, 2) as env:
        assert recorded(env) == ("own_hosts:Pole", {}, [])
    with host(lambda: own_hosts.Pole(gravity=1.0), 2) as env:
        assert recorded(env)[2] == ["env (own)"]
    assert imports._trusted == set()
