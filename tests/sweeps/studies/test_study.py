"""Studies of Optuna without training: budget, lost workers, reproducible samplers, pruners, the space."""

import contextlib
import os
import shutil
import sqlite3
import threading
import time
from pathlib import Path

import filelock
import numpy as np
import pytest

from ppax.core.types import ConfigError
from ppax.sweeps import Choice, Integers, LogUniform, Normal, Optuna, Uniform, directory, plan
from support import hostile

optuna = pytest.importorskip("optuna")

from ppax.sweeps.studies import space, storage  # noqa: E402
from ppax.sweeps.studies.study import Study  # noqa: E402
from support.studies import loaded_study  # noqa: E402

NIGHTLY = pytest.mark.nightly
RATE, GAMMA = "agent.learning_rate", "agent.gamma"
VALUES = {RATE: LogUniform(1e-5, 1e-1), GAMMA: Uniform(0.9, 1.0)}


@pytest.fixture
def study(tmp_path):
    """Open a study of a worker; several workers share a database."""

    def open_study(worker="one", values=VALUES, run_config=None, shared=True, **settings):
        url = f"sqlite:///{tmp_path / 'shared.db'}" if shared else None
        path = tmp_path / worker
        path.mkdir(exist_ok=True)
        table = dict(values) | {"search": Optuna(storage=url, **settings)}
        return Study(path, plan.read(table), run_config or {"env": "CartPole-v1"})

    return open_study


def states(one):
    return [trial.state.name for trial in one._study.get_trials()]


@pytest.mark.filterwarnings("ignore:Heartbeat of storage")  # filters are those of all threads
def test_workers_share_the_budget(study):
    """Four workers that ask at the same time begin as many trials as the budget has, each trial once."""
    workers = [study(f"worker {i}", trials=10) for i in range(4)]
    asked = []

    def ask(worker):
        while batch := worker.ask(3):
            asked.extend(batch)

    threads = [threading.Thread(target=ask, args=(worker,)) for worker in workers]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert len(asked) == len({one.number for one in asked}) == 10
    assert states(workers[0]).count("RUNNING") == 10
    assert set(states(workers[0])) <= {"RUNNING", "FAIL"}


def test_a_trial_that_is_one_too_many_is_refused(study, monkeypatch):
    """Of two workers that both see room for one more, the one whose trial comes later gives it back."""
    first, second = study("first", trials=3), study("second", trials=3)
    first.ask(2)
    seen = iter([[0, 1]])  # what the second sees before the first begins the last trial
    counted = second._counted
    monkeypatch.setattr(second, "_counted", lambda: next(seen, None) or counted())
    assert [one.number for one in first.ask(1)] == [2]
    assert second.ask(1) == []
    assert states(first) == ["RUNNING", "RUNNING", "RUNNING", "FAIL"]


def test_the_trials_of_a_lost_worker_are_repeated_once(study):
    """A worker that gives heartbeats keeps its trials; those of one that gives none go to one other worker."""
    with study("alive", trials=4, patience=2) as alive:
        lost = study("lost", trials=4, patience=2)
        kept, left = alive.ask(1), lost.ask(2)
        time.sleep(3.5)
        others = [study(f"other {i}", trials=4, patience=2) for i in range(2)]
        assert others[0].others() == 3
        repeated = others[0].ask(1) + others[1].ask(9) + others[0].ask(9)
        assert [alive.runs(one.number) for one in kept] == [True]
        assert not any(lost.runs(one.number) for one in left)
        assert sorted(map(str, (one.values for one in repeated[:2]))) == sorted(str(one.values) for one in left)
        assert len(repeated) == 3  # and one new trial: four in all
        with pytest.warns(UserWarning, match="is repeated by another worker"):
            lost.tell(left[0].number, 1e9, "", Path("members/000"))
        alive.tell(kept[0].number, 5.0, "", Path("members/000"))
        assert alive.best().score == 5.0
        assert alive.ask(1) == []


def test_trials_of_this_worker_that_its_directory_lacks(study):
    """A kill between a proposal and its record leaves a trial to the next start, and to this worker alone."""
    first = study("first")
    asked = first.ask(3)
    again = study("first")
    assert again.unrecorded([asked[0].number]) == asked[1:]
    assert study("second").unrecorded([]) == []


