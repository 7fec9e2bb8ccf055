"""Record of a sweep: nothing of another sweep is adopted, and an edit of its files is no silent change."""

import json
import sys
from pathlib import Path

import pytest

import ppax
from ppax import config
from ppax.cli import main
from ppax.core import imports
from ppax.core.types import ConfigError
from ppax.run.directory import OF_SWEEP, RunDirectory
from ppax.sweeps import directory, member, packing, plan
from ppax.sweeps.directory import Recorded
from ppax.sweeps.training import Session, SweepStopped, train_alone

RUN = config.resolve(
    {
        "env": "CartPole-v1",
        "num_envs": 4,
        "num_steps": 16,
        "total_steps": 640,
        "agent": {"num_epochs": 1, "compute_dtype": "float32", "network": {"hidden": [8]}},
        "log": {"console": False},
    }
)
VALUES = {"agent.learning_rate": [1e-2, 1e-3]}


def recorded(search=None, values=VALUES):
    made = plan.read(values | ({} if search is None else {"search": search}))
    return Recorded(RUN, made, plan.members_of(RUN, made), ())


@pytest.mark.parametrize(
    "name", ["members/000/run.toml", "search.jsonl", "study.db", "sweep.jsonl", "result.json", "best.toml"]
)
def test_a_new_sweep_refuses_what_another_has_left(name, tmp_path):
    """Results of another sweep's members, its decisions or trials would be taken for those of the new one."""
    left = tmp_path / name
    left.parent.mkdir(parents=True, exist_ok=True)
    left.write_text("{}")
    with pytest.raises(ConfigError, match=rf"it holds {name.partition('/')[0]} of another run.* remove"):
        RunDirectory.vacant(tmp_path, False, OF_SWEEP)
    assert not (tmp_path / "sweep.toml").exists()


@pytest.mark.parametrize("name", ["sweep.json", "about.json"])
def test_a_new_sweep_replaces_no_files_of_the_user(name, tmp_path):
    (tmp_path / name).write_text('{"name": "mine"}')
    with pytest.raises(ConfigError, match=rf"it holds {name}, which would be replaced"):
        RunDirectory.vacant(tmp_path, False, OF_SWEEP)
    assert (tmp_path / name).read_text() == '{"name": "mine"}'


def test_a_sweep_that_was_killed_before_its_file_was_written_begins_again(tmp_path):
    directory.write_programs(tmp_path, recorded())
    directory.create_sweep(tmp_path, recorded())
    assert directory.read(tmp_path).members == recorded().members
    (tmp_path / "sweep.toml").unlink()
    with RunDirectory.vacant(tmp_path, False, OF_SWEEP):
        directory.create_sweep(tmp_path, recorded())


def test_a_stopped_sweep_names_the_trust_that_its_parts_and_its_search_need(tmp_path, monkeypatch):
    """Members differ in a part by import path; the class of the search has one, too."""
    (tmp_path / "own_ones.py").write_text(
        "from ppax.losses import ClippedSurrogate\nfrom ppax.core.types import part\nfrom ppax.sweeps import Halving\n"
        "@part\nclass Mine(ClippedSurrogate): ...\n@part\nclass Half(Halving): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(Session, "train_stages", lambda *_: (_ for _ in ()).throw(SweepStopped))
    values = {"agent.loss.part": ["clipped", "own_ones:Mine"]}
    line = f"ppax resume {tmp_path}/it"
    try:
        with imports.trusting(["own_ones"]), pytest.raises(ppax.Interrupted) as stopped:
            ppax.sweep_runs(RUN, values, run_dir=tmp_path / "it")
        assert str(stopped.value) == f"stopped; resume with: {line} --trust own_ones"
        with imports.trusting(["own_ones"]):
            assert directory.sweep_trust_flags(recorded({"part": "own_ones:Half"})) == " --trust own_ones"
        study = recorded({"part": "optuna", "storage": ""})
        assert directory.sweep_trust_flags(study) == ""
    finally:
        sys.modules.pop("own_ones", None)


def edited(path, old, new):
    text = (path / "sweep.toml").read_text()
    assert text.count(old) == 1
    (path / "sweep.toml").write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("search", "old", "new", "words"),
    [
        (None, "gamma = 0.99", "gamma = 0.5", "agent.gamma was 0.99 and is 0.5"),
        (None, "total_steps = 640", "total_steps = 6400", "total_steps was 640 and is 6400"),
        (None, "episodes = 128", "episodes = 4", "eval.episodes was 128 and is 4"),
        (None, "seeds = 1", "seeds = 2", "sweep.seeds was 1 and is 2"),
        (None, "0.001,", "0.002,", r"sweep.agent.learning_rate was \[0.01, 0.001\] and is \[0.01, 0.002\]"),
        (None, "[sweep]", '[search]\npart = "halving"\n[sweep]', "search.part was None and is 'halving'"),
        ({"part": "pbt", "interval": 5}, "interval = 5", "interval = 4", "search.interval was 5 and is 4"),
    ],
)
def test_an_edited_sweep_file_is_refused(search, old, new, words, tmp_path):
    """Before this, members went on with other numbers than their own run files and manifests have."""
    directory.create_sweep(tmp_path, recorded(search))
    edited(tmp_path, old, new)
    with pytest.raises(
        ConfigError, match=rf"sweep.toml was changed since the sweep began: {words}; .* write the former"
    ):
        directory.read(tmp_path)


