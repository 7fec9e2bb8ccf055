"""Run directories: links and hostile rows are refused, removal ends the run, other runs and changes are detected."""

import dataclasses
import json
import os
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli import main
from ppax.config import BestSettings, Log
from ppax.core.types import part
from ppax.envs import TimeLimit
from ppax.envs.builtin import CartPole
from ppax.networks import mlp
from ppax.networks.heads import CategoricalHead
from ppax.ppo.losses import KLPenalty
from ppax.run import checkpoint
from ppax.run.directory import RunDirectory
from ppax.run.provenance import git_commit, in_saved_precision, warn_of_other_objects
from ppax.run.restore import load_run, load_state
from ppax.run.saving import NotFinite, Saver

pytestmark = pytest.mark.usefixtures("cached_programs", "quick_programs", "shared_programs")

ENV = ppax.make("CartPole-v1", 2)
AGENT = ppax.PPO(mlp(ENV, (4,)), num_epochs=1)
ITERATION = 8  # env-steps
LOG = Log(every=1, checkpoint_seconds=0.0, console=False)
PROFILE = "# the user's shell start-up file\n"
COMMAND = "iteration; touch owned; #,env_steps\n"  # begins like the header of metrics.csv, and is shell code


def fit(path, iterations=4, **changes):
    return ppax.fit(AGENT, ENV, iterations * ITERATION, run_dir=path, num_steps=4, **{"log": LOG} | changes)


def stop_at(iteration):
    return lambda state, row: row["iteration"] >= iteration


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of 4 iterations that ended after the second."""
    path = tmp_path_factory.mktemp("stopped") / "run"
    fit(path, callbacks=[stop_at(2)], best=BestSettings("iteration"))
    return path


@pytest.fixture
def run(stopped, tmp_path):
    return Path(shutil.copytree(stopped, tmp_path / "run"))


# ---------------------------------------------------------------- links


def linked(name):
    """Function that plants a link at `name` to the user's start-up file."""

    def plant(run, home):
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(home / ".profile")

    return plant


def poisoned_table(run, home):
    (run / "metrics.csv").write_text(COMMAND)
    (run / "metrics.csv.tmp").symlink_to(home / ".profile")


def linked_folder(name):
    """Function that replaces the folder `name` by a link to that of another run of the user."""

    def plant(run, home):
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).symlink_to(home / "precious" / name, target_is_directory=True)

    return plant


FILES = (".owner", ".lock", "run.toml.tmp", "stopped.json.tmp", "stopped.json", "metrics.jsonl", "metrics.csv")
FILES += ("metrics.jsonl.tmp", "play.gif", "run.toml.new", "checkpoints/link", "deep/er/link")
TRAPS = {name: linked(name) for name in FILES} | {"metrics.csv.tmp": poisoned_table}
TRAPS |= {name: linked_folder(name) for name in ("checkpoints", "best", "tensorboard")}
DAILY = ("metrics.jsonl", ".lock", "checkpoints")


def contents(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# Every trap for one command and a file, a lock and a folder for the others; all pairs at night
PAIRS = [
    pytest.param(verb, trap, marks=() if verb == "resume" or trap in DAILY else pytest.mark.nightly)
    for verb in ("resume", "evaluate", "play", "train")
    for trap in TRAPS
]


@pytest.mark.parametrize(("verb", "trap"), PAIRS)
def test_a_run_directory_with_links_is_refused_with_their_names(run, stopped, tmp_path, trap, verb, capsys):
    """A shell start-up file and another run of the user, to which the links point, must not change."""
    home = tmp_path / "home"
    shutil.copytree(stopped, home / "precious")
    (home / "precious" / "tensorboard").mkdir()
    (home / ".profile").write_text(PROFILE)
    before = contents(home)
    for folder in ("deep/er", "checkpoints"):
        (run / folder).mkdir(parents=True, exist_ok=True)
    TRAPS[trap](run, home)
    inside = sorted(os.listdir(run))
    command = {"train": ["train", "CartPole-v1", "--total-steps", "1", "--run-dir", str(run)]}
    if verb == "train":
        (run / "run.toml").unlink()
        inside.remove("run.toml")
    assert main.main([*command.get(verb, [verb, str(run)]), "--no-cache"]) == 2
    assert repr(trap) in capsys.readouterr().err
    assert contents(home) == before
    assert sorted(os.listdir(run)) == inside  # nothing was written


def test_a_lock_that_is_a_hard_link_is_refused(run, tmp_path, capsys):
    (tmp_path / "thesis").write_text("four years")
    (run / ".lock").unlink(missing_ok=True)
    os.link(tmp_path / "thesis", run / ".lock")
    assert main.main(["resume", str(run), "--no-cache"]) == 2
    assert "'.lock'" in capsys.readouterr().err
    assert (tmp_path / "thesis").read_text() == "four years"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["metrics.jsonl", "metrics.csv", ".owner", "stopped.json"])
