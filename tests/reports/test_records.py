"""Reading of run directories: finished, live, damaged and hostile ones."""

import json
import math

import pytest

from ppax.core.types import ConfigError
from ppax.run import records

ROWS = [{"iteration": i, "env_steps": 100 * i, "seconds": 0.5 * i, "episode_return": 2.0 * i} for i in (1, 2, 3)]


@pytest.fixture
def run(tmp_path):
    """Directory of a finished run of three rows."""
    path = tmp_path / "mine"
    path.mkdir()
    (path / "run.toml").write_text('env = "CartPole-v1"\nseed = 4\n\n[agent]\nlearning_rate = 0.5\n')
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    (path / "evaluation.json").write_text(json.dumps({"mean_return": 7.5, "std_return": None, "reached": 0.25}))
    (path / "stopped.json").write_text(json.dumps({"kind": "done", "why": "total_steps are done"}))
    (path / "about.json").write_text(json.dumps({"id": "a", "starts": [{"device": "cpu"}, "no start"]}))
    return path


def test_a_finished_run(run):
    record = records.read(run)
    assert (record.name, record.env, record.end) == ("mine", "CartPole-v1", "total_steps are done")
    assert record.config == {"env": "CartPole-v1", "seed": 4, "agent.learning_rate": 0.5}
    assert record.columns["episode_return"].tolist() == [2.0, 4.0, 6.0]
    assert record.last("episode_return") == 6.0
    assert record.steps_per_second == 200.0
    assert record.result("mean_return") == 7.5
    assert math.isnan(record.result("std_return"))
    assert record.starts == [{"device": "cpu"}]
    assert record.run_file == (run / "run.toml").read_text()


def test_a_live_run_with_a_line_cut_in_the_middle(run):
    with open(run / "metrics.jsonl", "a") as file:
        file.write('no row\n[1, 2]\n{"iteration": 4, "env_st')
    for name in ("evaluation.json", "stopped.json", "about.json"):
        (run / name).unlink()
    record = records.read(run)
    assert record.columns["env_steps"].tolist() == [100, 200, 300]
    assert record.stopped == record.evaluation == {}
    assert record.starts == []
    assert "still running" in record.end


def test_a_run_without_rows(run):
    (run / "metrics.jsonl").unlink()
    record = records.read(run)
    assert record.columns == {}
    assert math.isnan(record.last("episode_return"))
    assert math.isnan(record.steps_per_second)
    assert not record.has("episode_return")


@pytest.mark.parametrize("text", ["", "[1]", '{"mean_return": ', "[" * 100_000, '{"a": 1}' + " " * 2**20], ids=len)
def test_a_damaged_evaluation_is_no_evaluation(run, text):
    (run / "evaluation.json").write_text(text)
    assert records.read(run).evaluation == {}


def test_a_reason_that_is_no_text_is_none(run):
    (run / "stopped.json").write_text('{"why": ["x"]}')
    assert "still running" in records.read(run).end


def test_many_metrics_of_a_stranger_are_cut(run):
    row = ROWS[0] | {f"m{i}": float(i) for i in range(3000)}
    (run / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    assert len(records.read(run).columns) == 500


def test_a_directory_without_a_run_is_refused_with_the_nearest(run, tmp_path):
    with pytest.raises(
        ConfigError, match=r"is not a run directory: it has no run\.toml; nearest: .*mine, one of 1 run"
    ):
        records.read(tmp_path)
    for path in (tmp_path / "missing", run / "metrics.jsonl"):
        with pytest.raises(ConfigError, match=r"is not a run directory: it has no run\.toml"):
            records.read(path)


def test_links_are_refused(run, tmp_path):
    (tmp_path / "secret").write_text("{}")
    (run / "evaluation.json").unlink()
    (run / "evaluation.json").symlink_to(tmp_path / "secret")
    with pytest.raises(ConfigError, match="contains links"):
        records.read(run)