@pytest.mark.parametrize(
    ("search", "old", "new"),
    [
        (None, "keep = 3", "keep = 1"),
        (None, "tensorboard = false", "tensorboard = true"),
        ({"part": "optuna", "trials": 4}, "trials = 4", "trials = 8"),
    ],
)
def test_options_that_change_no_result_may_be_edited(search, old, new, tmp_path):
    directory.create_sweep(tmp_path, recorded(search))
    edited(tmp_path, old, new)
    directory.write_programs(tmp_path, directory.read(tmp_path))  # what the sweep began with stays recorded
    edited(tmp_path, "gamma = 0.99", "gamma = 0.5")
    with pytest.raises(ConfigError, match=r"agent\.gamma was 0\.99"):
        directory.read(tmp_path)


def test_a_member_with_another_run_file_is_refused(tmp_path):
    """A run file that was edited, or one that was resumed alone with another length, is not the sweep's member."""
    (pack,) = packing.packed(recorded().members)
    task, run_dir = pack.tasks[0], tmp_path / "000"
    run_dir.mkdir()
    own = packing.task_config(task)
    for table, words in (
        (own, None),
        (own | {"total_steps": 1280}, "total_steps was 1280 and is 640"),
        (own | {"agent": own["agent"] | {"gamma": 0.5}}, "agent.gamma was 0.5 and is 0.99"),
        (own | {"agent": own["agent"] | {"learning_rate": 0.5}}, "agent.learning_rate was 0.5 and is 0.01"),
    ):
        (run_dir / "run.toml").write_text(config.to_toml(table))
        if words is None:
            member.require_recorded(task, run_dir)
        else:
            with pytest.raises(ConfigError, match=rf"000/run.toml was changed since the sweep began: {words}"):
                member.require_recorded(task, run_dir)
        if words is None or "learning_rate" in words:  # a population changes it
            member.require_recorded(task, run_dir, ["agent.learning_rate"])
    (run_dir / "run.toml").write_text(config.to_toml(own | {"total_steps": 1280}))
    (run_dir / "stopped.json").write_text(json.dumps({"kind": "done"}))
    (run_dir / "evaluation.json").write_text(json.dumps({"mean_return": 1.0}))
    member.require_recorded(task, run_dir)  # nothing is left to do for it


def test_a_member_on_the_host_with_another_run_file_is_refused(tmp_path):
    base = {"env": "gymnasium/CartPole-v1", "num_envs": 2, "num_steps": 4, "total_steps": 16}
    (pack,) = packing.packed(plan.members_of(config.resolve(base), plan.read({"agent.gamma": [0.9]})))
    own = packing.task_config(pack.tasks[0])
    (tmp_path / "run.toml").write_text(config.to_toml(own | {"total_steps": 32}))
    with pytest.raises(ConfigError, match="total_steps was 32 and is 16"):
        train_alone(pack.tasks[0], tmp_path, None)


def test_a_member_on_the_host_that_has_begun_takes_edited_options_of_its_records(tmp_path):
    base = {"env": "gymnasium/CartPole-v1", "num_envs": 2, "num_steps": 4, "total_steps": 32, "eval": {"episodes": 1}}
    base["agent"] = {"network": {"hidden": [4]}, "minibatch": {"num_minibatches": 1}, "num_epochs": 1}
    path = tmp_path / "sweep"
    ppax.sweep_runs(base | {"log": {"console": False, "checkpoint_every": 4}}, {"agent.gamma": [0.9]}, run_dir=path)
    own = path / "members/000"
    (own / "evaluation.json").unlink()  # as if it had been stopped before its evaluation
    edited = (path / "sweep.toml").read_text().replace("checkpoint_every = 4", "checkpoint_every = 2")
    (path / "sweep.toml").write_text(edited)
    ppax.resume_sweep(path)
    assert config.read(own / "run.toml")["log"]["checkpoint_every"] == 2


@pytest.mark.parametrize("command", ["sweep", "train", "evaluate", "play", "doctor"])
def test_commands_for_runs_say_what_to_write_for_the_directory_of_a_sweep(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sweep.toml").write_text('env = "CartPole-v1"\n')
    assert main.main([command, "mine"]) == 2
    assert capsys.readouterr().err == (
        f"ppax: mine is the directory of a sweep, whose runs are in {Path('mine/members')}; `ppax resume mine` "
        f"continues it or prints its table, `ppax sweep {Path('mine/sweep.toml')}` begins it again\n"
    )
