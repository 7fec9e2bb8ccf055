"""DeepMind Control Suite against its own loop; needs the extra dm_control."""

import importlib

import numpy as np
import pytest

import ppax
from ppax.envs.suites import registry
from ppax.envs.suites.dm_control_task import ControlTask

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # the library's own
    pytest.mark.skipif(not registry.installed("dm_control"), reason='pip install "ppax[dm_control]"'),
]


def test_steps_are_those_of_dm_control():
    suite = importlib.import_module("dm_control.suite")
    own, task = suite.load("walker", "walk", task_kwargs={"random": 3}), ControlTask("walker", "walk")
    rng, expected, (obs, _) = np.random.default_rng(0), own.reset(), task.reset(seed=3)
    for _ in range(10):
        assert task.observation_space.contains(obs)
        for name, value in expected.observation.items():
            np.testing.assert_allclose(obs[name], np.atleast_1d(value), rtol=1e-6)
        action = rng.uniform(-1, 1, task.action_space.shape)
        expected = own.step(action)
        obs, reward, terminated, truncated, _ = task.step(action)
        assert reward == expected.reward
        assert (terminated, truncated) == (False, False)


def test_the_time_limit_truncates():
    task = ControlTask("cartpole", "balance", task_kwargs={"time_limit": 0.05})  # steps of 0.01 s
    task.reset(seed=0)
    ends = [task.step(np.zeros(1))[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]


def test_an_end_with_discount_0_terminates(monkeypatch):
    task = ControlTask("cartpole", "balance")
    task.reset(seed=0)
    monkeypatch.setattr(task.env.task, "get_termination", lambda physics: 0.0)
    assert task.step(np.zeros(1))[2:4] == (True, False)


def test_seeds_repeat_episodes():
    task = ControlTask("cartpole", "swingup")
    first, again, other = (task.reset(seed=seed)[0]["position"] for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_spaces_by_name():
    with ppax.make("dm_control/cartpole-balance", 2) as env:
        assert env.observation_space["position"].shape == (3,)
        assert env.observation_space["velocity"].dtype == np.float32
        assert (env.action_space.low, env.action_space.high) == (-1.0, 1.0)


def test_wrong_options_are_refused():
    with pytest.raises(ppax.ConfigError, match=r"unexpected keyword argument 'foo'"):
        ppax.make("dm_control/cartpole-balance", 1, env_params={"foo": 1})
    with pytest.raises(ppax.ConfigError, match=r"did you mean 'dm_control/cartpole-balance'"):
        ppax.make("dm_control/cartpole-balanc", 1)


@pytest.mark.nightly
def test_every_task_can_be_stepped():
    needs_opengl = {"quadruped-escape"}  # works with MUJOCO_GL=egl, which must be set before the import
    for env_id in sorted({*registry.ids("dm_control")} - needs_opengl):
        task = ControlTask(*env_id.split("-", 1))
        start, _ = task.reset(seed=0)
        task.action_space.seed(0)
        action = np.clip(task.action_space.sample(), -1.0, 1.0)
        obs, reward, *_ = task.step(action)
        assert task.observation_space.contains(start), env_id
        assert task.observation_space.contains(obs), env_id
        assert np.isfinite(reward), env_id
        task.close()
