"""Directories of starts that trained nothing take the same command again; `overwrite` moves a trained run aside."""

import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import gymnasium
import pytest

import ppax
from ppax.cli import main
from ppax.config import BestSettings, Log
from ppax.loggers import last_row
from ppax.run import checkpoint, fit
from ppax.run.directory import RunDirectory
from ppax.training import backends

pytestmark = pytest.mark.usefixtures("cached_programs", "quick_programs", "shared_programs")

ENV = ppax.make("CartPole-v1", 2)
AGENT = ppax.PPO(ppax.networks.mlp(ENV, (4,)), num_epochs=1)
ITERATION = 8  # env-steps
LOG = Log(every=1, checkpoint_seconds=0.0, console=False)
COMMAND = ["train", "CartPole-v1", "--num-envs", "2", "--num-steps", "4", "--total-steps", "16"]
COMMAND += ["--agent.network.hidden", "4", "--agent.num-epochs", "1", "--eval.episodes", "1", "--no-log.console"]


def train(path, iterations=2, **changes):
    return ppax.fit(AGENT, ENV, iterations * ITERATION, run_dir=path, num_steps=4, **{"log": LOG} | changes)


def contents(folder):
    """Bytes of all files but the lock, by path."""
    files = (p for p in sorted(folder.rglob("*")) if p.is_file() and p.name not in (".lock", ".owner"))
    return {str(p.relative_to(folder)): p.read_bytes() for p in files}


def asides(path):
    return [one for one in path.parent.iterdir() if one.name.startswith(f"{path.name}-until-")]


@pytest.fixture
def failing(monkeypatch):
    """The program does not compile, until the function that this returns is called."""

    def fail(*_):
        raise RuntimeError("the compiler has failed")

    monkeypatch.setattr(backends, "compile", fail)
    return monkeypatch.undo


# ---------------------------------------------------------------- a start that trained nothing


def test_after_a_failed_compilation_the_same_call_works_in_the_same_directory(tmp_path, failing):
    (tmp_path / "notes.md").write_text("my own")
    with pytest.raises(RuntimeError, match="compiler"):
        train(tmp_path)
    assert (tmp_path / "run.toml").exists()
    failing()
    assert int(train(tmp_path).state.iteration) == 2
    assert (tmp_path / "notes.md").read_text() == "my own"
    assert asides(tmp_path) == []


def test_another_command_may_follow_a_start_that_trained_nothing(tmp_path, failing):
    """As fewer environments, where memory did not suffice: nothing of the first start stays, as its columns."""
    with pytest.raises(RuntimeError, match="compiler"):
        train(tmp_path, log=Log(every=1, console=False), best=BestSettings("episode_return"))
    (tmp_path / "metrics.csv").write_text("iteration,env_steps,a column of the first start\n0,0,1\n")
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 0, "env_steps": 0}\n')
    failing()
    assert train(tmp_path, 3).state.iteration == 3
    assert "a column" not in (tmp_path / "metrics.csv").read_text()
    assert ppax.load(tmp_path).spec is not None


def test_the_initial_weights_of_a_warm_start_are_no_training(tmp_path, failing):
    """They are saved before the first iteration, and are of another run than the next start in the directory."""
    failing()
    first = train(tmp_path / "first")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fit.RunLoop, "compile", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            train(tmp_path / "second", init_from=first)
    assert [p.name for p in checkpoint.list_checkpoints(tmp_path / "second" / "checkpoints")] == ["0" * 10]
    assert int(train(tmp_path / "second").state.iteration) == 2
    assert [int(p.name) for p in checkpoint.list_checkpoints(tmp_path / "second" / "checkpoints")] == [1, 2]


