"""Environments made in Python from code that can be imported: their options in a run file build them again."""

import functools
import sys
import tomllib

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.core import imports
from ppax.envs import ActionFilter, PartialView, TimeLimit, VectorEnv, host
from ppax.run import python_objects

WORLDS = """
import functools
import gymnasium, jax, jax.numpy as jnp, numpy as np
from typing import NamedTuple
from gymnasium import spaces
from pettingzoo import ParallelEnv
from ppax.core.types import EnvReset, EnvStep, Scalar, number, part, static


class State(NamedTuple):
    place: jax.Array


@part
class Motor:
    force: Scalar = number("force", default=1.0)


class Walk:
    num_agents = None
    action_space = spaces.Discrete(2)

    @property
    def observation_space(self):
        return spaces.Box(-np.inf, np.inf, (self.width,), np.float32)

    def reset(self, key):
        return EnvReset(State(jnp.zeros(())), jnp.zeros(self.width))

    def step(self, state, action, key):
        place = state.place + jnp.where(action == 1, self.stride, -self.stride)
        return EnvStep(State(place), jnp.full(self.width, place), place, jnp.abs(place) >= 1.0, jnp.zeros((), bool))


@part
class Line(Walk):
    stride: Scalar = number("length of a step", default=0.2, low=0.0)
    motor: Motor = Motor()
    width: int = static("observations", default=1, low=1)
    marks: tuple[int, ...] = static("marks", default=(1, 2))


@part
class Sized(Walk):
    stride: Scalar
    width: int = static("observations", default=1, low=1)


@part
class Own(Line):
    max_steps: Scalar = number("a limit of its own", default=5.0)


@part
class Arrays(Line):
    weights: jax.Array = None


@part
class Slide(Line):
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)


class Arm(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def __init__(self, x=1.0, gear="low", joints=(1, 2), file=None, render_mode=None):
        self.given = {"x": x, "gear": gear, "joints": joints, "file": file}
        self.x = x

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), float(self.x), True, False, {}


def arm(*lengths, **options):
    return Arm(**options)


class Two(ParallelEnv):
    metadata = {"name": "two"}
    possible_agents = ["a", "b"]

    def __init__(self, bonus=0.0, render_mode=None):
        self.bonus = bonus

    def observation_space(self, agent):
        return spaces.Box(-1, 1, (1,))

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents = list(self.possible_agents)
        return {a: np.zeros(1, np.float32) for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions):
        agents, self.agents = self.agents, []
        ends = dict.fromkeys(agents, True)
        seen, infos = {a: np.zeros(1, np.float32) for a in agents}, {a: {} for a in agents}
        return seen, dict.fromkeys(agents, 0.0), ends, ends, infos


HEAVY = functools.partial(Arm, x=9.0)
"""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("worlds")
    (folder / "made_worlds.py").write_text(WORLDS)
    sys.path.insert(0, str(folder))
    yield __import__("made_worlds")
    sys.path.remove(str(folder))
    sys.modules.pop("made_worlds")


@pytest.fixture(autouse=True)
def trust(monkeypatch):
    monkeypatch.setattr(imports, "_trusted", {"made_worlds"})


def recorded(env):
    """Options of the environment in the run file, read back, and its objects that the file does not hold."""
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)))
    plan = tomllib.loads(config.to_toml(config.describe_run(agent, env, config.Run(**env.settings.run_fields()))))
    return plan, [place for place in python_objects.objects(agent, env, plan) if place.startswith("env")]


COMPILED = {
    "as it is": (lambda w: w.Line(), {}),
    "a time limit": (lambda w: TimeLimit(w.Line(), 20), {"max_steps": 20}),
    "a filter of actions and a time limit": (
        lambda w: ActionFilter(TimeLimit(w.Slide(stride=0.5), 9), 0.25),
        {"stride": 0.5, "max_steps": 9, "action_filter": 0.25},
    ),
    "numbers, a size, a tuple": (
        lambda w: TimeLimit(w.Line(stride=0.5, width=3, marks=(4, 5, 6)), 9),
        {"stride": 0.5, "width": 3, "marks": [4, 5, 6], "max_steps": 9},
    ),
    "arrays of one number": (lambda w: w.Line(stride=jnp.float32(0.5)), {"stride": 0.5}),
    "a number inside": (lambda w: w.Line(motor=w.Motor(force=2.0)), {"force": 2.0}),
    "a number without a default": (lambda w: w.Sized(0.2, width=2), {"stride": 0.2, "width": 2}),
}


@pytest.mark.parametrize("case", COMPILED)
def test_a_compiled_environment_is_recorded_and_built_again(case, worlds):
    make, env_params = COMPILED[case]
    env = VectorEnv(make(worlds), 2)
    plan, objects = recorded(env)
    assert plan["env"].startswith("made_worlds:")
    assert (plan.get("env_params", {}), objects) == (env_params, [])
    assert config.build_env(plan).env == env.env


def test_groups_and_drawn_numbers_are_recorded(worlds):
    env = config.build({"env_params": {"stride": {"low": 0.1, "high": 0.3}}}, env=VectorEnv(worlds.Line(), 2)).env
    plan, objects = recorded(env)
    assert (plan["env_params"], objects) == ({"stride": {"low": 0.1, "high": 0.3}}, [])
    assert config.build_env(plan).env == env.env


