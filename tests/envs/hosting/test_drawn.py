"""Parameters of host environments that are drawn at every reset."""

import functools

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax import config
from ppax.envs.hosting.domain_randomisation import DomainRandomisation
from ppax.envs.hosting.host_env import reset_seeds

RANGE = {"low": 2.0, "high": 5.0}
MADE = []


class Breeze(gymnasium.Env):
    """Episodes of two steps, in which every reward is the wind; the observation counts the episodes of this object."""

    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, wind=1.0, size=3):
        self.wind, self.size, self.episodes = wind, size, 0
        self.closed = False
        MADE.append(self)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.episodes = 0, self.episodes + 1
        return np.array([self.np_random.random()], np.float32), {}

    def step(self, action):
        self.steps += 1
        return np.array([self.steps], np.float32), float(self.wind), self.steps == 2, False, {}

    def close(self):
        self.closed = True


def put(env, numbers):
    env.unwrapped.wind = numbers["wind"]
    env.unwrapped.size = numbers.get("size", 3)


@pytest.mark.parametrize("set_params", [None, put], ids=["a new environment", "set_params"])
def test_every_episode_has_a_number_of_its_own(set_params):
    MADE.clear()
    env = DomainRandomisation(Breeze, {"wind": (2.0, 5.0)}, set_params)
    winds, starts = [], []
    for seed in (7, None, None, 7, None):
        starts.append(env.reset(seed=seed)[0][0])
        winds.append(env.step(0)[1])
        assert env.step(0)[1] == winds[-1]
    assert winds[0] == np.random.default_rng(7).uniform(2.0, 5.0)
    assert winds[3:] == winds[:2]  # equal seeds give equal episodes
    assert starts[3:] == starts[:2]
    assert len(set(winds)) == 3
    assert all(2.0 <= wind <= 5.0 for wind in winds)
    assert len(MADE) == (1 if set_params else 6)
    assert [one.closed for one in MADE] == ([False] if set_params else [True] * 5 + [False])


def test_whole_numbers_are_drawn_where_both_ends_and_the_default_are_whole():
    for ends, kind in (((2, 5), int), ((2.0, 5), float)):
        given = {"wind": {"low": 1, "high": 2}, "size": dict(zip(("low", "high"), ends, strict=True))}
        one = ppax.envs.host(Breeze, 1, env_params=given).host.factories[0]()
        sizes, winds = [], []
        for _ in range(300):
            one.reset()
            sizes.append(one.unwrapped.size)
            winds.append(one.unwrapped.wind)
        assert {type(size) for size in sizes} == {kind}
        assert {type(wind) for wind in winds} == {float}  # whose default is 1.0
        assert len(set(sizes)) == (4 if kind is int else 300)
        assert (min(sizes) == 2, max(sizes) == 5) == ((True, True) if kind is int else (False, False))


def test_arguments_may_have_the_names_of_those_of_wrappers():
    class Named(Breeze):
        def __init__(self, make=1.0, steps=1.0, ranges=1.0, set_params=1.0, share=1.0):
            super().__init__()
            self.given = make, steps, ranges, set_params, share

    names = ("make", "steps", "ranges", "set_params", "share")
    for range_of in (lambda x: x, lambda x: {"low": x, "high": x}):
        given = {name: range_of(float(x)) for x, name in enumerate(names, 2)}
        with ppax.envs.host(Named, 1, env_params={"max_steps": 9, **given}) as env:
            env.host.reset([0])
            assert env.host.stepper._batch.envs[0].unwrapped.given == (2.0, 3.0, 4.0, 5.0, 6.0)


def test_workers_draw_the_same_numbers():
    found = []
    for vectorization in ("sync", "async"):
        name, settings = "gymnasium/Pendulum-v1", {"env_params": {"g": {"low": 0.0, "high": 30.0}}}
        with ppax.make(name, 2, vectorization=vectorization, **settings) as env:
            agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), num_epochs=1)
            run = ppax.fit(agent, env, total_steps=832, num_steps=208, log=ppax.Log(console=False, every=1))
            found.append([row["episode_return"] for row in run.history])
    assert found[0] == found[1]