def test_kills_while_a_trial_is_asked_for(study, monkeypatch):
    """Before it has parameters, and before it has an owner: a study of one worker waits for neither."""
    one = study(shared=False, trials=2)
    one._study.ask()
    with monkeypatch.context() as patch:
        patch.setattr(optuna.trial.Trial, "set_user_attr", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            one.ask(1)
    assert states(one) == ["RUNNING", "RUNNING"]
    again = study(shared=False, trials=2)
    assert again.others() == 0
    (found,) = again.unrecorded([])
    assert found.number == 1
    assert found.values.keys() == VALUES.keys()
    assert states(again) == ["WAITING", "RUNNING"]
    assert [asked.number for asked in again.ask(9)] == [0]


@pytest.mark.parametrize("sampler", ["tpe", "random"])
@pytest.mark.parametrize("known", [0, 1])
def test_a_trial_whose_proposal_was_killed_is_proposed_again(study, monkeypatch, known, sampler):
    """The kill comes before its first or its second value is stored; all proposals are those of a whole study."""
    whole = study("whole", shared=False, sampler=sampler)
    expected = whole.ask(3)
    killed = study("killed", shared=False, sampler=sampler)
    assert killed.ask(1) == expected[:1]
    storing = type(killed._study._storage)
    calls, store = [], storing.set_trial_param

    def once_too_often(*arguments):
        calls.append(arguments)
        return store(*arguments) if len(calls) <= known else 1 / 0

    with monkeypatch.context() as patch:
        patch.setattr(storing, "set_trial_param", once_too_often)
        with pytest.raises(ZeroDivisionError):
            killed.ask(2)
    again = study("killed", shared=False, sampler=sampler)
    assert again.unrecorded([0]) == []
    assert again.ask(2) == expected[1:]


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("random", marks=NIGHTLY), pytest.param("qmc", marks=NIGHTLY)])
def test_proposals_depend_on_seed_trial_and_results_alone(study, sampler):
    """A study that is opened anew for every trial proposes what one that stays open does; another seed does not."""

    def proposals(worker, opened_anew, seed):
        one, found = study(worker, sampler=sampler, study=worker, seed=seed), []
        for _ in range(14):  # beyond the random ones of TPE
            if opened_anew:
                one = study(worker, sampler=sampler, study=worker, seed=seed)
            (trial,) = one.ask(1)
            found.append(trial.values)
            one.tell(trial.number, -abs(np.log10(trial.values[RATE]) + 3.0), "", Path())
        return found

    whole = proposals("whole", False, 7)
    assert proposals("anew", True, 7) == whole
    assert proposals("other", False, 8) != whole
    assert len({str(one) for one in whole}) == 14
    assert all(1e-5 <= one[RATE] <= 1e-1 and 0.9 <= one[GAMMA] <= 1.0 for one in whole)


def test_tpe_finds_the_maximum(study):
    """Score -(log10 rate + 2)^2 over [-5, -1]: random proposals are 1.25 away from its maximum in the mean."""
    one, distances = study(trials=40, values={RATE: VALUES[RATE]}, sampler="tpe"), []
    while batch := one.ask(4):
        for trial in batch:
            distances.append(abs(np.log10(trial.values[RATE]) + 2.0))
            one.tell(trial.number, -(distances[-1] ** 2), "", Path())
    assert one.best().score == pytest.approx(-(min(distances) ** 2))
    assert np.mean(distances[20:]) < 0.5


def test_a_sampler_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setattr(space.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"search.sampler = 'gp'.*pip install torch"):
        space.sampler_of(Optuna(sampler="gp"))


def test_samplers_that_keep_a_pickle_in_the_database_are_refused():
    with pytest.raises(ConfigError, match=r"search.sampler = 'cmaes': must be one of tpe, random, gp, qmc"):
        plan.read(VALUES | {"search": {"part": "optuna", "sampler": "cmaes"}})


@NIGHTLY
def test_a_sampler_with_a_package_of_its_own(study):
    pytest.importorskip("torch")
    one = study(sampler="gp", trials=16)
    for _ in range(16):
        (trial,) = one.ask(1)
        assert 1e-5 <= trial.values[RATE] <= 1e-1
        one.tell(trial.number, -abs(np.log10(trial.values[RATE]) + 3.0), "", Path())


@pytest.mark.parametrize(
    "pruner", ["halving", *(pytest.param(x, marks=NIGHTLY) for x in ("median", "percentile", "hyperband", "none"))]
)
def test_pruners_end_the_worst_and_keep_the_best(study, pruner):
    """Eight trials whose curves rise to their place; then one below all of them, and one above."""
    one = study(pruner=pruner, trials=20)
    for trial in one.ask(8):
        for iteration in range(1, 10):
            one.prunes({trial.number: (1.0 + trial.number) * iteration}, iteration)
        one.tell(trial.number, 10.0 * (1.0 + trial.number), "", Path())
    worst, best = one.ask(2)
    ended = {}
    for iteration in range(1, 10):
        scores = {worst.number: -1.0 * iteration, best.number: 50.0 * iteration}
        for number, why in one.prunes({n: x for n, x in scores.items() if n not in ended}, iteration).items():
            ended[number] = why
    assert best.number not in ended
    if pruner == "none":
        assert ended == {}
    else:
        assert ended[worst.number].startswith(f"stopped by optuna's pruner {pruner!r} at iteration ")


