"""Presets in Python: the same run as on the command line."""

import pytest

import ppax
from ppax import config


def test_a_preset_equals_its_run_file():
    tuned = ppax.preset("CartPole-v1")
    agent, env, run = tuned
    assert config.describe_run(agent, env, run) == config.resolve(config.find("CartPole-v1"))


def test_options_override_single_settings_of_a_preset():
    tuned = ppax.preset("CartPole-v1", seed=7, agent={"learning_rate": 0.5, "network": {"hidden": [8]}})
    assert (tuned.run.seed, float(tuned.agent.learning_rate), tuned.agent.network.hidden) == (7, 0.5, (8,))
    assert tuned.agent.schedule == ppax.preset("CartPole-v1").agent.schedule


def test_options_of_a_part_leave_with_it():
    tuned = ppax.preset("CartPole-v1", agent={"schedule": {"part": "constant"}})
    assert tuned.agent.schedule == ppax.schedules.Constant()


def test_a_preset_trains():
    sizes = {"num_envs": 2, "num_steps": 4, "total_steps": 16, "agent": {"network": {"hidden": [4]}, "num_epochs": 1}}
    run = ppax.preset("CartPole-v1", **sizes, log={"console": False}).fit()
    assert run.history[-1]["iteration"] == 2


def test_unknown_names_and_options_are_refused():
    with pytest.raises(ppax.ConfigError, match="did you mean 'CartPole-v1'"):
        ppax.preset("CartPole")
    with pytest.raises(ppax.ConfigError, match="num_envs"):
        ppax.preset("CartPole-v1", num_env=3)