def test_environments_of_a_function_are_drawn():
    make = functools.partial(Breeze, size=4)
    with ppax.envs.host(make, 2, env_params={"wind": RANGE}) as env:
        assert env.settings.env_params == {"wind": RANGE}
        agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), num_epochs=1)
        run = ppax.fit(agent, env, total_steps=48, num_steps=12, log=ppax.Log(console=False, every=1))
        assert 4.0 <= run.history[0]["episode_return_min"] < run.history[0]["episode_return_max"] <= 10.0
        evaluation = run.evaluate(4)
        assert len(set(evaluation.returns)) == 4


def test_set_params_without_numbers_to_set_is_refused():
    for given in ({}, {"max_steps": 3}):
        with pytest.raises(ppax.ConfigError, match="set_params = put: env_params has no number for it to set; give"):
            ppax.envs.host(Breeze, 1, env_params=given, set_params=put)
    vector = gymnasium.vector.SyncVectorEnv([Breeze])
    with pytest.raises(ppax.ConfigError, match="set_params = put: a VectorEnv steps its environments itself; leave"):
        ppax.envs.host(vector, set_params=put)


def test_set_params_gets_all_values():
    env = ppax.envs.host(Breeze, 1, env_params={"wind": 4.0, "size": 9}, set_params=put)
    one = env.host.factories[0]()
    one.reset(seed=0)
    assert (one.unwrapped.wind, one.unwrapped.size) == (4.0, 9.0)


def test_arguments_of_a_function_are_set():
    assert ppax.envs.host(Breeze, 1, env_params={"size": 9}).host.factories[0]().size == 9


def test_gymnasium_draws_arguments_of_its_constructor(tmp_path):
    env = ppax.make("gymnasium/Pendulum-v1", 1, env_params={"g": {"low": 1.0, "high": 3.0}})
    one = env.host.factories[0]()
    found = []
    for seed in reset_seeds(jax.random.key(0), 3):
        one.reset(seed=seed)
        found.append(one.unwrapped.g)
    assert len(set(found)) == 3
    assert all(1.0 <= g <= 3.0 for g in found)
    agent = ppax.PPO(ppax.networks.mlp(env, hidden=(4,)), num_epochs=1)
    ppax.fit(agent, env, total_steps=8, num_steps=8, run_dir=tmp_path / "run", log=ppax.Log(console=False))
    again = config.read(tmp_path / "run" / "run.toml")
    assert again["env_params"] == {"g": {"low": 1.0, "high": 3.0}}
    assert "objects" not in again


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"wnd": 1.0}, "wnd"),
        ({"wind": {"low": 3.0, "high": 2.0}}, r"wind\.low = 3\.0: must be at most"),
        ({"wind": {"low": 3.0}}, "must be a number, or have low and high"),
        ({"wind": {"low": "a", "high": 2.0}}, "must be of type float"),
        ({"wind": (8, 12)}, r'wind = \(8, 12\): must be one number; a range is \{"low": 8, "high": 12\}'),
        ({"size": [4, 5, 6]}, r"size = \[4, 5, 6\]: must be one number$"),
    ],
)
def test_wrong_parameters_are_refused(given, message):
    with pytest.raises(ppax.ConfigError, match=message):
        ppax.envs.host(Breeze, 2, env_params=given)


class Deep(Breeze):
    """Takes one size or several."""

    def __init__(self, sizes: int | tuple[int, ...] = 3, mass: float = 1.0):
        super().__init__()
        self.sizes, self.mass = sizes, mass


def test_lists_are_refused_only_where_an_argument_is_a_number_alone():
    with ppax.envs.host(Deep, 1, env_params={"sizes": (3, 4)}) as env:
        assert env.host.factories[0]().sizes == (3, 4)
    with pytest.raises(ppax.ConfigError, match=r"env_params.mass = .*must be one number"):
        ppax.envs.host(Deep, 1, env_params={"mass": (3, 4)})
    with pytest.raises(ppax.ConfigError, match=r"env_params.g = .*must be one number"):
        ppax.make("gymnasium/Pendulum-v1", 1, env_params={"g": (8, 12)})


def test_a_vector_environment_and_other_suites_refuse_ranges():
    vector = gymnasium.vector.SyncVectorEnv([Breeze, Breeze])
    with pytest.raises(ppax.ConfigError, match=r"env_params = .*steps its environments itself"):
        ppax.envs.host(vector, env_params={"wind": RANGE})
    with pytest.raises(ppax.ConfigError, match="cannot be drawn at a reset"):
        ppax.make("pettingzoo/mpe/simple_spread_v3", 1, env_params={"N": RANGE})