class Broken(gymnasium.Env):
    """Environment whose third reset fails: after the checks, before the first iteration is done."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    works, resets = False, 0

    def reset(self, *, seed=None, options=None):
        type(self).resets += 1
        if not self.works and type(self).resets > 2:
            raise OSError("no simulator answers")
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, False, False, {}


def test_after_an_environment_that_failed_at_its_reset_the_same_call_works(tmp_path, monkeypatch):
    def call():
        env = ppax.envs.host(lambda: Broken(), 2)
        agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
        return ppax.fit(agent, env, 16, run_dir=tmp_path / "run", num_steps=4, log=LOG)

    monkeypatch.setattr(Broken, "resets", 0)
    with pytest.raises(ppax.EnvError, match="no simulator answers"):
        call()
    assert (tmp_path / "run" / "run.toml").exists()
    monkeypatch.setattr(Broken, "works", True)
    assert int(call().state.iteration) == 2


def started(run_dir, until, *arguments):
    """A real process of the command, as soon as `until` is true."""
    command = [sys.executable, "-m", "ppax", *COMMAND, "--run-dir", str(run_dir), *arguments]
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)  # also if pytest runs in the background
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    signal.signal(signal.SIGINT, earlier)
    end = time.monotonic() + 60
    while not until() and process.poll() is None and time.monotonic() < end:
        time.sleep(0.005)
    return process


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize("signals", [[signal.SIGKILL], [signal.SIGINT, signal.SIGINT]])
def test_after_a_kill_while_it_compiles_the_same_command_works(signals, tmp_path):
    """`--no-cache` compiles for seconds; the run file is written before."""
    run = tmp_path / "run"
    process = started(run, (run / "run.toml").exists, "--no-cache")
    for number in signals:
        process.send_signal(number)
        time.sleep(0.2)
    process.communicate(timeout=60)
    assert process.returncode in (-signal.SIGKILL, 75)
    assert not any(int(p.name) for p in checkpoint.list_checkpoints(run / "checkpoints"))
    assert main.main([*COMMAND, "--run-dir", str(run)]) == 0
    assert last_row(run / "metrics.jsonl")["iteration"] == 2


def test_rows_without_a_checkpoint_are_moved_aside_and_not_lost(tmp_path):
    """Killed after an hour of training without a checkpoint: the next start begins anew, and the rows stay."""
    path = tmp_path / "run"
    train(path)
    for name in ("checkpoints", "stopped.json"):
        (path / name).rename(tmp_path / name)
    before = contents(path)
    with pytest.warns(UserWarning, match=r"held a run: it is now .*run-until-\d{8}-\d{6}"):
        train(path)
    (aside,) = asides(path)
    assert contents(aside) == before


def test_a_run_file_that_ppax_did_not_write_is_never_replaced(tmp_path, capsys):
    (tmp_path / "run.toml").write_text('env = "CartPole-v1"  # my notes on this choice\n')
    for more in ([], ["--overwrite"]):
        assert main.main([*COMMAND, "--run-dir", str(tmp_path), *more]) == 2
        assert "run.toml that is not of ppax's own making" in capsys.readouterr().err
    assert "my notes" in (tmp_path / "run.toml").read_text()


def test_a_finished_run_without_its_checkpoints_is_not_begun_again(tmp_path):
    """Removed to save space: metrics and evaluation are its results."""
    train(tmp_path / "run")
    (tmp_path / "run" / "checkpoints").rename(tmp_path / "elsewhere")
    with pytest.raises(ppax.ConfigError, match="already holds a run"):
        train(tmp_path / "run")


# ---------------------------------------------------------------- overwrite


@pytest.fixture(scope="module")
def _trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("trained") / "run"
    train(path)
    return path


@pytest.fixture
def run(_trained, tmp_path):
    return Path(shutil.copytree(_trained, tmp_path / "run"))


def test_a_trained_run_is_refused_with_what_to_write(run):
    before = contents(run)
    ended = (
        r"a run, which is finished: `ppax report .*/run` shows it, `ppax resume .*/run --total-steps N` makes it longer"
    )
    with pytest.raises(ppax.ConfigError, match=rf"{ended}; choose another directory, or write --overwrite \(ov"):
        train(run)
    assert contents(run) == before
    (run / "stopped.json").write_text('{"kind": "stopped", "iteration": 2}')
    with pytest.raises(ppax.ConfigError, match=r"which is finished: `ppax report .*/run` shows it; choose"):
        train(run)
    (run / "stopped.json").write_text('{"kind": "signal", "iteration": 2}')
    with pytest.raises(
        ppax.ConfigError, match=r"a run: `ppax resume .*/run` continues it; choose another directory, or"
    ):
        train(run)


def test_a_resume_says_where_it_begins(run, capsys):
    assert main.main(["resume", str(run), "--total-steps", "40"]) == 0
    said = capsys.readouterr().out
    assert "continues with iteration 3 of 5: 16 of 40 steps are done\n" in said
    assert main.main(["resume", str(run)]) == 0
    said = capsys.readouterr().out
    assert "continues" not in said
    assert "nothing left to train" in said


def test_overwrite_moves_a_run_aside_complete_and_says_where(run, monkeypatch, capsys):
    before = contents(run)
    monkeypatch.chdir(run.parent)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main.main([*COMMAND, "--run-dir", "run", "--overwrite", "--seed", "5"]) == 0
    (aside,) = asides(run)
    assert f"warning: run held a run: it is now {aside.name}, complete and unchanged" in capsys.readouterr().err
    assert contents(aside) == before
    assert not (aside / ".owner").exists()
    assert "seed = 5" in (run / "run.toml").read_text()
    assert int(ppax.resume(aside, console=False).state.iteration) == 2  # it is a run as before


def test_a_run_of_build_overwrites(run):
    plan = ppax.build("CartPole-v1", num_envs=2, num_steps=4, total_steps=8, log={"console": False})
    with pytest.raises(ppax.ConfigError, match="already holds a run"):
        plan.fit(run)
    with pytest.warns(UserWarning, match="it is now"):
        plan.fit(run, overwrite=True)


def test_two_runs_are_moved_aside_within_a_second(run, monkeypatch):
    monkeypatch.setattr("time.strftime", lambda *_: "20260101-000000")
    for _ in range(2):
        with pytest.warns(UserWarning, match="it is now"):
            train(run, overwrite=True)
    assert sorted(one.name for one in asides(run)) == [f"run-until-20260101-000000{end}" for end in ("", "-2")]


def test_overwrite_in_a_directory_without_a_run_moves_nothing(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "notes.md").write_text("my own")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(tmp_path / "run", overwrite=True)
        train(tmp_path / "new", overwrite=True)
    assert (tmp_path / "run" / "notes.md").exists()
    assert asides(tmp_path / "run") == []


def linked(run, patch):
    (run.parent / "link").symlink_to(run, target_is_directory=True)
    return run.parent / "link"


def current(run, patch):
    (run / "deeper").mkdir()
    patch.chdir(run / "deeper")
    return run


def of_another_user(run, patch):
    patch.setattr(os, "geteuid", lambda: run.stat().st_uid + 1)
    return run


def of_many_runs(run, patch):
    train(run / "inner")
    return run


def in_use(run, patch):
    opened = RunDirectory.open(run)
    patch.setattr(opened, "close", opened.close)  # keeps the object, and with it the lock, until the end of the test
    return run


def with_links(run, patch):
    (run / "link").symlink_to("/etc/hostname")
    return run


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (linked, r"it is a link to \S+/run: name that directory"),
        (current, "the current directory is inside of it: call ppax from another directory"),
        (of_another_user, "it belongs to another user"),
        (of_many_runs, "it holds other runs as well: 'inner'"),
        (in_use, "is in use by process"),
        (with_links, "contains links"),
    ],
)
def test_directories_that_must_stay_are_not_moved(case, text, run, monkeypatch):
    path = case(run, monkeypatch)
    before = contents(run)
    with pytest.raises(ppax.ConfigError, match=text):
        train(path, overwrite=True)
    monkeypatch.undo()
    assert contents(run) == before
    assert asides(run) == asides(path) == []


def test_nothing_is_moved_where_the_new_run_cannot_start(run):
    before = contents(run)
    with pytest.raises(ppax.ConfigError, match="learning_rate"):
        ppax.fit(ppax.PPO(AGENT.network, learning_rate=-1.0), ENV, 8, run_dir=run, num_steps=4, overwrite=True)
    assert contents(run) == before


def test_overwrite_without_a_directory_is_refused(capsys):
    assert main.main([*COMMAND, "--overwrite"]) == 2
    assert "overwrite: a run without a named directory replaces none" in capsys.readouterr().err