def test_a_pipe_in_a_run_directory_is_refused_without_waiting(run, name, capsys):
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(main.main(["resume", str(run), "--no-cache"])), daemon=True)
    thread.start()
    thread.join(20.0)
    assert codes == [2]
    assert repr(name) in capsys.readouterr().err


def test_a_link_to_a_run_directory_is_accepted(run, tmp_path):
    (tmp_path / "latest").symlink_to(run, target_is_directory=True)
    assert int(ppax.resume(tmp_path / "latest", console=False).state.iteration) == 4


def test_names_in_a_message_have_no_control_characters(run, capsys):
    (run / "\x1b[2J\nppax: all is well").symlink_to("/etc/passwd")
    assert main.main(["resume", str(run), "--no-cache"]) == 2
    assert "\x1b" not in (err := capsys.readouterr().err)
    assert err.count("\n") == 1


def test_temporary_files_of_a_killed_writer_are_removed(run):
    (run / ".tmp-0123456789abcdef").write_text("half a fi")
    with RunDirectory.open(run):
        assert not [name for name in os.listdir(run) if name.startswith(".tmp-")]


# ---------------------------------------------------------------- hostile rows


HOSTILE_ROWS = {
    "deep": "[" * 100_000,
    "deep row": '{"iteration": 1, "env_steps": ' + "[" * 100_000,
    "text for an iteration": '{"iteration": "1"}',
    "true for an iteration": '{"iteration": true}',
    "list for an iteration": '{"iteration": [1]}',
    "text for a number": '{"iteration": 1, "env_steps": "8", "seconds": "x", "valid_fraction": {}}',
    "number beyond floats": '{"iteration": 1, "valid_fraction": 1' + "0" * 4000 + ', "seconds": 1' + "0" * 4000 + "}",
    "no row": "[1]",
}


@pytest.mark.parametrize("kind", HOSTILE_ROWS)
def test_a_run_resumes_despite_hostile_rows(tmp_path, run, kind):
    """Stop conditions and the recorded seconds read these rows; the run skips them."""
    text = (run / "run.toml").read_text().replace('stop = "none"', "")
    (run / "run.toml").write_text('stop = "valid_fraction >= 2 or seconds >= 1e30"\n' + text)
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text(lines[0] + HOSTILE_ROWS[kind] + "\n" + lines[1] + HOSTILE_ROWS[kind] + "\n")
    assert int(ppax.resume(run, console=False).state.iteration) == 4
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if len(line) < 4000]
    assert [row["iteration"] for row in rows if isinstance(row, dict) and len(row) > 6] == [1, 2, 3, 4]


# ---------------------------------------------------------------- remains of another run


@pytest.mark.parametrize("kept", ["checkpoints", "best"])
def test_a_directory_with_checkpoints_but_no_run_file_is_refused(run, kept, capsys):
    """Left of a directory that was deleted during a run: its checkpoints would be taken for those of the new run."""
    for name in os.listdir(run):
        if name != kept:
            shutil.rmtree(run / name) if (run / name).is_dir() else (run / name).unlink()
    before = contents(run / kept)
    with pytest.raises(ppax.ConfigError, match=rf"{kept}.*remove"):
        fit(run)
    assert contents(run / kept) == before
    assert not (run / "run.toml").exists()
    shutil.rmtree(run / kept)
    assert int(fit(run).state.iteration) == 4


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "name",
    ["metrics.csv", "metrics.jsonl", "policy.json", "about.json", "stopped.json", "evaluation.json", "policy.zip"],
)
def test_files_of_the_user_in_a_directory_without_a_run_are_never_replaced(tmp_path, name, overwrite):
    path = tmp_path / "project"
    path.mkdir()
    (path / name).write_text('{"id": 1}')
    (path / "notes.txt").write_text("")  # of a name that no run has
    with pytest.raises(ppax.ConfigError, match=rf"no run file, but it holds {name}, which would be replaced.*/run$"):
        fit(path, overwrite=overwrite)
    assert {one.name for one in path.iterdir()} <= {name, "notes.txt", ".lock"}
    assert (path / name).read_text() == '{"id": 1}'


