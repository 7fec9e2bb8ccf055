"""`ppax train --init-from RUN` and `ppax resume RUN --total-steps N`."""

import json

import pytest

from ppax import config
from ppax.cli import main

pytestmark = pytest.mark.usefixtures("quick_programs", "shared_programs")

SIZES = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "96", "--agent.num-epochs", "1"]
REST = ["--agent.network.hidden", "4", "--eval.episodes", "2", "--no-log.console", "--no-cache"]


def train(run_dir, *arguments):
    return main.main(["train", "CartPole-v1", *SIZES, *REST, "--run-dir", str(run_dir), *map(str, arguments)])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "a"
    assert train(path, "--best.metric", "value_mean") == 0
    return path


def test_init_from_is_short_for_its_option_and_recorded(run, tmp_path, capsys):
    flags = ["--init-from", run, "--init-from.best", "--init-from.keep", "params", "reward_stats"]
    assert train(tmp_path / "b", *flags) == 0
    assert f"init_from {run} (best policy, iteration " in capsys.readouterr().out
    table = config.read(tmp_path / "b" / "run.toml")["init_from"]
    same_spaces = {"observations": [], "actions": [], "new_action_probability": 0.01}
    assert table == {"run": str(run), "keep": ["params", "reward_stats"], "best": True, "partial": False} | same_spaces
    # the file repeats the run
    again = [
        "train",
        str(tmp_path / "b" / "run.toml"),
        "--run-dir",
        str(tmp_path / "c"),
        "--no-cache",
        "--trust",
        str(run),
    ]
    assert main.main(again) == 0
    states = [sorted((tmp_path / name / "checkpoints").iterdir())[-1] / "state.safetensors" for name in "bc"]
    assert states[0].read_bytes() == states[1].read_bytes()


def test_other_observations_and_actions_on_the_command_line(run, tmp_path, capsys):
    change = [f"--init-from={run}", "--init-from.observations", "1", "0", "2:4"]
    assert (
        train(tmp_path / "b", *change, "--init-from.actions", "1", "0", "--init-from.new-action-probability", "0.2")
        == 0
    )
    said = capsys.readouterr().out
    assert "observations: 4 of 4 numbers taken, 0 new, 0 dropped; actions: 2 of 2 taken, 0 new, 0 dropped" in said
    table = config.read(tmp_path / "b" / "run.toml")["init_from"]
    assert (table["observations"], table["actions"], table["new_action_probability"]) == (
        ["1", "0", "2:4"],
        ["1", "0"],
        0.2,
    )
    assert train(tmp_path / "c", f"--init-from={run}", "--init-from.observations", "0:5") == 2
    assert "nearest valid value: 0:4" in capsys.readouterr().err


@pytest.mark.filterwarnings("default:init_from")
def test_a_learner_that_differs_has_exit_code_2_and_partial_takes_part_of_it(run, tmp_path, capsys):
    other = ["--agent.network.hidden", "5", f"--init-from={run}"]
    assert train(tmp_path / "b", *other) == 2
    rows = [line.split() for line in capsys.readouterr().err.splitlines()]
    assert ["params.policy.kernel", "float32[5,", "2]", "float32[4,", "2]", "differs"] in rows
    assert not (tmp_path / "b").exists()
    assert train(tmp_path / "b", *other, "--init-from.partial") == 0
    assert "arrays taken, 6 not:" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore:total_steps was")
def test_a_run_is_made_longer(run, tmp_path, capsys):
    assert train(tmp_path / "b") == 0
    assert main.main(["resume", str(tmp_path / "b"), "--total-steps", "1.6e2", "--json", "--no-cache"]) == 0
    said = capsys.readouterr()
    assert "total_steps: 160, recorded: 96" in said.err
    assert json.loads(said.out.splitlines()[-1])["total_steps"] == 160
    assert config.read(tmp_path / "b" / "run.toml")["total_steps"] == 160
    assert main.main(["resume", str(tmp_path / "b"), "--total-steps", "64", "--no-cache"]) == 2
    assert "nearest valid value: 160" in capsys.readouterr().err
