"""Studies that train: values that are told, kills at every point, pruned and impossible trials, several workers."""

import contextlib
import dataclasses
import json
import math
import shutil
import signal
from types import SimpleNamespace

import numpy as np
import pytest

import ppax
from ppax import config
from ppax.core import imports
from ppax.core.types import ConfigError
from ppax.reports.statistics import iqm
from ppax.run import checkpoint
from ppax.sweeps import LogUniform, Optuna, directory, member, results, runs
from ppax.training.loop import MEASURED
from support.sweeping import signalling

optuna = pytest.importorskip("optuna")

from ppax.sweeps.studies import rounds  # noqa: E402
from ppax.sweeps.studies.study import Study  # noqa: E402
from support.studies import loaded_study  # noqa: E402

pytestmark = pytest.mark.usefixtures("vmapped_keys", "quick_programs", "cached_programs", "shared_sweeps")

NIGHTLY = pytest.mark.nightly
RATE, MINIBATCHES = "agent.learning_rate", "agent.minibatch.num_minibatches"
BASE = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 32,
    "total_steps": 1024,  # 8 iterations
    "agent": {"num_epochs": 1, "network": {"hidden": [8]}},
    "eval": {"episodes": 2},
    "log": {"console": False, "checkpoint_every": 1, "keep": 1},
}
VALUES = {RATE: LogUniform(1e-4, 3e-2), "agent.gamma": [0.9, 0.99]}
SEARCH = Optuna(trials=5, batch=2, sampler="random", pruner="halving", reports=2)
TRIALS, SEEDS = 5, 2


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    monkeypatch.setattr(runs.pictures, "draw", lambda result: [])


def swept(path, search=SEARCH, values=VALUES, **settings):
    return ppax.sweep_runs(BASE, values, seeds=SEEDS, search=dataclasses.replace(search, **settings), run_dir=path)


_whole = {}


@pytest.fixture
def whole(tmp_path_factory):
    """Result of an uninterrupted study, trained once."""
    if not _whole:
        _whole["result"] = swept(tmp_path_factory.mktemp("whole"))
    return _whole["result"]


def trials_of(path, name="ppax"):
    return loaded_study(f"sqlite:///{path / 'study.db'}", name).get_trials()


def rows_of(path):
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: x for name, x in row.items() if name not in MEASURED} for row in rows]


def assert_same_study(one, other):
    """Trials with parameters, values and intermediate values, rows, checkpoints and results are the same."""
    own, others = trials_of(one), trials_of(other)
    assert [trial.params for trial in own] == [trial.params for trial in others]
    assert [(t.state, t.values, t.intermediate_values) for t in own] == [
        (t.state, t.values, t.intermediate_values) for t in others
    ]
    for number in range(TRIALS * SEEDS):
        a, b = (path / "members" / f"{number:03d}" for path in (one, other))
        assert rows_of(a) == rows_of(b)
        states = [checkpoint.newest_valid(x / "checkpoints")[0] for x in (a, b)]
        assert (states[0] / "state.safetensors").read_bytes() == (states[1] / "state.safetensors").read_bytes()
    found = [json.loads((x / "result.json").read_text().replace(str(x), "")) for x in (one, other)]
    assert found[0] == found[1]


