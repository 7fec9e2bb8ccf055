"""All errors of a run file in one message: unknown options, values out of range, unknown parts, wrong tables."""

import pytest

import ppax
from ppax import config
from ppax.cli import main

WRONG = """
env = "CartPole-v1"
num_envz = 8
num_steps = 0
log = 3
[agent]
gamma = 1.5
learning_rate = "fast"
[agent.loss]
part = "cliped"
clip_eps = 0.2
[agent.network]
hiden = [64]
[agent.advantage]
gae_lambda = 0.9
"""
EXPECTED = [
    "log = 3: must be a table, [log]",
    "agent.loss.part = 'cliped': must be one of clipped, kl_penalty, dpo, spo, rollback, none; nearest: clipped; for a",
    "unknown option 'num_envz'; did you mean 'num_envs'?",
    "unknown option 'agent.network.hiden'; did you mean 'agent.network.hidden'?",
    "num_steps = 0: must be at least 1; nearest valid value: 1",
    "agent.learning_rate = 'fast': must be of type float",
    "agent.gamma = 1.5: must be at most 1; nearest valid value: 1",
]


def errors(tables):
    with pytest.raises(ppax.ConfigError) as caught:
        config.resolve(tables)
    return str(caught.value).split("\n  ")


def test_all_errors_of_a_file_are_in_one_message(tmp_path):
    (tmp_path / "run.toml").write_text(WRONG)
    first, *found = errors(config.read(tmp_path / "run.toml"))
    assert first == "7 errors in the settings:"
    assert sorted(line[:60] for line in found) == sorted(line[:60] for line in EXPECTED)


@pytest.mark.parametrize("verb", ["train", "sweep", "bench", "selftest"])
def test_commands_report_them_with_exit_code_2(verb, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(WRONG)
    assert main.main([verb, "run.toml"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("ppax: 7 errors in the settings:\n  ")
    assert all(f"\n  {line}" in said for line in EXPECTED)
    assert said.count("\n") == 8
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_one_error_stays_one_sentence():
    assert errors({"agent": {"gamma": 2.0}}) == ["agent.gamma = 2.0: must be at most 1; nearest valid value: 1"]
    assert errors({"agent": {"loss": {"part": "cliped", "clip_eps": -1.0}}})[0].startswith("agent.loss.part = 'cliped'")


GROUPS = {"prey": {"players": [0]}, "hunter": {"players": [1], "agent": {"gamma": 3.0}}}


def test_errors_that_groups_inherit_are_reported_once():
    agent = {"learning_rate": -1.0, "loss": {"part": "nothing"}, "oops": 1}
    first, *found = errors({"env": "Pursuit-2", "agent": agent, "groups": GROUPS})
    assert first == "4 errors in the settings:"
    starts = ["agent.learning_rate = -1.0", "agent.loss.part = 'nothing'", "groups.hunter.agent.gamma = 3.0"]
    assert [sum(line.startswith(start) for line in found) for start in starts] == [1, 1, 1]
    assert sum("'agent.oops'" in line for line in found) == 1


def test_a_list_for_a_group_whose_agents_share_a_policy_is_an_error_of_the_group():
    """In the table [agent] it is valid."""
    tables = {"env": "Pursuit-3", "agents": "independent", "agent": {"gamma": [0.9, 0.8]}}
    groups = {"prey": {"players": [0], "agents": "shared"}, "hunter": {"players": [1, 2]}}
    (found,) = errors(tables | {"groups": groups})
    assert found.startswith("groups.prey.agent.gamma = [0.9, 0.8]: must be one number")


@pytest.mark.parametrize("given", ["gravity", 5, ["gravity"]])
def test_parameters_of_the_environment_are_a_table(given):
    texts = [f"{name} = {given!r}: must be a table, [{name}]" for name in ("env_params", "eval.env_params")]
    assert errors({"env_params": given, "eval": {"env_params": given}})[1:] == texts
    with pytest.raises(ppax.ConfigError, match=r"^env_params = .*: must be a table, \[env_params\]; in Python a dict"):
        ppax.make("CartPole-v1", 2, env_params=given)


def test_errors_in_the_search_of_a_sweep_are_reported_together():
    with pytest.raises(ppax.ConfigError) as caught:
        ppax.sweep_runs(
            {"env": "CartPole-v1"}, {"agent.gamma": [0.9]}, search={"part": "pbt", "sede": 1, "fraction": 2.0}
        )
    found = str(caught.value)
    assert "2 errors" in found
    assert "unknown option 'search.sede'" in found
    assert "search.fraction = 2.0: must be at most 0.5" in found


def test_several_unknown_parts_of_loggers():
    first, *found = errors({"log": {"to": [{"part": "wandbb"}, {"part": "tensorboard"}, {"part": "mflow"}]}})
    assert first == "2 errors in the settings:"
    assert ["wandbb" in found[0], "mflow" in found[1]] == [True, True]