def test_a_start_that_was_killed_before_its_run_file_was_written_begins_again(run):
    for name in ("run.toml", "stopped.json"):
        (run / name).unlink()
    for name in ("checkpoints", "best"):
        shutil.rmtree(run / name, ignore_errors=True)
    assert int(fit(run).state.iteration) == 4


def test_an_empty_name_is_not_the_current_directory(tmp_path, monkeypatch, capsys):
    """As of a shell's variable that is not set."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ppax.ConfigError, match="run_dir = '': must be a path"):
        fit("")
    with pytest.raises(SystemExit):
        main.main(["train", "CartPole-v1", "--run-dir", ""])
    assert "--run-dir: '' is no path" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["removed", "replaced", "without its file"])
def test_a_run_ends_if_its_directory_is_removed_or_replaced(tmp_path, how):
    path = tmp_path / "run"

    def vanish(state, row):
        if row["iteration"] == 2:
            shutil.rmtree(path) if how != "without its file" else (path / "run.toml").unlink()
            if how == "replaced":
                fit(path, 1)

    with pytest.raises(FileNotFoundError, match="removed or replaced") as caught:
        fit(path, 8, callbacks=[vanish])
    assert isinstance(caught.value, OSError)  # exit code 5
    if how == "removed":
        assert not path.exists()  # and is not created again
    if how == "replaced":
        assert [int(p.name) for p in checkpoint.list_checkpoints(path / "checkpoints")] == [1]


def test_a_new_checkpoint_is_never_removed_in_favour_of_higher_iterations(tmp_path):
    """A run that skipped damaged checkpoints saves lower iterations than those."""
    state = jax.jit(lambda: ppax.start(AGENT, ENV, 4, jax.random.key(0)))()
    for iteration in (10, 20, 30, 5, 6):
        now = dataclasses.replace(state, iteration=jax.numpy.int32(iteration))
        assert checkpoint.save(tmp_path, now).is_dir()
    assert [int(p.name) for p in checkpoint.list_checkpoints(tmp_path)] == [5, 6, 10, 20, 30]


# ---------------------------------------------------------------- names


def test_unnamed_runs_of_one_second_get_different_directories(tmp_path, monkeypatch, capsys):
    """Also if another process creates the directory between the search for a free name and its creation."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "20260101-000000")
    command = ["train", "CartPole-v1", "--num-envs", "2", "--num-steps", "4", "--total-steps", "8", "--no-cache"]
    command += ["--agent.network.hidden", "4", "--agent.num-epochs", "1", "--eval.episodes", "1", "--no-log.console"]
    make, started = Path.mkdir, []

    def late(path, *arguments, **keywords):
        if path.name == "CartPole-v1-20260101-000000-seed0" and not started:
            started.append(True)
            make(path, parents=True)
        return make(path, *arguments, **keywords)

    monkeypatch.setattr(Path, "mkdir", late)
    assert main.main(command) == 0
    assert main.main(command) == 0
    names = [f"CartPole-v1-20260101-000000-seed0{end}" for end in ("", "-2", "-3")]
    assert sorted(os.listdir("runs")) == names
    assert [(Path("runs") / name / "run.toml").exists() for name in names] == [False, True, True]


# ---------------------------------------------------------------- records


