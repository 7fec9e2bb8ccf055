"""`ppax doctor`: text, JSON, exit codes and commands; on run directories that are written by hand."""

import json
import shlex

import pytest

import ppax
from ppax import config
from ppax.cli import main, options

ROW = {"episode_return": 20.0, "episode_length": 20.0, "episodes": 4.0, "entropy": 0.6, "approx_kl": 0.01}
SIZES = 'env = "CartPole-v1"\nnum_envs = 8\nnum_steps = 16\ntotal_steps = 12800\n'


@pytest.fixture
def run(tmp_path):
    """Function that writes a run directory with ten rows, whose metrics may be changed."""

    def write(settings="", **metrics):
        path = tmp_path / "a run"
        path.mkdir()
        (path / "run.toml").write_text(SIZES + settings)
        counts = ({"iteration": 10 * i, "env_steps": 1280 * i, "episode_return": 20.0 + i % 2} for i in range(1, 11))
        (path / "metrics.jsonl").write_text("".join(json.dumps(ROW | row | metrics) + "\n" for row in counts))
        return path

    return write


def test_a_healthy_run_says_what_was_examined_and_what_could_not_be(run, capsys):
    path = run()
    before = sorted(path.iterdir())
    assert main.main(["doctor", str(path)]) == 0
    text = capsys.readouterr().out
    assert "No rule has found a cause. Examined: ended_by_fault, no_episode_ended, horizon_short," in text
    assert "Not examined: clip_fraction_high, as the rows have no clip_fraction." in text
    assert "ppax train" not in text
    assert sorted(path.iterdir()) == before


def test_the_evaluation_at_the_end_of_a_run_is_read(run, capsys):
    path = run()
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    rising = [json.dumps(row | {"episode_return": 20.0 * i, "episodes": 20}) for i, row in enumerate(rows)]
    (path / "metrics.jsonl").write_text("\n".join(rising) + "\n")
    (path / "evaluation.json").write_text('{"mean_return": 9.5, "iterations": 100}')
    assert main.main(["doctor", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "rose: 0 at the start, 180 at the end; the evaluation disagrees: its mean return is 9.5" in text


def test_a_finding_ends_in_a_command_that_repeats_the_run_with_its_option(run, capsys, monkeypatch):
    path = run("[agent]\nlearning_rate = 0.1\n", approx_kl=2.5)
    assert main.main(["doctor", str(path)]) == 0
    text = capsys.readouterr().out
    assert "warning: kl_large. Updates move the policy too far: approx_kl is above 0.1 in 10 of 10 rows" in text
    (command,) = [line for line in text.splitlines() if line.startswith("  ppax train")]
    words = shlex.split(command)
    assert words[2] == str(path / "run.toml")
    changed = options.parse_run("train", words[2:], options.add_train)[1]
    expected = config.resolve(config.completed(config.read(path / "run.toml")).config)
    expected["agent"]["learning_rate"] = 1e-3
    assert config.resolve(changed) == expected


@pytest.mark.parametrize(
    ("settings", "metrics", "option"),
    [
        ("", {"obs_max": 900.0}, "--agent.normalize-obs"),
        ("", {"episodes": 0.0, "episode_return": None}, "--iterations-per-env-reset 62"),
        ("[agent]\nnum_epochs = 1\n", {}, "--agent.minibatch.num-minibatches"),
    ],
)
def test_options_of_every_type_are_written_as_the_command_line_takes_them(run, settings, metrics, option, capsys):
    path = run(settings + "[agent.minibatch]\nnum_minibatches = 2\n", **metrics)
    main.main(["doctor", str(path)])
    (command,) = [line for line in capsys.readouterr().out.splitlines() if option in line and "ppax train" in line]
    assert options.parse_run("train", shlex.split(command)[2:], options.add_train)


def test_json_has_the_same_findings(run, capsys):
    path = run(approx_kl=2.5)
    assert main.main(["doctor", str(path), "--json"]) == 0
    out = capsys.readouterr()
    result = json.loads(out.out)
    assert result["healthy"] is False
    assert [(finding["rule"], finding["remedy"]["option"]) for finding in result["findings"]] == [
        ("kl_large", "agent.extensions.kl_control.target_kl")
    ]
    assert result["findings"][0]["iteration"] == 10
    assert "obs_max" in result["not_examined"]["observations_large"]
    assert "kl_large" in out.err


def test_a_run_from_python_objects_gets_no_command(run, capsys):
    path = run('objects = ["env (MyEnv)"]\n', approx_kl=2.5)
    assert main.main(["doctor", str(path)]) == 0
    text = capsys.readouterr().out
    assert "kl_large" in text
    assert "ppax train" not in text


def test_names_from_a_file_cannot_control_the_terminal(run, capsys):
    path = run('[groups."a\\u001b[2J; rm x".agent]\nlearning_rate = 0.1\n', approx_kl=2.5)
    assert main.main(["doctor", str(path)]) == 0
    text = capsys.readouterr().out
    assert "kl_large" in text
    assert "\x1b" not in text
    assert "'--groups.a" in text  # quoted for a shell


@pytest.mark.parametrize("kind", ["fault", "environment"])
def test_a_fault_before_the_first_row_is_repeated_with_the_command_to_go_on(kind, tmp_path, capsys):
    (tmp_path / "run.toml").write_text(SIZES)
    said = "iteration 1 is not finite: environment 0, step 0: its reward is nan; `ppax check-env W` checks it"
    end = {"kind": kind, "why": "the kind in words", "error": said, "iteration": 0, "env_steps": 0}
    (tmp_path / "stopped.json").write_text(json.dumps(end))
    assert main.main(["doctor", str(tmp_path)]) == 2
    text = capsys.readouterr().err
    assert f"ended before its first log row, with a fault: {said}" in text
    assert f"go on with: ppax resume {tmp_path}" in text
    with pytest.raises(ppax.ConfigError, match="its reward is nan"):
        ppax.doctor(tmp_path)
    del end["error"]  # of an earlier version
    (tmp_path / "stopped.json").write_text(json.dumps(end))
    with pytest.raises(ppax.ConfigError, match="with a fault: the kind in words"):
        ppax.doctor(tmp_path)


def test_a_fault_after_some_rows_is_a_finding(run, capsys):
    path = run()
    end = {"kind": "environment", "error": "environment 1 failed in step 3\nTraceback\nValueError: fell off"}
    (path / "stopped.json").write_text(json.dumps(end))
    assert main.main(["doctor", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "fault: ended_by_fault. The run ended before its total_steps: environment 1 failed in step 3" in text
    assert "ValueError: fell off" in text
    (path / "stopped.json").write_text('{"kind": "done"}')
    assert ppax.doctor(path).healthy


def test_without_a_run_or_rows_it_exits_with_code_2(tmp_path, capsys):
    assert main.main(["doctor", str(tmp_path)]) == 2
    assert "run.toml" in capsys.readouterr().err
    (tmp_path / "run.toml").write_text(SIZES)
    assert main.main(["doctor", str(tmp_path)]) == 2
    assert "no log rows" in capsys.readouterr().err
    assert "doctor" in ppax.cli.common.COMMANDS
