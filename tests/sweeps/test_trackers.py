"""Loggers and films of the members of a sweep: what each of them gets, in one start and over a resume."""

import json
import threading
from typing import ClassVar

import numpy as np
import pytest

import ppax
from ppax.config import Log
from ppax.loggers import TensorBoard
from ppax.run.directory import SweepName, name_of_sweep
from ppax.run.logging import logged_run
from ppax.sweeps import member
from support.sweeping import signalling

pytestmark = pytest.mark.usefixtures("vmapped_keys", "quick_programs", "cached_programs", "shared_sweeps")

BASE = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 16,
    "total_steps": 640,  # 10 iterations
    "agent": {"num_epochs": 1, "minibatch": {"num_minibatches": 4}, "network": {"hidden": [8]}},
    "eval": {"episodes": 4},
    "film": {"every": 3, "max_steps": 4},
    "log": {"console": False, "checkpoint_every": 1, "keep": "all", "tensorboard": True},
}
VALUES = {"agent.learning_rate": [1e-2, 1e-3]}
FILMS = [f"{iteration:010d}.gif" for iteration in (0, 3, 6, 9)]


class Tracker:
    """Logger that keeps everything that it gets."""

    opened: ClassVar[list["Tracker"]] = []

    def __init__(self, run):
        self.run, self.rows, self.artifacts, self.closed = run, [], [], False
        self.opened.append(self)

    def log(self, row):
        self.rows.append(row)

    def store(self, artifact):
        self.artifacts.append(artifact)

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def trackers(monkeypatch):
    """All loggers that runs have opened, in the place of TensorBoard's."""
    opened = []
    monkeypatch.setattr(Tracker, "opened", opened)
    monkeypatch.setattr(TensorBoard, "open", lambda part, run: Tracker(run))
    monkeypatch.setattr(TensorBoard, "stores", ("policy", "film"))
    return opened


def rows_of(path):
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def logged(opened, path):
    """Loss by iteration of all starts of the run in `path`; a later start has the last word."""
    return {row["iteration"]: row["loss"] for one in opened if one.run.path == path for row in one.rows}


def stored(opened, path, kind):
    """Names of the files of a kind that the loggers of the run in `path` got."""
    artifacts = (one for tracker in opened if tracker.run.path == path for one in tracker.artifacts)
    return [name for one in artifacts if one.kind == kind for name in one.files]


def test_every_member_has_its_rows_films_and_policy_in_a_logger_of_its_own(trackers, tmp_path):
    result = ppax.sweep_runs(BASE, VALUES, run_dir=tmp_path / "rates")
    assert [one.run.name for one in trackers] == ["rates/000", "rates/001"]
    (group,) = {one.run.group for one in trackers}
    assert group == name_of_sweep(tmp_path / "rates").group
    assert group.startswith("rates-")
    assert len({one.run.id for one in trackers}) == 2
    for one in result.members:
        assert logged(trackers, one.run_dir) == {row["iteration"]: row["loss"] for row in rows_of(one.run_dir)}
        assert stored(trackers, one.run_dir, "film") == FILMS
        assert stored(trackers, one.run_dir, "policy") == ["policy.zip"]
        assert ppax.load(one.run_dir / "policy.zip").act(np.zeros(4, np.float32)) in (0, 1)
    assert all(one.closed for one in trackers)


def test_a_film_of_a_member_is_that_of_its_checkpoint(tmp_path):
    """`ppax.film` plays the saved policy with the same key: the same bytes, with the member's own parameters."""
    gravity = {"env_params.gravity": [9.8, 60.0]}
    result = ppax.sweep_runs(BASE, gravity, run_dir=tmp_path / "sweep")
    for one in result.members:
        steps = {saved.iteration: saved.step for saved in ppax.checkpoints(one.run_dir)}
        for name in FILMS[1:]:
            again = tmp_path / f"{one.run_dir.name}-{name}"
            step = steps[int(name.partition(".")[0])]
            ppax.film(one.run_dir, again, max_steps=4, step=step)
            assert again.read_bytes() == (one.run_dir / "films" / name).read_bytes()
    low, high = ((one.run_dir / "films" / FILMS[0]).read_bytes() for one in result.members)
    assert low != high


