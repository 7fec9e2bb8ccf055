"""Environments that fail when they are created, reset or stepped for the first time: training and `check_env`."""

from functools import partial

import gymnasium
import pytest
from gymnasium.vector import SyncVectorEnv
from host_worlds import Maze, Quits

import ppax
from ppax.cli import main
from ppax.envs import EnvError, host
from ppax.networks import mlp


def fit(env):
    return ppax.fit(ppax.PPO(mlp(env, hidden=(8,))), env, 32, num_steps=8, log=ppax.config.Log(console=False))


class OldStep(Maze):
    """Maze with the four results of a step that Gym had before 0.26."""

    def step(self, action):
        return super().step(action)[:4]


class NoInfo(Maze):
    """Maze whose step returns None in the place of the info."""

    def step(self, action):
        return (*super().step(action)[:4], None)


@pytest.mark.parametrize(("world", "said"), [(OldStep, "a tuple of 4: ndarray"), (NoInfo, "bool, NoneType")])
def test_a_step_without_info_is_explained(world, said):
    for given in (world, world()):
        check = ppax.check_env(given)["interface"]
        assert check.passed is False
        assert said in check.text
    with pytest.raises(ppax.ConfigError, match=rf"interface: step returns .*{said}.*step returns five values"):
        fit(host(world, 2))