def test_the_median_pruner_by_hand(study):
    """A trial goes on at or above the median of the others' best scores so far, and ends below it."""
    one = study(pruner="median", trials=20)
    others = one.ask(5)  # as many as the pruner waits for
    for trial, score in zip(others, (3.0, 1.0, 4.0, 1.5, 9.0), strict=True):
        one.prunes({trial.number: score}, 6)
        one.tell(trial.number, score, "", Path())
    above, below = one.ask(2)
    assert list(one.prunes({above.number: 3.1, below.number: 2.9}, 6)) == [below.number]


def test_trials_without_a_score_are_pruned(study):
    one = study()
    first, second, third = one.ask(3)
    one.tell(first.number, np.nan, "", Path())
    one.tell(second.number, 3.0, "stopped by a pruner", Path())
    assert one.best() is None
    one.tell(third.number, -2.0, "", Path("x/members/004"))
    assert states(one) == ["PRUNED", "PRUNED", "COMPLETE"]
    assert one.best().score == -2.0
    assert one.best().run.endswith(":x/members/004")


def test_values_of_a_trial():
    """Lists are categories of any values, numbers have the digits of drawn ones."""
    swept = {
        "hidden": ([64, 64], [256]),
        "choice": Choice((1, True, "true", None, 0.5)),
        "whole": Integers(3, 5),
        "rate": LogUniform(1e-5, 1e-1),
    }
    spaces = space.space_of(swept)
    assert (spaces["whole"].low, spaces["whole"].high) == (3, 5)
    assert spaces["rate"].log
    found = [
        space.values_of(swept, {"hidden": h, "choice": c, "whole": 4, "rate": 0.000123456789})
        for h, c in zip(spaces["hidden"].choices * 3, spaces["choice"].choices, strict=False)
    ]
    assert [one["hidden"] for one in found][:2] == [[64, 64], [256]]
    assert [repr(one["choice"]) for one in found] == ["1", "True", "'true'", "None", "0.5"]
    assert [found[0]["whole"], found[0]["rate"]] == [4, 0.000123457]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (
            {RATE: Uniform(0.0, 1.0), "draws": 3},
            "sweep.draws = 3: a study proposes its settings; write search.trials = 3",
        ),
        ({}, "a study has nothing to propose"),
        ({RATE: Normal(1.0, 0.5)}, "'normal': Optuna has uniform, .* nearest: uniform from 0 to 2"),
        ({RATE: [1.0], "search": {"part": "optuna", "sampler": "tp"}}, "sampler.*nearest: tpe"),
        ({RATE: [1.0], "search": {"part": "optuna", "trials": 0}}, "search.trials = 0.*1"),
    ],
)
def test_invalid_sweeps(table, message):
    with pytest.raises(ConfigError, match=message):
        plan.read({"search": {"part": "optuna"}} | table)


def test_a_study_of_another_sweep_is_refused(study):
    study("one")
    with pytest.raises(ConfigError, match=r"search\.study = 'ppax'.*study of this name with other options"):
        study("two", run_config={"env": "Acrobot-v1"})
    study("two", run_config={"env": "Acrobot-v1"}, study="another")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the open files of a process are known on Linux")
def test_a_sqlite_file_is_not_left_open(study, tmp_path):
    """Neither by a worker that is between two rounds, nor by one that was refused."""
    one = study("one")
    one.ask(1)
    with pytest.raises(ConfigError):
        study("two", run_config={"env": "Acrobot-v1"})
    targets = [os.readlink(f) for f in Path("/proc/self/fd").iterdir() if f.exists()]
    assert not [target for target in targets if target.startswith(str(tmp_path / "shared.db")) and "lock" not in target]


@pytest.mark.parametrize(
    "url", ["no url", "postgresql://me:secret@127.0.0.1:1/nothing", "sqlite:////nowhere/at/all.db"]
)
def test_a_storage_that_is_not_there_is_named_without_its_password(url):
    with pytest.raises(ConfigError, match=r"^search\.storage = ") as raised:
        storage.opened(Optuna(storage=url), url, 1, lambda study, trial: None)
    assert "secret" not in str(raised.value)


# ---------------------------------------------------------------- studies of strangers


def test_a_pickle_in_a_study_is_not_read(tmp_path):
    """Optuna's CMA-ES would unpickle its optimiser from a trial's attributes."""
    theirs, home = tmp_path / "theirs", tmp_path / "home"
    theirs.mkdir()
    home.mkdir()
    hostile.study(theirs, home)
    recorded = directory.read(theirs)
    with hostile.traced(home) as trace, Study(theirs, recorded.plan, recorded.run_config) as opened:
        asked = opened.ask(3)
    assert len({str(one.values) for one in asked}) == 3
    assert trace.events == []
    assert not (home / hostile.MARKER).exists()