def test_the_value_of_a_trial_is_the_iqm_of_its_members(whole):
    trials = trials_of(whole.run_dir)
    assert len(trials) == TRIALS
    assert len(whole.members) == TRIALS * SEEDS
    for trial in trials:
        own = [one for one in whole.members if one.number // SEEDS == trial.number]
        assert {one.seed for one in own} == {0, 1}
        for one in own:
            assert one.values[RATE] == pytest.approx(trial.params[RATE], rel=1e-5)
            assert one.values["agent.gamma"] == json.loads(trial.params["agent.gamma"])
            assert config.read(one.run_dir / "run.toml")["agent"]["learning_rate"] == one.values[RATE]
        if trial.state.name == "COMPLETE":
            scores = [json.loads((one.run_dir / "evaluation.json").read_text())["mean_return"] for one in own]
            assert trial.value == pytest.approx(iqm(scores))
            assert trial.user_attrs["ppax.run"].endswith(str(own[0].run_dir))
    best = max((t for t in trials if t.state.name == "COMPLETE"), key=lambda t: t.value)
    assert whole.study == f"best trial of the study: {best.number}, score {best.value:.4g}"
    assert str(whole).endswith(whole.study)
    assert config.read(whole.best) == config.read(whole.settings[0].members[0].run_dir / "run.toml")


def test_best_toml_is_of_the_best_trial_also_where_the_ranking_has_another_first(whole, tmp_path):
    path = tmp_path / "study"
    shutil.copytree(whole.run_dir, path)
    first, *others = whole.settings
    best = SimpleNamespace(number=first.members[0].number // SEEDS, score=1.0, run="", values=first.values)
    ranked = dataclasses.replace(whole, run_dir=path, settings=(*others, first))
    found = results.conclude_study(ranked, directory.read(path), best)
    assert config.read(found.best)["agent"]["learning_rate"] == first.values[RATE] != others[0].values[RATE]


def test_the_pruner_sees_the_mean_of_a_trials_members_and_stops_all_of_them(whole):
    """At two reports, iterations 2 and 5; what is stopped there trains no further and is told as pruned."""
    found = [json.loads(line) for line in (whole.run_dir / "search.jsonl").read_text().splitlines()]
    assert {row["iteration"] for row in found} <= {2, 5}
    pruned = {row["member"] // SEEDS for row in found if row["decision"] == "stop"}
    assert pruned  # of five trials
    for trial in trials_of(whole.run_dir):
        for iteration, value in trial.intermediate_values.items():
            scores = [r["score"] for r in found if (r["iteration"], r["member"] // SEEDS) == (iteration, trial.number)]
            assert value == pytest.approx(sum(scores) / SEEDS)
        assert (trial.state.name == "PRUNED") == (trial.number in pruned)
        own = [one for one in whole.members if one.number // SEEDS == trial.number]
        for one in own:
            assert one.stopped.startswith("stopped by optuna's pruner 'halving'") == (trial.number in pruned)
            last = rows_of(one.run_dir)[-1]["iteration"]
            assert last == (max(trial.intermediate_values) if trial.number in pruned else 8)


@pytest.mark.parametrize(
    ("later", "iteration"),
    [(False, 1), pytest.param(False, 4, marks=NIGHTLY), pytest.param(True, 1, marks=NIGHTLY), (True, 4)],
)
def test_a_stopped_study_resumes_bit_for_bit(whole, tmp_path, monkeypatch, iteration, later):
    """A signal in the first batch, or in the second."""
    log, seen = member.MemberRun.log, []

    def stopping(self, row, states, place):
        if row["iteration"] == iteration and place == 0:
            seen.append(self.path.name)
            if len(seen) == 1 + later:
                signal.raise_signal(signal.SIGTERM)
        return log(self, row, states, place)

    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "log", stopping)
        with pytest.raises(ppax.Interrupted):
            swept(tmp_path)
    assert {"RUNNING"} <= {trial.state.name for trial in trials_of(tmp_path)}
    ppax.resume_sweep(tmp_path)
    assert_same_study(tmp_path, whole.run_dir)


@pytest.mark.parametrize(
    "place", ["before the record", "before a decision", pytest.param("before the value", marks=NIGHTLY)]
)
def test_a_killed_study_resumes_bit_for_bit(whole, tmp_path, monkeypatch, place):
    """A kill after a proposal and before its record; between report and decision; after training, before the value."""

    class KilledError(BaseException):
        pass

    def killed(owner, name, call):
        original, calls = getattr(owner, name), []

        def wrapped(*args, **kwargs):
            calls.append(name)
            if len(calls) == call:
                raise KilledError
            return original(*args, **kwargs)

        return owner, name, wrapped

    where = {
        "before the record": (directory, "write_programs", 4),  # of the second batch
        "before a decision": (runs.Searching, "decide", 2),
        "before the value": (Study, "tell", 2),
    }[place]
    if place == "before a decision":  # the pruner has seen the scores
        where = ("ppax.sweeps.decisions.Decisions.add", None, None)
    with monkeypatch.context() as patch:
        if where[1] is None:
            from ppax.sweeps.decisions import Decisions

            patch.setattr(*killed(Decisions, "add", 1))
        else:
            patch.setattr(*killed(*where))
        with pytest.raises(KilledError):
            swept(tmp_path)
    ppax.resume_sweep(tmp_path)
    assert_same_study(tmp_path, whole.run_dir)


def test_trials_that_cannot_be_trained_count_as_pruned(tmp_path):
    """Nine minibatches do not divide a rollout of 128 rows, and a huge rate is not finite in its first iteration."""
    values = {MINIBATCHES: [4, 9], RATE: [1e-3, 1e30]}
    with pytest.warns(UserWarning, match=r"trial \d cannot be trained: sweep, member .*9"):
        result = swept(tmp_path, values=values, trials=8, pruner="none")
    known = []
    for trial in trials_of(tmp_path):
        own = [one for one in result.members if one.values[RATE] == float(trial.params[RATE])]
        if trial.params[MINIBATCHES] == "9":
            assert trial.state.name == "PRUNED"
            assert "member" in trial.user_attrs["ppax.why"]
        elif float(trial.params[RATE]) > 1.0:
            assert trial.state.name == "PRUNED"
            assert trial.user_attrs["ppax.why"] == "a member was dropped, or has no score"
            assert all(one.dropped for one in own)
        else:
            assert trial.state.name == "COMPLETE"
            known.append(trial.value)
    assert known
    assert max(known) == result.settings[0].iqm
    assert [one.number for one in result.members] == list(range(len(result.members)))


@pytest.mark.parametrize("trials", [3, 6])
def test_a_batch_of_invalid_trials_does_not_end_a_study(tmp_path, trials):
    """The random sampler proposes five invalid numbers of minibatches, and then a valid one; batches have one trial."""
    values, search = {MINIBATCHES: [4, 9, 7, 5]}, Optuna(trials=trials, batch=1, sampler="random", seed=56)
    end = (
        contextlib.nullcontext()
        if trials == 6
        else pytest.raises(ConfigError, match=r"none of the 3 trials .* can be trained; .*num_minibatches = 5")
    )
    found = []
    with pytest.warns(UserWarning, match="cannot be trained"), end:
        found.append(ppax.sweep_runs(BASE, values, search=search, run_dir=tmp_path))
    assert [one.values[MINIBATCHES] for result in found for one in result.members] == [4] * (trials == 6)
    states = [trial.state.name for trial in trials_of(tmp_path)]
    assert states == [*["PRUNED"] * 5, "COMPLETE"][:trials]


def test_workers_share_a_study(tmp_path, monkeypatch):
    """A second worker begins with what the first has found; its best.toml is the best of both."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    first = swept(tmp_path / "first", storage=url, trials=2, pruner="none")
    with pytest.raises(ConfigError, match=r"search\.study = 'ppax': its 2 trials are done; raise search\.trials"):
        swept(tmp_path / "late", storage=url, trials=2, pruner="none")
    monkeypatch.setattr(rounds, "iqm", lambda scores: -1.0)  # all that the second finds is worse
    second = swept(tmp_path / "second", storage=url, trials=5, pruner="none")
    assert len(second.members) == 3 * SEEDS
    assert {t.number for t in trials_of(tmp_path)} == set(range(5))
    best = config.read(second.best)
    assert best == config.read(first.best)
    assert f"score {first.settings[0].iqm:.4g}, of " in second.study
    assert str(tmp_path / "first" / "members") in second.study


def test_a_worker_waits_for_the_trials_of_others(tmp_path, monkeypatch):
    """Once the budget is spent it repeats what a lost worker leaves behind, and ends when all trials have ended."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    search = Optuna(trials=3, batch=2, sampler="random", storage=url, patience=2)
    (tmp_path / "lost").mkdir()
    plan = runs.plan.read({**VALUES, "seeds": SEEDS, "search": search})
    lost = Study(tmp_path / "lost", plan, runs._decided(config.resolve(config.completed(BASE).config), plan))
    left = lost.ask(2)
    monkeypatch.setattr(rounds, "WAIT_SECONDS", 0.2)
    result = swept(tmp_path / "alive", search=search)
    states = [trial.state.name for trial in trials_of(tmp_path)]
    assert states.count("COMPLETE") == 3
    assert states.count("FAIL") == 2
    values = [one.values for one in result.members]
    assert all(one.values in values for one in left)
    assert len(values) == 3 * SEEDS


def test_a_paused_worker_leaves_its_trials_to_others(tmp_path, monkeypatch):
    """Members of a trial that another worker repeats train no further."""
    url = f"sqlite:///{tmp_path / 'study.db'}"
    search = dataclasses.replace(SEARCH, storage=url, patience=2, trials=2, pruner="none")
    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "log", signalling(member.MemberRun.log, 3))
        with pytest.raises(ppax.Interrupted):
            swept(tmp_path / "paused", search=search)
    monkeypatch.setattr(rounds, "WAIT_SECONDS", 0.2)
    other = swept(tmp_path / "other", search=search)
    assert len(other.members) == 2 * SEEDS
    with pytest.raises(imports.Untrusted, match=r"search\.storage = .*study\.db"):  # the file may be a stranger's
        ppax.resume_sweep(tmp_path / "paused")
    with imports.trusting([url]):
        resumed = ppax.resume_sweep(tmp_path / "paused")
    assert [rows_of(one.run_dir)[-1]["iteration"] for one in resumed.members] == [3] * 2 * SEEDS
    assert all(math.isnan(one.score) for one in resumed.members)
    assert config.read(resumed.best) == config.read(other.best)


def test_environments_on_the_host_take_a_study(tmp_path):
    base = BASE | {"env": "gymnasium/CartPole-v1", "total_steps": 256}
    search = Optuna(trials=2, batch=2, sampler="random")
    result = ppax.sweep_runs(base, {RATE: [1e-3, 3e-3]}, search=search, run_dir=tmp_path)
    assert len(result.members) == 2
    assert all(np.isfinite(one.score) for one in result.members)
    with pytest.raises(ConfigError, match="is on the host"):
        ppax.sweep_runs(base, {RATE: [1e-3]}, search=Optuna(pruner="median", reports=1), run_dir=tmp_path / "pruned")
    assert not (tmp_path / "pruned").exists()


def test_more_reports_than_iterations_are_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"search\.reports = 8: must be below the 8 iterations; nearest valid value: 7"
    ):
        swept(tmp_path / "new", reports=8)
    assert not (tmp_path / "new").exists()


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
    real = __import__("builtins").__import__

    def imported(name, *args, **kwargs):
        if name.startswith("ppax.sweeps.studies"):
            raise ImportError("No module named 'optuna'", name="optuna")
        return real(name, *args, **kwargs)

    monkeypatch.setattr("builtins.__import__", imported)
    with pytest.raises(ConfigError, match=r'optuna is not installed: pip install "ppax\[optuna\]"'):
        swept(tmp_path)
    assert directory.read(tmp_path).members == ()
