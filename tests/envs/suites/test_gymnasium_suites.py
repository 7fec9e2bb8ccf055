"""MuJoCo and Box2D through Gymnasium; needs the extras of those names."""

import importlib.util
import json

import pytest

from ppax.cli import main

SUITES = {"HalfCheetah-v5": "mujoco", "LunarLander-v3": "Box2D", "BipedalWalker-v3": "Box2D", "Ant-v5": "mujoco"}


@pytest.mark.nightly
@pytest.mark.parametrize("env_id", SUITES)
def test_a_suite_is_trained_from_the_command_line(env_id, tmp_path, capsys):
    if importlib.util.find_spec(SUITES[env_id]) is None:
        pytest.skip(f"{SUITES[env_id]} is not installed")
    options = ["--num-envs", "2", "--num-steps", "64", "--total-steps", "256", "--eval.episodes", "1", "--json"]
    assert main.main(["train", f"gymnasium/{env_id}", *options, "--run-dir", str(tmp_path)]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["episodes"] == 1
    assert 200 <= result["env_steps"] <= 256
