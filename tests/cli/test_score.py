"""`ppax score` and `ppax presets`: exit codes, JSON, resumption after a kill, negative controls."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

import ppax
from ppax.cli import main, score

pytestmark = pytest.mark.usefixtures("cached_programs", "vmapped_keys", "quick_programs")
SMALL = "options = { num_envs = 4, num_steps = 32, agent.num_epochs = 1, agent.network.hidden = [8] }"
CONTROLS = """
[[row]]
name = "short"
target = "CartPole-v1"
steps = 256
threshold = 5
{small}
[[row.control]]
name = "frozen"
at_most = 150
options = {{ agent.learning_rate = 0.0 }}
[[row.control]]
name = "learns"
at_most = 5
"""


def suite(tmp_path, text):
    path = tmp_path / "suite.toml"
    path.write_text(text.format(small=SMALL))
    return str(path)


def call(*arguments):
    return main.main([str(x) for x in arguments])


def test_controls_and_rows_decide_the_exit_code(tmp_path, capsys):
    """Frozen CartPole stays below 150, as it must; a control above its bound and a row that falls short fail."""
    arguments = [
        "score",
        "--suite",
        suite(tmp_path, CONTROLS),
        "--out",
        tmp_path / "out",
        "--seeds",
        2,
        "--episodes",
        4,
    ]
    assert call(*arguments) == 0
    assert call(*arguments, "--controls", "--json") == 1
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert {name: row["result"]["status"] for name, row in rows.items()} == {
        "short": "passed",
        "short-frozen": "passed",
        "short-learns": "failed",
    }
    assert 5 < rows["short-frozen"]["result"]["iqm"] <= 150
    assert [member["seed"] for member in rows["short"]["members"]] == [1000, 1001]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"short.json", "short.png", "short-frozen.json", "short-learns.json"}
    raised = suite(tmp_path, CONTROLS.replace("threshold = 5", "threshold = 499"))
    assert call("score", "--suite", raised, *arguments[3:]) == 1  # the same result, another threshold
    assert "FAILED: IQM" in capsys.readouterr().out


def test_rows_with_published_scores_are_also_given_together(tmp_path, capsys):
    """The untrained policy is 0, the published score 1; a single row has no such line."""
    one = "[[row]]\nname = 'a'\ntarget = 'CartPole-v1'\nsteps = 256\nreference = 490.0\nseeds = 2\n{small}\n"
    both = suite(tmp_path, one + one.replace("'a'", "'b'"))
    assert call("score", "--suite", both, "--out", tmp_path / "out", "--episodes", 4) == 0
    assert "normalised scores of 2 rows (0: untrained, 1: the published reference): IQM" in capsys.readouterr().out
    assert call("score", "--suite", suite(tmp_path, one), "--out", tmp_path / "out", "--episodes", 4) == 0
    assert "normalised" not in capsys.readouterr().out


def test_what_to_measure_must_be_named(capsys, tmp_path):
    assert call("score") == 2
    assert "--suite quick" in capsys.readouterr().err
    assert call("score", "L1", "--seeds", "0") == 2
    assert "--seeds = 0: must be at least 1" in capsys.readouterr().err
    assert call("score", "CartPole") == 2
    assert "did you mean 'CartPole-v1'" in capsys.readouterr().err


KILLED = """
[[row]]
name = "first"
target = "CartPole-v1"
steps = 256
{small}
[[row]]
name = "second"
target = "gymnasium/CartPole-v1"
steps = 8_192
{small}
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9")
def test_a_killed_command_continues_in_the_second_row(tmp_path):
    """Killed after a seed of the second row: times and dates show that nothing done was measured again."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "ppax", "score", "--suite", suite(tmp_path, KILLED), "--out", str(out)]
    command += ["--seeds", "3", "--episodes", "4"]
    with open(tmp_path / "log", "wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        limit = time.monotonic() + 120
        while not (out / "second.json").exists():
            assert process.poll() is None, (tmp_path / "log").read_text()
            assert time.monotonic() < limit
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    first = (out / "first.json").read_bytes()
    done = json.loads((out / "second.json").read_text())["members"]
    assert 1 <= len(done) < 3
    assert call(*command[3:]) == 0
    assert (out / "first.json").read_bytes() == first
    members = json.loads((out / "second.json").read_text())["members"]
    assert members[: len(done)] == done
    assert [member["seed"] for member in members] == [1000, 1001, 1002]


def test_presets_are_listed_with_their_scores(capsys, monkeypatch):
    measured = ppax.PresetScore(499.5, 498.0, 500.0, 5, 499_000, 12.4, "2026-11-23")
    monkeypatch.setattr(score, "presets", lambda: {"CartPole-v1": measured, "styles/brax": None})
    assert call("presets") == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    cells = [[cell.strip() for cell in line if cell] for line in lines]
    assert cells[1:] == [["CartPole-v1", "499.5 (5 seeds)", "499,000", "12 s"], ["styles/brax", "not measured"]]
    assert call("presets", "--json") == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed == {"CartPole-v1": measured._asdict(), "styles/brax": None}
    monkeypatch.setattr(score, "scores_by_target", lambda: {"CartPole-v1": measured, "Pendulum-v1": measured})
    assert score.score_line("CartPole-v1", None).startswith("published score of CartPole-v1: 499.5 (IQM of 5 seeds")
    assert score.score_line("Pendulum-v1", "Pendulum-v1").startswith("preset Pendulum-v1: 499.5 (IQM of 5 seeds")
    assert score.score_line("Pendulum-v1", None) == ""  # its score is that of the preset
    assert score.score_line("run.toml", "styles/brax") == "preset styles/brax: not measured"
    assert score.score_line("run.toml", None) == ""


def test_training_a_preset_says_its_score(capsys, tmp_path):
    tiny = ["--num-envs", 4, "--num-steps", 8, "--total-steps", 32, "--agent.network.hidden", 8, "--eval.episodes", 1]
    assert call("train", "Pendulum-v1", *tiny, "--run-dir", tmp_path / "run", "--log.console", "false") == 0
    assert score.score_line("Pendulum-v1", "Pendulum-v1") in capsys.readouterr().out
