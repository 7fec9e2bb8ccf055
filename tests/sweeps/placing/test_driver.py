"""Sweeps whose workers are threads behind a stand-in for Ray: the bits of a sweep here, losses, signals, trust."""

import contextlib
import json
import signal
import tempfile

import jax
import pytest

import ppax
from ppax.core import imports
from ppax.devices import clusters
from ppax.loggers import EventFiles, TensorBoard
from ppax.run.directory import name_of_sweep
from ppax.sweeps import directory
from ppax.sweeps.placing import worker
from ppax.sweeps.placing.transport import Snapshot
from ppax.training.loop import MEASURED, STAGES
from support.stub_ray import StubRay
from support.sweeping import signalling

pytestmark = pytest.mark.usefixtures("vmapped_keys", "quick_programs", "cached_programs")

BASE = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 16,
    "total_steps": 640,  # 10 iterations
    "agent": {"num_epochs": 1, "network": {"hidden": [8]}},
    "eval": {"episodes": 4},
    "log": {"console": False, "checkpoint_every": 3, "keep": 1},
}
VALUES = {"agent.learning_rate": [1e-2, 1e-3]}
SETTINGS = {"address": "auto", "cpus": 2}  # a program on each machine


@pytest.fixture(autouse=True)
def _keys_in_threads():
    """Switch off the key-reuse checker in threads too (see `vmapped_keys`)."""
    jax.config.update("jax_debug_key_reuse", False)
    yield
    jax.config.update("jax_debug_key_reuse", True)