def test_a_resumed_sweep_goes_on_in_the_same_runs_of_its_loggers(trackers, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "log", signalling(member.MemberRun.log, 5))
        with pytest.raises(ppax.Interrupted):
            ppax.sweep_runs(BASE, VALUES, run_dir=tmp_path / "rates")
    first = list(trackers)
    assert not any(stored(first, one.run.path, "policy") for one in first)  # there is little time after a signal
    result = ppax.resume_sweep(tmp_path / "rates")
    again = trackers[len(first) :]
    assert [(one.run.id, one.run.name, one.run.group) for one in again] == [
        (one.run.id, one.run.name, one.run.group) for one in first
    ]
    assert [one.run.iteration for one in again] == [5, 5]
    for one in result.members:
        assert logged(trackers, one.run_dir) == {row["iteration"]: row["loss"] for row in rows_of(one.run_dir)}
        assert stored(trackers, one.run_dir, "film") == FILMS  # each once
        assert stored(trackers, one.run_dir, "policy") == ["policy.zip"]


def test_a_member_that_had_ended_before_a_resume_hands_over_its_policy(trackers, tmp_path, monkeypatch):
    """Killed after the last checkpoint, before the evaluation: training is over, the loggers lack the policy."""
    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "evaluate", lambda self, state: (_ for _ in ()).throw(SystemExit))
        with pytest.raises(SystemExit):
            ppax.sweep_runs(BASE, VALUES, run_dir=tmp_path)
    rows = [rows_of(path) for path in sorted(tmp_path.glob("members/*"))]
    result = ppax.resume_sweep(tmp_path)
    assert [stored(trackers, one.run_dir, "policy") for one in result.members] == [["policy.zip"]] * 2
    assert [rows_of(one.run_dir) for one in result.members] == rows


def test_a_member_alone_and_on_the_host_is_in_the_group_of_its_sweep(trackers, tmp_path):
    base = BASE | {"env": "gymnasium/CartPole-v1", "num_envs": 2, "total_steps": 64, "film": {}}
    base |= {"agent": BASE["agent"] | {"schedule": {"part": "constant"}}}  # a longer run has the same numbers
    ppax.sweep_runs(base, VALUES, run_dir=tmp_path / "host")
    ppax.resume(tmp_path / "host" / "members" / "001", total_steps=96, console=False).env.close()
    assert [one.run.name for one in trackers] == ["host/000", "host/001", "host/001"]
    assert {one.run.group for one in trackers} == {name_of_sweep(tmp_path / "host").group}


def test_loggers_of_all_members_are_closed_at_once(tmp_path, monkeypatch):
    """A server that does not answer holds up each `close` for two minutes: one after the other were hours."""
    together = threading.Barrier(2)
    monkeypatch.setattr(Tracker, "close", lambda self: together.wait(timeout=30.0))
    ppax.sweep_runs(BASE | {"film": {}}, VALUES, run_dir=tmp_path)  # a Barrier that is broken is a warning: an error
    assert not together.broken


def test_loggers_and_films_may_change_while_a_sweep_is_stopped(trackers, tmp_path, monkeypatch):
    base = BASE | {"log": BASE["log"] | {"tensorboard": False}, "film": {}}
    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "log", signalling(member.MemberRun.log, 5))
        with pytest.raises(ppax.Interrupted):
            ppax.sweep_runs(base, VALUES, run_dir=tmp_path)
    file = tmp_path / "sweep.toml"
    text = file.read_text().replace("to = []", 'to = [{ part = "tensorboard" }]')
    file.write_text(text.replace('[film]\nevery = "none"', "[film]\nevery = 3"))
    assert trackers == []
    result = ppax.resume_sweep(tmp_path)
    assert {row["iteration"] for one in trackers for row in one.rows} == {6, 7, 8, 9, 10}
    assert stored(trackers, result.members[1].run_dir, "film") == FILMS[2:]


@pytest.mark.parametrize(
    "about", ["", "[]", "{}", '{"name": 7, "id": "01234567"}', '{"name": "a", "id": "0123456/"}', '{"name": "a"}', "é"]
)
def test_a_damaged_record_of_a_sweep_names_none(about, tmp_path):
    (tmp_path / "about.json").write_text(about, encoding="latin-1")
    assert name_of_sweep(tmp_path) == SweepName()
    assert SweepName().group == ""


def test_the_group_of_a_sweep_has_no_special_characters():
    assert SweepName("Bob's rates", "0123abcd").group == "Bob_s_rates-0123abcd"
    assert len(SweepName("x" * 300, "0123abcd").group) < 128  # the limit of Weights & Biases


def test_a_run_in_a_directory_called_members_is_in_no_sweep(tmp_path):
    env = ppax.make("CartPole-v1", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (4,)), num_epochs=1)
    log = Log(console=False, tensorboard=False)
    run = ppax.fit(agent, env, 32, num_steps=8, run_dir=tmp_path / "members" / "alice", log=log)
    described = logged_run(run.agent, env, ppax.config.Run(), run.run_dir, run.state)
    assert (described.name, described.group) == ("alice", "")
