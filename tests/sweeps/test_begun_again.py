"""Sweeps and studies whose start trained nothing are begun again in their directory; others are moved aside."""

import os

import pytest

import ppax
from ppax.loggers import last_row
from ppax.run import checkpoint
from ppax.sweeps import training

pytestmark = pytest.mark.usefixtures("vmapped_keys", "quick_programs", "cached_programs")

BASE = {
    "env": "CartPole-v1",
    "num_envs": 2,
    "num_steps": 8,
    "total_steps": 32,
    "agent": {"num_epochs": 1, "network": {"hidden": [4]}},
    "eval": {"episodes": 1},
    "log": {"console": False},
}
SWEEP = {"agent.learning_rate": [1e-2, 1e-3]}
STUDY = {"agent.learning_rate": ppax.sweeps.LogUniform(1e-3, 1e-2)}
OPTUNA = {"part": "optuna", "trials": 2, "batch": 2}


def begin(kind, path, **changes):
    if kind == "study":
        return ppax.sweep_runs(BASE, STUDY, search=OPTUNA, run_dir=path, **changes)
    return ppax.sweep_runs(BASE, SWEEP, run_dir=path, **changes)


def names(path):
    return sorted(str(one.relative_to(path)) for one in path.rglob("*") if not one.name.startswith("."))


@pytest.fixture
def broken(monkeypatch):
    """Programs of members fail at their first iteration, until the function that this returns is called."""

    def fail(*_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(training.ProgramTraining, "train", fail)
    return monkeypatch.undo


@pytest.mark.parametrize("kind", ["sweep", "study"])
def test_after_a_start_that_trained_nothing_the_same_call_works(kind, tmp_path, broken):
    path = tmp_path / kind
    with pytest.raises(RuntimeError, match="out of memory"):
        begin(kind, path)
    assert (path / "members" / "001" / "run.toml").exists()
    (path / "notes.md").write_text("my own")
    (path / "study.db-journal").write_text("of a transaction that a kill has left")
    broken()
    result = begin(kind, path)
    assert len(result.members) == 2
    assert all(last_row(one.run_dir / "metrics.jsonl")["iteration"] == 2 for one in result.members)
    begin(kind, tmp_path / "fresh")
    assert [name for name in names(path) if name != "notes.md"] == names(tmp_path / "fresh")
    assert (path / "notes.md").read_text() == "my own"


def test_another_sweep_may_follow_a_start_that_trained_nothing(tmp_path, broken):
    with pytest.raises(RuntimeError, match="out of memory"):
        begin("study", tmp_path)
    broken()
    result = ppax.sweep_runs(BASE, {"agent.gamma": [0.9]}, run_dir=tmp_path)
    assert [one.run_dir.name for one in result.members] == ["000"]
    assert not (tmp_path / "study.db").exists()


def test_a_trained_sweep_is_moved_aside_complete(tmp_path):
    path = tmp_path / "sweep"
    begin("sweep", path)
    before = names(path)
    with pytest.raises(
        ppax.ConfigError, match=r"already holds a sweep, which is finished: `ppax report .*/sweep` shows it"
    ):
        begin("sweep", path)
    (path / "result.json").rename(tmp_path / "result.json")
    with pytest.raises(
        ppax.ConfigError, match=r"a sweep: `ppax resume .*/sweep` continues it; .* write --overwrite \(ov"
    ):
        begin("sweep", path)
    (tmp_path / "result.json").rename(path / "result.json")
    with pytest.raises(ppax.ConfigError, match=r"already holds a sweep"):
        ppax.fit(*agent_and_env(), 32, run_dir=path, num_steps=8)
    assert names(path) == before
    with pytest.warns(UserWarning, match="held a sweep: it is now"):
        begin("sweep", path, overwrite=True)
    (aside,) = (one for one in tmp_path.iterdir() if one.name.startswith("sweep-until-"))
    assert names(aside) == names(path) == before
    assert ppax.resume_sweep(aside).best == aside / "best.toml"


def agent_and_env():
    env = ppax.make("CartPole-v1", 2)
    return ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1), env


def test_a_sweep_takes_the_place_of_a_run(tmp_path):
    ppax.fit(*agent_and_env(), 32, run_dir=tmp_path / "run", num_steps=8, log=ppax.Log(console=False))
    with pytest.raises(ppax.ConfigError, match="already holds a run"):
        begin("sweep", tmp_path / "run")
    with pytest.warns(UserWarning, match="held a run: it is now"):
        begin("sweep", tmp_path / "run", overwrite=True)
    assert not (tmp_path / "run" / "run.toml").exists()
    aside = next(one for one in tmp_path.iterdir() if one.name.startswith("run-until-"))
    assert checkpoint.list_checkpoints(aside / "checkpoints")
    assert "run.toml" in os.listdir(aside)


def test_overwrite_without_a_directory_is_refused():
    with pytest.raises(ppax.ConfigError, match="overwrite: a run without a named directory replaces none"):
        begin("sweep", None, overwrite=True)
