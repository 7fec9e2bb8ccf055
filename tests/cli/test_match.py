"""`ppax match ENV_OR_RUN POLICY POLICY ...`."""

import json

import pytest

from ppax.cli import main

pytestmark = pytest.mark.usefixtures("quick_programs", "shared_programs")

SIZES = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "64", "--agent.num-epochs", "1"]
REST = ["--agent.network.hidden", "4", "--eval.episodes", "2", "--no-log.console", "--no-cache"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs of a policy for each agent and of a shared one, and a bundle of the second."""
    path = tmp_path_factory.mktemp("runs")
    for name, options in (("a", ["--agents", "independent"]), ("b", ["--agent.network.hidden", "5"])):
        assert main.main(["train", "Pursuit-2", *SIZES, *REST, *options, "--run-dir", str(path / name)]) == 0
    assert main.main(["export", str(path / "b"), "--out", str(path / "b.zip"), "--formats", "numpy", "--no-cache"]) == 0
    return path


def match(capsys, *arguments):
    capsys.readouterr()
    code = main.main(["match", *map(str, arguments), "--no-cache"])
    return code, capsys.readouterr()


def test_runs_and_a_bundle_play(runs, capsys):
    players = [runs / "a", runs / "b.zip"]
    code, said = match(capsys, runs / "b", *players, "--episodes", "6", "--json")
    assert code == 0
    out = json.loads(said.out)
    assert out["policies"] == list(map(str, players))
    assert (out["sides"], out["games"], out["unfinished"]) == (["agent_0", "agent_1"], 24, 0)
    a, b = map(str, players)
    assert out["mean_return"][a][b] == -out["mean_return"][b][a]
    assert abs(sum(out["elo"].values()) - 2000.0) < 1e-3
    assert said.err.startswith("games won by the row against the column\n")
    assert "Elo, with 95 % interval" in said.err


def test_sides_of_an_environment_by_name(runs, capsys):
    """The same run twice has two names, and wins half of the games."""
    arguments = ["Pursuit-2", runs / "b", runs / "b", "--episodes", "3", "--seed", "5", "--deterministic", "--json"]
    code, said = match(capsys, *arguments, "--sides", "prey=0", "hunter=agent_1")
    assert code == 0
    out = json.loads(said.out)
    assert (out["sides"], out["policies"]) == (["prey", "hunter"], [str(runs / "b"), f"{runs / 'b'} #2"])
    assert (
        out["wins"][str(runs / "b")][f"{runs / 'b'} #2"] + out["draws"][str(runs / "b")][f"{runs / 'b'} #2"] / 2 == 0.5
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--episodes", "0"], "--episodes = 0: must be at least 1"),
        (["--sides", "prey"], "--sides prey: must be SIDE=AGENT,AGENT"),
        (
            ["--sides", "prey=0", "prey=1"],
            "--sides prey=1: must be SIDE=AGENT,AGENT, as red=red_0,red_1, and each side",
        ),
        (["--sides", "prey=0"], "sides: each of agent_0, agent_1 must be on exactly one side"),
    ],
)
def test_wrong_options_are_usage_errors(runs, capsys, options, message):
    code, said = match(capsys, "Pursuit-2", runs / "a", runs / "b", *options)
    assert (code, said.out) == (2, "")
    assert message in said.err
