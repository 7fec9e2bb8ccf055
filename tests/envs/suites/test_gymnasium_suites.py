"""MuJoCo and Box2D through Gymnasium; needs the extras of those names."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from ppax.cli import main

DRAWING = """
import ppax
try:
    ppax.make("gymnasium/InvertedPendulum-v5", 1)
except ppax.ConfigError as error:
    print(error)
"""
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


def test_a_way_of_drawing_that_mujoco_cannot_load_is_named():
    pytest.importorskip("mujoco")
    command, variables = [sys.executable, "-c", DRAWING], os.environ | {"MUJOCO_GL": "nonsense"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    assert "MuJoCo cannot be loaded with MUJOCO_GL = 'nonsense' (RuntimeError: " in done.stdout
    assert "unset it to train; for pictures: without a display MuJoCo draws with MUJOCO_GL=egl" in done.stdout