@pytest.mark.parametrize(
    ("make", "objects"),
    [
        (lambda w: w.Arrays(weights=jnp.ones(2)), ["env.env.weights (ArrayImpl)"]),
        (lambda w: TimeLimit(PartialView(w.Line(width=2), (0,)), 4), ["env (TimeLimit)"]),  # recorded: a limit inside
        (lambda w: TimeLimit(w.Own(), 4), ["env (TimeLimit)"]),  # its own max_steps has this name in a run file
    ],
    ids=["an array", "wrappers in another order", "two limits"],
)
def test_what_no_file_holds_of_a_compiled_environment_stays_an_object(make, objects, worlds):
    assert recorded(VectorEnv(make(worlds), 2))[1] == objects


HOSTED = {
    "a class": (lambda w: w.Arm, {}),
    "by name": (lambda w: functools.partial(w.Arm, x=3.0, gear="high"), {"x": 3.0, "gear": "high"}),
    "by position": (lambda w: functools.partial(w.Arm, 3.0, "high"), {"x": 3.0, "gear": "high"}),
    "a tuple": (lambda w: functools.partial(w.Arm, joints=(3, 4)), {"joints": [3, 4]}),
    "a partial with a name": (lambda w: w.HEAVY, {"x": 9.0}),
    "a partial of it": (lambda w: functools.partial(w.HEAVY, gear="high"), {"x": 9.0, "gear": "high"}),
    "a partial of a partial": (lambda w: functools.partial(w.HEAVY, x=8.0), {"x": 8.0}),
    "a function": (lambda w: functools.partial(w.arm, x=2.0), {"x": 2.0}),
}


@pytest.mark.parametrize("case", HOSTED)
def test_a_host_environment_is_recorded_and_built_again(case, worlds):
    make, env_params = HOSTED[case]
    with host(make(worlds), 2) as env:
        plan, objects = recorded(env)
        assert plan["env"] == ("made_worlds:arm" if case == "a function" else "made_worlds:Arm")
        assert (plan.get("env_params", {}), objects) == (env_params, [])
        with config.build_env(plan) as again:
            assert again.host.factories[0]().given == env.host.factories[0]().given


def test_arguments_of_host_are_recorded_beside_those_of_the_function(worlds):
    with host(functools.partial(worlds.Arm, gear="high"), 2, env_params={"x": {"low": 1.0, "high": 2.0}}) as env:
        plan, objects = recorded(env)
    assert (plan["env_params"], objects) == ({"gear": "high", "x": {"low": 1.0, "high": 2.0}}, [])
    with config.build_env(plan) as again:
        one = again.host.factories[0]()
        one.reset(seed=1)
        assert 1.0 < one.unwrapped.x < 2.0
        assert one.unwrapped.given["gear"] == "high"


def test_agents_of_pettingzoo_are_recorded(worlds):
    with host(functools.partial(worlds.Two, bonus=2.0), 2, agent_ids=True) as env:
        plan, objects = recorded(env)
    assert (plan["env"], plan["env_params"], plan["agent_ids"], objects) == (
        "made_worlds:Two",
        {"bonus": 2.0},
        True,
        [],
    )


def test_a_partial_of_gymnasiums_make_has_the_name_of_the_id():
    with host(functools.partial(gymnasium.make, "CartPole-v1", max_episode_steps=9), 2) as env:
        plan, objects = recorded(env)
    assert (plan["env"], plan["env_params"], objects) == ("gymnasium/CartPole-v1", {"max_episode_steps": 9}, [])


@pytest.mark.parametrize(
    "make",
    [
        lambda w: host(lambda: w.Arm(), 2),
        lambda w: host([w.Arm, functools.partial(w.Arm, x=2.0)]),
        lambda w: host(w.Arm, 2, env_params={"x": 2.0}, set_params=lambda env, numbers: None),
        lambda w: host(functools.partial(w.Arm, file=np.zeros(2)), 2),
        lambda w: host(functools.partial(w.Arm, gear=None), 2),  # a run file has the text "none" for it
        lambda w: host(functools.partial(w.Arm, gear=(1, 2)), 2),  # a run file has a list for it
        lambda w: host(functools.partial(w.Arm, joints=[1, 2]), 2),  # read as a tuple, as the default is one
        lambda w: host(functools.partial(w.Arm, file={"low": 1.0, "high": 2.0}), 2),  # it would be drawn
        lambda w: host(functools.partial(w.arm, 1.0, 2.0), 2),
        lambda w: host(gymnasium.vector.SyncVectorEnv([w.Arm])),
    ],
    ids=["lambda", "two", "set_params", "array", "None", "tuple", "list", "range", "any number of arguments", "vector"],
)
def test_what_no_file_holds_of_a_host_environment_stays_an_object(make, worlds):
    with make(worlds) as env:
        plan, objects = recorded(env)
    assert (plan["env"], objects) == ("own", ["env (own)"])


def test_an_environment_that_is_passed_again_needs_neither_trust_nor_other_parameters(worlds, monkeypatch):
    """Its arguments are those that its run file has, so that none is to be set in it."""
    for env in (host(functools.partial(worlds.Arm, x=3.0), 2), VectorEnv(worlds.Line(marks=(7,)), 2)):
        plan, _ = recorded(env)
        monkeypatch.setattr(imports, "_trusted", set())
        assert config.build(plan, env).env is env
        with pytest.raises(ppax.ConfigError, match="env_params"):
            config.build(plan | {"env_params": {"x": 4.0}}, env)
        env.close()
