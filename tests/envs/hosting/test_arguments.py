"""Wrong arguments of `host` and `make`: each is one ConfigError with what was received and what to write."""

from functools import partial

import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import ppax
from ppax.core.types import ConfigError
from ppax.envs import host
from support.host_worlds import Maze
from support.team_worlds import Squad

SOURCES = {
    "instance": (Maze(), r"source: one environment, of type Maze: .*ppax\.envs\.host\(Maze, num_envs=8\)"),
    "parallel": (Squad(), r"source: one environment, of type Squad: .*ppax\.envs\.host\(Squad, num_envs=8\)"),
    "name": ("CartPole-v1", r"source = 'CartPole-v1': the name of an environment: write ppax\.make\('CartPole-v1'"),
    "number": (3, r"source = 3: must be a function that makes one environment, a list of such"),
    "none": (None, r"source = None: must be a function"),
    "listed": ([Maze, Maze()], r"source\[1\]: one environment, of type Maze: "),
    "listed name": (["CartPole-v1"], r"source\[0\] = 'CartPole-v1': the name"),
    "empty": ([], r"source = \[\]: must be a function .* at least one"),
}


@pytest.mark.parametrize("name", SOURCES)
def test_what_is_no_function_that_makes_an_environment_is_refused(name):
    source, said = SOURCES[name]
    with pytest.raises(ConfigError, match=said):
        host(source)


NUMBERS = {
    "4": "must be of type int",
    4.0: "must be of type int",
    True: "must be of type int",
    None: "must be of type int",
}
NUMBERS |= {0: "must be at least 1; nearest valid value: 1", -2: "must be at least 1; nearest valid value: 1"}


@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_numbers_of_environments_are_checked(number):
    calls = [lambda: ppax.make("gymnasium/CartPole-v1", number), lambda: ppax.make("CartPole-v1", number)]
    calls += [] if number is None else [lambda: host(Maze, number), lambda: host([Maze], number)]
    for call in calls:
        with pytest.raises(ConfigError, match=rf"num_envs = {number!r}: {NUMBERS[number]}"):
            call()


def test_whole_numbers_of_numpy_are_numbers_of_environments():
    for name in ("gymnasium/CartPole-v1", "CartPole-v1"):
        env = ppax.make(name, np.int64(3))
        assert (env.num_envs, type(env.num_envs)) == (3, int)
    assert host(Maze, np.int32(3)).num_envs == 3
    assert host((Maze, Maze)).num_envs == 2


@pytest.mark.parametrize("number", [0, 2.5, True], ids=repr)
def test_action_repeat_of_compiled_environments_is_checked(number):
    with pytest.raises(ConfigError, match=rf"action_repeat = {number!r}: must be"):
        ppax.make("CartPole-v1", 2, action_repeat=number)


def test_one_name_is_no_list_of_metrics():
    said = r"""info_metrics = 'is_success': must be a list of names; nearest valid value: \["is_success"\]"""
    vector = SyncVectorEnv([Maze])
    for call in (partial(host, Maze), partial(host, vector), partial(ppax.make, "gymnasium/CartPole-v1", 2)):
        with pytest.raises(ConfigError, match=said):
            call(info_metrics="is_success")
    with pytest.raises(ConfigError, match="info_metrics = 3: must be a list of str"):
        host(Maze, info_metrics=3)
    assert host(Maze, 2, info_metrics=("time",)).settings.info_metrics == ("time",)


def test_workers_of_one_process_are_refused():
    with pytest.raises(ConfigError, match='workers = 2: processes, which vectorization = "async" starts'):
        host(Maze, 2, workers=2)


@pytest.mark.parametrize("name", ["workers", "action_repeat"])
def test_numbers_of_the_stepping_are_checked(name):
    for number, said in {"2": "must be of type int", 0: "must be at least 1; nearest valid value: 1"}.items():
        with pytest.raises(ConfigError, match=f"{name} = {number!r}: {said}"):
            host(Maze, 2, vectorization="async", **{name: number})