def test_every_start_records_versions_hardware_and_commit(tmp_path, monkeypatch):
    """The commit is that of the repository of the working directory; also of a worktree, and from packed references."""
    commit, packed = "0123456789abcdef" * 2 + "01234567", "f" * 40
    git = tmp_path / "mine" / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs" / "heads" / "main").write_text(commit + "\n")
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{packed} refs/heads/old\n")
    (git / "worktrees" / "other").mkdir(parents=True)
    (git / "worktrees" / "other" / "HEAD").write_text("ref: refs/heads/old\n")
    (git / "worktrees" / "other" / "commondir").write_text("../..\n")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / ".git").write_text(f"gitdir: {git / 'worktrees' / 'other'}\n")
    (tmp_path / "mine" / "deeper").mkdir()
    path = tmp_path / "run"
    monkeypatch.chdir(tmp_path / "mine" / "deeper")
    fit(path, callbacks=[stop_at(2)])
    monkeypatch.chdir(tmp_path / "other")
    ppax.resume(path, console=False)
    about = json.loads((path / "about.json").read_text())
    assert [start["verb"] for start in about["starts"]] == ["fit", "resume"]
    assert [start["git_commit"] for start in about["starts"]] == [commit, packed]
    clone = Path(ppax.__file__).parents[2]
    assert {start["ppax_commit"] for start in about["starts"]} == {
        git_commit(clone) if (clone / ".git").exists() else None
    }
    start = about["starts"][0]
    assert start["packages"]["jax"] == jax.__version__
    assert start["packages"]["ppax"] == ppax.__version__
    assert start["packages"]["gymnasium"] == gymnasium.__version__  # of the environment libraries that are installed
    assert None not in start["packages"].values()
    assert (start["platform"], start["local_devices"], start["devices"]) == ("cpu", 2, 1)
    assert start["cores"] >= 1
    assert start["device"]
    manifest = checkpoint.read_manifest(checkpoint.list_checkpoints(path / "checkpoints")[-1])
    assert manifest["origin"]["run"] == about["id"]


@pytest.mark.parametrize("head", ["nonsense", "ref: refs/heads/none", "ref: ../../etc/passwd", ""])
def test_a_repository_without_a_commit_has_none(tmp_path, head):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text(head)
    assert git_commit(tmp_path) is None


def test_the_final_evaluation_is_written_to_the_directory(tmp_path, capsys):
    path = tmp_path / "run"
    fit(path, callbacks=[stop_at(2)])
    assert main.main(["resume", str(path), "--no-cache", "--json"]) == 0
    assert json.loads((path / "evaluation.json").read_text()) == json.loads(capsys.readouterr().out)


# ---------------------------------------------------------------- another configuration, other devices


def edit(run, old, new):
    text = (run / "run.toml").read_text()
    assert old in text
    (run / "run.toml").write_text(text.replace(old, new))


def test_resume_warns_of_a_number_that_was_changed_in_the_run_file(run):
    edit(run, "gamma = 0.99", "gamma = 0.9")
    with pytest.warns(UserWarning, match=r"run\.toml was changed .*agent\.gamma was 0\.99 and is 0\.9$"):
        ppax.resume(run, console=False)


def with_head(agent, head):
    return dataclasses.replace(agent, network=dataclasses.replace(agent.network, head=head))


@part
class MyHead(CategoricalHead):
    """Head of another class with the same parameters."""


def passed(run, agent=None, env=None):
    """Agent, environment and settings as `resume` has them: the agent in the precision that the run has recorded."""
    agent, env, settings = load_run(run, agent, env)
    return in_saved_precision(run, agent), env, settings


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"agent": dataclasses.replace(AGENT, learning_rate=2e-3)}, "agent.learning_rate was 0.0003 and is 0.002"),
        (
            {"agent": dataclasses.replace(AGENT, loss=KLPenalty(kl_coef=3.0), num_epochs=2)},
            "agent.loss.part was 'clipped' and is 'kl_penalty', agent.num_epochs was 1 and is 2",
        ),
        ({"agent": with_head(AGENT, MyHead(2))}, "agent.network.head (MyHead) is not that of the run file"),
        ({"env": ppax.make("CartPole-v1", 2, action_repeat=3)}, "action_repeat was 1 and is 3"),
        ({"env": ppax.make("CartPole-v1", 2, env_params={"gravity": 1.0})}, "env_params.gravity was None and is 1.0"),
        (
            {"env": dataclasses.replace(ENV, env=TimeLimit(CartPole(), 99))},
            "env.env.max_steps is not that of the run file",
        ),
    ],
)
def test_resume_warns_of_another_agent_or_environment_than_the_recorded_one(run, given, text):
    with pytest.warns(UserWarning, match=rf"passed to resume .* those recorded in .*run\.toml: {re.escape(text)}; "):
        warn_of_other_objects(run, *passed(run, **given))