def test_the_trap_of_the_test_above_works(tmp_path):
    """Optuna's own sampler executes what the attributes hold, and the trace sees it."""
    pytest.importorskip("cmaes")
    theirs, home = tmp_path / "theirs", tmp_path / "home"
    theirs.mkdir()
    home.mkdir()
    hostile.study(theirs, home)
    loaded = loaded_study(storage.sqlite_file(theirs / "study.db"))
    loaded.sampler = optuna.samplers.CmaEsSampler(seed=0)
    with hostile.traced(home) as trace:
        loaded.ask(loaded.trials[0].distributions)
    assert (home / hostile.MARKER).exists()
    assert any(event.startswith("os.mkdir") for event in trace.events)


def test_a_lock_beside_a_database_stays_as_it_is(tmp_path, monkeypatch):
    """Some versions of filelock empty a lock when they open it, and NAME.lock may be a file of another program."""

    class Emptying(filelock.FileLock):
        def acquire(self, *arguments, **options):
            Path(self.lock_file).write_text("")
            return super().acquire(*arguments, **options)

    monkeypatch.setattr(storage.filelock, "FileLock", Emptying)
    (tmp_path / "uv.lock").write_text("my lock file")
    search = Optuna(storage=f"sqlite:///{tmp_path / 'uv'}", trials=1)
    with Study(tmp_path, plan.read(VALUES | {"search": search}), {"env": "CartPole-v1"}) as opened:
        assert len(opened.ask(1)) == 1
    assert (tmp_path / "uv.lock").read_text() == "my lock file"
    (tmp_path / f"uv{storage.LOCK}").write_text("of another program")
    with pytest.raises(ConfigError, match="must be a study's lock, an empty file"):
        Study(tmp_path, plan.read(VALUES | {"search": search}), {"env": "CartPole-v1"})


def test_sqlite_would_remove_the_file_that_a_journal_names(tmp_path):
    """The trap of the hostile corpus works without ppax; a journal that a kill leaves names none, and is taken."""
    (tmp_path / "victim").write_text("x")
    hostile.journal(tmp_path / "study.db", tmp_path / "victim")
    with pytest.raises(ConfigError, match="SQLite would remove a file"):
        storage.require_sound_files(storage.sqlite_file(tmp_path / "study.db"))
    with contextlib.closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute("select * from t").fetchall()
    assert not (tmp_path / "victim").exists()
    with contextlib.closing(sqlite3.connect(tmp_path / "own.db")) as database:
        database.execute("create table t(x)")
        database.execute("begin")
        database.execute("insert into t values(1)")
        shutil.copy(tmp_path / "own.db-journal", tmp_path / "copy")
    shutil.copy(tmp_path / "copy", tmp_path / "own.db-journal")
    storage.require_sound_files(storage.sqlite_file(tmp_path / "own.db"))


DAMAGES = {  # tables of Optuna with a content that it does not check
    "text where there is JSON": "update study_user_attributes set value_json = '{'",
    "a number where there is JSON": "update study_user_attributes set value_json = '7'",
    "an unknown direction": "update study_directions set direction = 'UP'",
    "another version": "update alembic_version set version_num = 'x'",
    "an unknown state": "update trials set state = 'DONE'",
    "another distribution": 'update trial_params set distribution_json = \'{"name": "x", "attributes": {}}\'',
    "nested JSON": f"update trial_user_attributes set value_json = '{'[' * 10**5}'",
    "a missing table": "drop table trial_values",
    "no number": "update trial_values set value = 'x'",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_study_is_refused_in_one_sentence(study, damage, tmp_path):
    """In whichever call it is seen; Optuna raises AttributeError, LookupError, RuntimeError, ... for these."""
    one = study(shared=False, pruner="median")
    for score in (1.0, 2.0):
        (trial,) = one.ask(1)
        one.prunes({trial.number: score}, 1)
        one.tell(trial.number, score, "", Path("members/000"))
    (begun,) = one.ask(1)
    with contextlib.closing(sqlite3.connect(tmp_path / "one" / "study.db")) as database:
        database.execute(DAMAGES[damage])
        database.commit()

    def use():
        again = study(shared=False, pruner="median")
        again.unrecorded([])
        again.prunes({begun.number: 1.0}, 1)
        again.tell(begun.number, 3.0, "", Path("members/000"))
        again.ask(1)
        again.best()

    with pytest.raises(ConfigError, match=r"search\.(storage|study) = "):
        use()
