"""Runs in a process that changes its directory, and in directories with unusual names."""

import errno
import os
import shlex
import tempfile
import warnings

import pytest

import ppax
from ppax.cli.main import main
from ppax.networks import mlp
from ppax.storage.paths import absolute, quoted, relative


def test_a_run_with_a_relative_directory_survives_a_change_of_directory(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    env = ppax.make("CartPole-v1", 4)

    def leave(state, row):
        monkeypatch.chdir(tmp_path / "elsewhere")

    agent = ppax.PPO(mlp(env, hidden=(4,)))
    run = ppax.fit(
        agent, env, 128, num_steps=8, run_dir="mine", log=ppax.Log(every=1, console=False), callbacks=[leave]
    )
    assert run.run_dir == tmp_path / "mine"
    assert (tmp_path / "mine/checkpoints").is_dir()
    assert not (tmp_path / "elsewhere/mine").exists()
    again = ppax.resume(tmp_path / "mine", agent=agent, env=env, console=False)
    assert int(again.state.iteration) == 4


@pytest.mark.skipif(os.name == "nt", reason="Windows removes no current directory")
def test_a_run_with_an_absolute_directory_needs_no_current_directory(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    env = ppax.make("CartPole-v1", 4)
    agent, log = ppax.PPO(mlp(env, hidden=(4,))), ppax.Log(console=False)
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for overwrite in (False, True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the first run is moved aside
            run = ppax.fit(agent, env, 64, num_steps=8, run_dir=tmp_path / "mine", log=log, overwrite=overwrite)
        assert int(run.state.iteration) == 2


def test_commands_quote_the_names_of_directories(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    options = ["--num-envs", "4", "--num-steps", "8", "--total-steps", "64", "--eval.episodes", "2"]
    assert main(["train", "CartPole-v1", *options, "--run-dir", "my runs/rün"]) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  ppax ")]
    assert "my runs/rün" in shlex.split(commands[0])
    assert "my runs/rün/run.toml" in shlex.split(commands[-1])


def test_paths_of_messages_are_relative_where_they_can_be(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert absolute("a b") == tmp_path / "a b"
    assert absolute("~/x") == tmp_path / "home/x"
    assert quoted(tmp_path / "a b") == "'a b'"
    assert relative(tmp_path.parent / "c") == tmp_path.parent / "c"


@pytest.mark.parametrize("given", ["mine", "~/mine"])
def test_a_sweep_has_absolute_directories(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    base = {"env": "CartPole-v1", "num_envs": 4, "num_steps": 8, "total_steps": 64}
    result = ppax.sweep_runs(base, {"agent.learning_rate": [1e-3, 1e-4]}, run_dir=given)
    assert result.run_dir == tmp_path / "mine"
    assert all(one.run_dir.is_absolute() for one in result.members)


def test_a_run_file_in_place_of_its_directory_is_refused_with_the_directory(tmp_path):
    (tmp_path / "run.toml").write_text("")
    with pytest.raises(ppax.ConfigError, match=f"run.toml is a run file, not a run directory; .*: {tmp_path}"):
        ppax.resume(tmp_path / "run.toml")


def test_a_directory_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    def full(dir):
        raise OSError(errno.ENOSPC, "No space left on device", f"{dir}/tmp123")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    env = ppax.make("CartPole-v1", 4)
    with pytest.raises(OSError, match=f"No space left on device: '{tmp_path}/mine'"):
        ppax.fit(ppax.PPO(mlp(env, hidden=(4,))), env, 128, num_steps=8, run_dir=tmp_path / "mine")