def test_resume_warns_of_another_learning_rate_once_and_trains_with_it(run):
    given = dataclasses.replace(AGENT, learning_rate=2e-3)
    with pytest.warns(UserWarning, match=r"agent\.learning_rate was 0\.0003 and is 0\.002") as seen:
        resumed = ppax.resume(run, given, console=False)
    assert len(seen) == 1
    assert resumed.agent.learning_rate == 2e-3


def test_the_same_agent_and_environment_are_resumed_without_a_warning(run):
    """Warnings are errors here; float32 numbers equal those of the file."""
    for agent in (AGENT, dataclasses.replace(AGENT, learning_rate=np.float32(3e-4), gamma=jnp.float32(0.99))):
        warn_of_other_objects(run, *passed(run, agent, ENV))


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1", "styles/brax", "styles/rl8", "styles/cleanrl"])
def test_what_a_run_file_builds_is_what_it_records(name, tmp_path):
    (tmp_path / "run.toml").write_text(config.to_toml(config.resolve(config.find(name))))
    warn_of_other_objects(tmp_path, *config.build(config.find(name)))


def test_total_steps_and_logs_may_be_changed_in_the_run_file(run):
    edit(run, "total_steps = 32", "total_steps = 48")
    edit(run, "tensorboard = false", "tensorboard = true")
    assert int(ppax.resume(run, console=False).state.iteration) == 6


def test_a_checkpoint_of_another_run_is_skipped(run, tmp_path):
    fit(tmp_path / "other", 9)
    newest = checkpoint.list_checkpoints(tmp_path / "other" / "checkpoints")[-1]
    shutil.copytree(newest, run / "checkpoints" / newest.name)
    with pytest.warns(UserWarning, match=r"skipped .*0000000009 is of another run"):
        assert int(ppax.resume(run, console=False).state.iteration) == 4


WIDE = ppax.make("CartPole-v1", 32)
SPLIT = ppax.PPO(mlp(WIDE, (4,)), num_epochs=1, minibatch=ppax.minibatches.Shuffle(2))  # 1024 rows: 512 a device


def fit_split(path, **changes):
    return ppax.fit(SPLIT, WIDE, 4 * 2048, run_dir=path, num_steps=64, log=LOG, **changes)


def same_weights(one, other):
    pairs = zip(*(jax.tree.leaves(jax.device_get(run.state.learner.params)) for run in (one, other)), strict=True)
    return all((a == b).all() for a, b in pairs)


def test_resume_uses_the_number_of_devices_of_the_checkpoint(tmp_path, monkeypatch):
    """Started on one device and resumed where there are two: bit-identical to the run on one."""
    with monkeypatch.context() as patch:
        patch.setattr(jax, "local_devices", lambda *_, **__: jax.devices()[:1])
        whole = fit_split(tmp_path / "whole")
        fit_split(tmp_path / "run", callbacks=[stop_at(2)])
    other = fit_split(tmp_path / "other")
    resumed = ppax.resume(tmp_path / "run", console=False)
    assert same_weights(whole, resumed)
    assert not same_weights(whole, other), "the number of devices changes no bit: the test shows nothing"


def test_resume_warns_if_it_has_fewer_devices_than_the_checkpoint(tmp_path, monkeypatch):
    fit_split(tmp_path / "run", callbacks=[stop_at(2)])
    monkeypatch.setattr(jax, "local_devices", lambda *_, **__: jax.devices()[:1])
    with pytest.warns(UserWarning, match="saved with devices = 2, here it is 1; .*bits"):
        assert int(ppax.resume(tmp_path / "run", console=False).state.iteration) == 4


# ---------------------------------------------------------------- states that are not finite


