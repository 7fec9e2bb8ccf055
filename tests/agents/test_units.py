"""Actions in units that a normal distribution around 0 with standard deviation 1 does not reach."""

import warnings

import numpy as np
import pytest
from gymnasium import spaces

import ppax
from ppax.config.defaults import completed
from ppax.networks.heads import head_for, needs_squashing, off_scale
from ppax.reports.doctor import ExaminedRun, actions_off_scale
from ppax.training.arguments import warn_of_units


def box(low, high, size=1):
    return spaces.Box(low, high, (size,), np.float32)


@pytest.mark.parametrize(
    ("space", "bounds"),
    [
        (box(0.0, 1000.0), "[0, 1000]"),
        (box(0.0, 1e-3), "[0, 0.001]"),
        (box(1000.0, 1010.0), "[1000, 1010]"),
        (box(np.float32([-1, -100]), np.float32([1, 100]), 2), "[-100, 100]"),
        (spaces.Dict(a=spaces.Discrete(2), b=box(0.0, 1000.0)), "[0, 1000]"),
        (box(-1.0, 1.0), ""),
        (box(-0.4, 0.4), ""),  # MuJoCo's Humanoid
        (box(-2.0, 2.0), ""),
        (box(0.0, 1.0), ""),
        (box(-np.inf, np.inf), ""),
        (box(0.0, np.inf), ""),
        (box(3.0, 3.0), ""),
        (spaces.Discrete(2), ""),
    ],
)
def test_boxes_far_from_a_standard_normal_are_named(space, bounds):
    assert off_scale(head_for(space)) == bounds
    assert needs_squashing(space) == bounds
    if bounds:
        assert off_scale(head_for(space, "squashed")) == off_scale(head_for(space, "beta")) == ""


def test_squashing_is_not_advised_where_a_bound_is_missing():
    space = box(np.float32([0, 0]), np.float32([1000, np.inf]), 2)
    assert off_scale(head_for(space)) == "[0, 1000]"
    assert needs_squashing(space) == ""


@ppax.part
class Valve:
    high: float = ppax.static(default=1000.0)
    observation_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    num_agents = None

    @property
    def action_space(self):
        return box(0.0, self.high)


def agent_for(env, **options):
    return ppax.PPO(ppax.networks.network(env, hidden=(4,), **options))


def test_fit_warns_of_them():
    env = ppax.envs.VectorEnv(Valve(), 2)
    with pytest.warns(UserWarning, match=r'actions in \[0, 1000\].*write distribution = "squashed"'):
        warn_of_units(agent_for(env), env)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_of_units(agent_for(env, distribution="squashed"), env)
        unit = ppax.envs.VectorEnv(Valve(1.0), 2)
        warn_of_units(agent_for(unit), unit)


def test_defaults_by_kind_reach_them():
    env = ppax.envs.VectorEnv(Valve(), 2)
    assert completed({}, env).config["agent"]["network"]["distribution"] == "squashed"
    own = {"agent": {"network": {"distribution": "beta"}}}
    assert completed(own, env).config["agent"]["network"]["distribution"] == "beta"
    assert "distribution" not in completed({}, ppax.envs.VectorEnv(Valve(1.0), 2)).config["agent"]["network"]


def test_doctor_finds_them():
    options = {"agent.network.distribution": "normal"}
    found = actions_off_scale(ExaminedRun([], options, missed={"": "[0, 1000]"}))
    assert (found.remedy.option, found.remedy.value) == ("agent.network.distribution", "squashed")
    assert actions_off_scale(ExaminedRun([], options)) is None
    squashed = {"agent.network.distribution": "squashed"}
    assert actions_off_scale(ExaminedRun([], squashed, missed={"": "[0, 1000]"})) is None