@pytest.fixture(autouse=True)
def _own_temporary_files(tmp_path_factory, monkeypatch):
    """A worker that is lost leaves its directory."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("workers")))


def connect(monkeypatch, ray):
    monkeypatch.setattr(clusters, "connected", lambda address: contextlib.nullcontext(ray))
    monkeypatch.setattr(worker, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(worker, "WAITING", 2)  # a worker is never far ahead of the questions
    return ray


def on_stub(monkeypatch, path, lost=lambda number, events: False, **table):
    ray = connect(monkeypatch, StubRay(lost))
    return ppax.sweep_runs(BASE, VALUES, seeds=2, run_dir=path, ray=SETTINGS | table), ray


def rows_of(path):
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: x for name, x in row.items() if name not in (*MEASURED, *STAGES)} for row in rows]


def assert_same(one, other):
    """Two sweeps: rows, checkpoints, results, bit for bit."""
    for number in range(4):
        a, b = (path / "members" / f"{number:03d}" for path in (one, other))
        assert rows_of(a) == rows_of(b)
        assert [row["iteration"] for row in rows_of(a)] == list(range(1, 11))
        assert [path.name for path in (a / "checkpoints").iterdir()] == [f"{10:010d}"]
        data = [(path / "checkpoints" / f"{10:010d}" / "state.safetensors").read_bytes() for path in (a, b)]
        assert data[0] == data[1]
        assert json.loads((a / "evaluation.json").read_text())["mean_return"] is not None
    results = [json.loads((x / "result.json").read_text().replace(str(x), "")) for x in (one, other)]
    assert results[0] == results[1]


_here = {}


@pytest.fixture
def here(tmp_path_factory, monkeypatch):
    """The same sweep without a cluster, with two programs of two members."""
    if not _here:
        _here["path"] = path = tmp_path_factory.mktemp("here")
        with monkeypatch.context() as patch:
            patch.setattr("ppax.sweeps.training.members_that_fit", lambda *_: 2)
            ppax.sweep_runs(BASE, VALUES, seeds=2, run_dir=path)
    return _here["path"]


def test_a_sweep_on_a_cluster_equals_one_here_bit_for_bit(here, tmp_path, monkeypatch):
    result, ray = on_stub(monkeypatch, tmp_path)
    assert directory.read(tmp_path).programs == ((0, 1), (2, 3))  # as many programs as machines
    assert len(ray.actors) == 2
    assert_same(tmp_path, here)
    assert result.best.exists()
    last = json.loads((tmp_path / "sweep.jsonl").read_text().splitlines()[-1])
    assert (last["iteration"], last["env_steps"]) == (40, steps_of(tmp_path))


def steps_of(path):
    return sum(rows_of(one)[-1]["env_steps"] for one in (path / "members").iterdir())


def is_snapshot(events):
    return any(isinstance(event, Snapshot) for event in events)


class LostAfter:
    """Losses of a worker at its first answer after one with a snapshot."""

    def __init__(self, *numbers):
        self._numbers, self._due = set(numbers), set()

    def __call__(self, number, events):
        if number in self._due:
            return True
        if number in self._numbers and is_snapshot(events):
            self._due.add(number)
        return False


def test_a_lost_worker_goes_on_from_its_last_checkpoint_and_nothing_counts_twice(here, tmp_path, monkeypatch):
    """The one that replaces it, number 2, is lost too; their threads train on, and change nothing."""
    with pytest.warns(UserWarning, match=r"the worker of members \d to \d was lost; .*: the actor died$"):
        _, ray = on_stub(monkeypatch, tmp_path, LostAfter(1, 2), retries=2)
    assert len(ray.actors) == 4
    assert_same(tmp_path, here)
    last = json.loads((tmp_path / "sweep.jsonl").read_text().splitlines()[-1])
    assert (last["iteration"], last["env_steps"]) == (40, steps_of(tmp_path))


def test_a_worker_sends_its_checkpoints_while_it_trains(tmp_path, monkeypatch):
    """Four checkpoints in ten iterations: a worker that is lost has not lost everything."""
    answers = {}

    def counted(number, events):
        answers[number] = answers.get(number, 0) + is_snapshot(events)
        return False

    on_stub(monkeypatch, tmp_path, counted)
    assert min(answers.values()) > 1


@pytest.mark.filterwarnings("ignore:the worker of members")
def test_a_program_that_loses_too_many_workers_ends_the_sweep_which_goes_on_without_a_cluster(
    here, tmp_path, monkeypatch
):
    with pytest.raises(ppax.run.result.ProcessLost, match=rf"was lost 2 times, and ray.retries = 1: .*{tmp_path}"):
        on_stub(monkeypatch, tmp_path, lambda number, events: number != 0, retries=1)
    ppax.resume_sweep(tmp_path)
    assert_same(tmp_path, here)


def test_a_sweep_begun_here_goes_on_on_a_cluster(here, tmp_path, monkeypatch):
    """A signal stops it here; its programs and checkpoints go to the workers."""
    from ppax.sweeps import member

    stopping = signalling(member.MemberRun.log, 4)

    with monkeypatch.context() as patch:
        patch.setattr("ppax.sweeps.training.members_that_fit", lambda *_: 2)
        patch.setattr(member.MemberRun, "log", stopping)
        with pytest.raises(ppax.Interrupted):
            ppax.sweep_runs(BASE, VALUES, seeds=2, run_dir=tmp_path)
    connect(monkeypatch, StubRay())
    ppax.resume_sweep(tmp_path, ray="auto")
    assert_same(tmp_path, here)


def test_a_signal_saves_all_programs(here, tmp_path, monkeypatch):
    """It comes with the first snapshot of a worker."""
    sent = []

    def signalled(number, events):
        if is_snapshot(events) and not sent:
            sent.append(number)
            signal.raise_signal(signal.SIGTERM)
        return False

    with pytest.raises(ppax.Interrupted, match=f"ppax resume {tmp_path}"):
        on_stub(monkeypatch, tmp_path, signalled)
    kinds = [json.loads(path.read_text())["kind"] for path in tmp_path.glob("members/*/stopped.json")]
    assert "signal" in kinds
    ppax.resume_sweep(tmp_path)
    assert_same(tmp_path, here)


@pytest.mark.parametrize(
    ("error", "kind"), [(ZeroDivisionError("by zero"), RuntimeError), (ppax.ConfigError("by zero"), ppax.ConfigError)]
)
def test_an_error_of_a_program_is_raised_here(error, kind, tmp_path, monkeypatch):
    """A member that cannot be built is no lost worker, and is not tried again. The error travels as text."""

    def failing(*_):
        raise error

    monkeypatch.setattr(worker.Programs, "train_chunks", failing)
    with pytest.raises(kind, match="by zero") as raised:
        on_stub(monkeypatch, tmp_path)
    assert type(raised.value) is kind
    assert "in failing" in raised.value.__notes__[0]


def test_workers_of_another_version_are_refused(tmp_path, monkeypatch):
    given = worker.process_context(1)
    with contextlib.ExitStack() as stack, pytest.raises(ppax.ConfigError, match="install the same on all nodes"):
        worker.enter(given._replace(versions=("0.0.1", "0.1")), stack)


def test_a_worker_trusts_what_the_driver_trusts(monkeypatch):
    """Packages of Python and of the settings file; those of the command line also beside the current directory."""
    before = imports.granted()[1]
    with imports.trusting(["one"], within=["/sweep"]), imports.trusting(["two", "//x:1"], beside=True):
        given = worker.process_context(1)
    assert imports.granted()[1] == before
    with contextlib.ExitStack() as stack:
        worker.enter(given, stack)
        trusted, beside, within = imports.granted()
        assert {"one", "two", "//x:1"} <= set(trusted)
        assert {"//x:1", "two"} <= set(beside)
        assert within == ["/sweep"]
        assert imports.flags() == " --trust //x:1 --trust two"


# two threads read and write one cache, and JAX's writes are not atomic: the entry is compiled again
@pytest.mark.filterwarnings("ignore:Error reading persistent compilation cache entry")
def test_members_on_the_host_are_programs_of_their_own(tmp_path, monkeypatch):
    base = BASE | {"env": "gymnasium/CartPole-v1", "num_envs": 2, "total_steps": 96}
    connect(monkeypatch, StubRay())
    values = {"agent.learning_rate": [1e-2, 1e-3]}
    result = ppax.sweep_runs(base, values, run_dir=tmp_path / "cluster", ray="auto")
    other = ppax.sweep_runs(base, values, run_dir=tmp_path / "here")
    assert [one.score for one in result.members] == [one.score for one in other.members]
    for one, two in zip(result.members, other.members, strict=True):
        assert rows_of(one.run_dir) == rows_of(two.run_dir)


def test_halving_decides_over_the_members_of_all_machines(tmp_path, monkeypatch):
    """Six members in two programs: the decisions, rows and results are those of halving here, with these programs."""
    given = {"agent.learning_rate": [1e-2, 3e-3, 1e-3]}, {"part": "halving", "eta": 3, "rungs": 1}
    connect(monkeypatch, StubRay())
    one = ppax.sweep_runs(BASE, given[0], seeds=2, search=given[1], run_dir=tmp_path / "cluster", ray=SETTINGS)
    monkeypatch.setattr("ppax.sweeps.training.members_that_fit", lambda *_: 3)
    other = ppax.sweep_runs(BASE, given[0], seeds=2, search=given[1], run_dir=tmp_path / "here")
    lasts = [[rows_of(member.run_dir)[-1]["iteration"] for member in result.members] for result in (one, other)]
    assert lasts[0] == lasts[1]
    assert sorted(lasts[0]) == [4, 4, 4, 4, 10, 10]  # at the rung two of six are left
    logs = [(path / "search.jsonl").read_text() for path in (tmp_path / "cluster", tmp_path / "here")]
    assert logs[0] == logs[1]


def test_the_trials_of_a_study_train_on_the_cluster(tmp_path, monkeypatch):
    """Two batches of two trials, each a program: rows, scores and proposals are those of the same programs here."""
    pytest.importorskip("optuna")
    values = {"agent.learning_rate": {"part": "log_uniform", "low": 1e-4, "high": 1e-2}}
    search = {"part": "optuna", "trials": 4, "batch": 2}
    ray = connect(monkeypatch, StubRay())
    one = ppax.sweep_runs(BASE, values, seeds=2, search=search, run_dir=tmp_path / "cluster", ray=SETTINGS)
    assert len(ray.actors) == 4  # two in each batch
    monkeypatch.setattr("ppax.sweeps.training.members_that_fit", lambda *_: 2)
    other = ppax.sweep_runs(BASE, values, seeds=2, search=search, run_dir=tmp_path / "here")
    assert [member.score for member in one.members] == [member.score for member in other.members]
    for mine, theirs in zip(one.members, other.members, strict=True):
        assert rows_of(mine.run_dir) == rows_of(theirs.run_dir)


def test_members_on_a_cluster_are_in_the_group_of_their_sweep(tmp_path, monkeypatch):
    """Their directories are those of workers; films come to the sweep's directory with the checkpoints."""
    described = []
    monkeypatch.setattr(TensorBoard, "open", lambda part, run: described.append(run) or EventFiles(run.path / "events"))
    connect(monkeypatch, StubRay())
    base = BASE | {"log": BASE["log"] | {"tensorboard": True}, "film": {"every": 3, "max_steps": 3}}
    ppax.sweep_runs(base, VALUES, run_dir=tmp_path / "rates", ray=SETTINGS)
    assert {one.group for one in described} == {name_of_sweep(tmp_path / "rates").group}
    assert sorted(one.name for one in described) == ["rates/000", "rates/001"]
    films = sorted(
        path.relative_to(tmp_path / "rates" / "members") for path in tmp_path.glob("rates/members/*/films/*")
    )
    assert [str(path) for path in films] == [f"{n}/films/{i:010d}.gif" for n in ("000", "001") for i in (0, 3, 6, 9)]