def test_a_learner_that_is_not_finite_is_not_saved(tmp_path, monkeypatch):
    """An observation of 1e30 leaves the clipped gradient finite and makes the running statistics infinite."""
    agent = ppax.PPO(AGENT.network, num_epochs=1, normalize_obs=True)
    step = ppax.envs.builtin.CartPole.step

    def wild(self, state, action, key):
        out = step(self, state, action, key)
        return out._replace(obs=jax.numpy.where(jax.random.uniform(key) < 0.02, 1e30, out.obs))

    monkeypatch.setattr(ppax.envs.builtin.CartPole, "step", wild)
    env = ppax.envs.VectorEnv(ppax.envs.TimeLimit(ppax.envs.builtin.CartPole(), 500), 2, "CartPole-v1")
    with pytest.raises(ppax.NumericalError, match=r"^iteration \d+ is not finite") as caught:
        ppax.fit(agent, env, 800, run_dir=tmp_path / "run", num_steps=4, log=LOG)
    good = checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints")
    assert good, "no checkpoint was saved before the fault: the test shows nothing"
    assert str(good[-1]) in str(caught.value)
    assert json.loads((tmp_path / "run" / "stopped.json").read_text())["kind"] == "fault"


def test_saver_refuses_a_state_that_is_not_finite_and_names_no_checkpoint(tmp_path):
    directory = SimpleNamespace(path=tmp_path, checkpoints=tmp_path / "checkpoints", require_unchanged=lambda: None)
    saver = Saver(directory, SimpleNamespace(save=lambda *_: None), Log(checkpoint_seconds=0.0), None)
    state = ppax.start(AGENT, ENV, 4, jax.random.key(0))
    learner = state.learner._replace(params=jax.tree.map(lambda x: x + jax.numpy.nan, state.learner.params))
    with pytest.raises(NotFinite, match="params"):
        saver.save_final(dataclasses.replace(state, learner=learner))
    assert checkpoint.list_checkpoints(directory.checkpoints) == []
    assert saver.newest_checkpoint_note() == "; no checkpoint had been saved before"


def test_errors_name_only_checkpoints_that_exist(tmp_path):
    wild = ppax.PPO(AGENT.network, num_epochs=1, learning_rate=1e30)
    with pytest.raises(ppax.NumericalError) as caught:
        ppax.fit(wild, ENV, 400, run_dir=tmp_path / "run", num_steps=4, log=Log(every=50, console=False))
    there = checkpoint.list_checkpoints(tmp_path / "run" / "checkpoints")
    assert [path.name for path in there] == ["0000000000"], "the state before the iteration that was not finite"
    assert str(there[0]) in str(caught.value)
    with pytest.raises(ppax.NumericalError) as caught:
        ppax.fit(wild, ENV, 400, num_steps=4, log=Log(every=50, console=False))
    assert "checkpoint" not in str(caught.value)


@pytest.mark.parametrize("value", [jax.numpy.inf, jax.numpy.nan])
def test_checkpoints_that_are_not_finite_are_skipped(run, value):
    """Checkpoints as earlier versions saved them."""
    agent, env, plan = load_run(run)
    state = load_state(run, agent, env, plan)
    poisoned = state.learner._replace(params=jax.tree.map(lambda x: x + value, state.learner.params))
    for iteration in (3, 4):
        now = dataclasses.replace(state, learner=poisoned, iteration=jax.numpy.int32(iteration))
        checkpoint.save(run / "checkpoints", now)
    with pytest.warns(UserWarning, match=r"skipped .*is not finite: learner\.params") as caught:
        resumed = ppax.resume(run, console=False)
    assert len([x for x in caught if "not finite" in str(x.message)]) == 2
    assert [row["iteration"] for row in resumed.history] == [3, 4]
    assert checkpoint.non_finite_leaves(resumed.state) == []


def test_infinities_in_environment_and_optimiser_states_are_valid():
    state = jax.jit(lambda: ppax.start(AGENT, ENV, 4, jax.random.key(0)))()
    wild = jax.tree.map(lambda x: x + jax.numpy.inf if x.dtype == jax.numpy.float32 else x, state.learner.opt_state)
    state = dataclasses.replace(state, learner=state.learner._replace(opt_state=wild))
    returns = state.actor.episode_return + jax.numpy.nan
    state = dataclasses.replace(state, actor=state.actor._replace(episode_return=returns))
    assert checkpoint.non_finite_leaves(state) == []
    wild = jax.tree.map(lambda x: x * jax.numpy.nan if x.dtype == jax.numpy.float32 else x, state.learner.opt_state)
    assert checkpoint.non_finite_leaves(dataclasses.replace(state, learner=state.learner._replace(opt_state=wild)))
