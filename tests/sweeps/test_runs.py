"""Sweeps as run directories: members equal runs of their own, kills, members that are dropped or stop, the result."""

import contextlib
import json
import math
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import ppax
from ppax import config
from ppax.cli.main import main
from ppax.core import imports
from ppax.core.protocols import ConditionState
from ppax.loggers import last_row
from ppax.run import checkpoint
from ppax.run.fit import fit_run
from ppax.run.logging import RunLoggers
from ppax.sweeps import directory, member, packing, plan, results, runs, training
from ppax.training.loop import MEASURED
from support.sweeping import compilations, signalling
from support.told import Told

pytestmark = pytest.mark.usefixtures("vmapped_keys", "quick_programs", "cached_programs", "shared_sweeps")

BASE = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 16,
    "total_steps": 640,  # 10 iterations
    "agent": {
        "num_epochs": 1,
        "minibatch": {"num_minibatches": 4},
        "network": {"hidden": [8]},
        "schedule": {"part": "constant"},
    },
    "eval": {"episodes": 4, "every": 5},
    "log": {"console": False, "checkpoint_every": 3, "keep": 1},
}
HUGE = 1e30  # a learning rate with which the first iteration is not finite
VALUES = {"agent.learning_rate": [1e-2, HUGE, 1e-3], "env_params.gravity": [9.8, 30.0]}
SEEDS = [0, 5]
FINITE = (0, 1, 2, 3, 8, 9, 10, 11)


def rows_of(path):
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: "NaN" if x is None else x for name, x in row.items() if name not in MEASURED} for row in rows]


def learner_of(path):
    """Arrays of the newest checkpoint's learner by name."""
    newest, skipped = checkpoint.newest_valid(path / "checkpoints")
    assert skipped == []
    arrays = checkpoint.read_arrays(newest).arrays
    return {name: x for name, x in arrays.items() if name.startswith("learner.")}


def members_of(path):
    return [path / "members" / f"{number:03d}" for number in range(12)]


_whole = {}


@pytest.fixture
def whole(tmp_path_factory):
    """Sweep of twelve members, of which the four in the middle are dropped; trained once."""
    if not _whole:
        path = tmp_path_factory.mktemp("whole")
        _whole["result"] = ppax.sweep_runs(BASE, VALUES, seeds=SEEDS, run_dir=path)
    return _whole["result"]


@pytest.mark.usefixtures("shared_programs")
@pytest.mark.parametrize("number", [1, 10])
def test_a_member_equals_a_run_of_its_own(whole, number, tmp_path):
    run_dir = members_of(whole.run_dir)[number]
    run_config = config.read(run_dir / "run.toml")
    rate, gravity, seed = {1: (1e-2, 9.8, 5), 10: (1e-3, 30.0, 0)}[number]
    assert (run_config["agent"]["learning_rate"], run_config["seed"]) == (rate, seed)
    assert run_config["env_params"] == {"gravity": gravity}
    alone = fit_run(*config.build(run_config), tmp_path / "alone")
    assert (tmp_path / "alone" / "run.toml").read_bytes() == (run_dir / "run.toml").read_bytes()
    assert (tmp_path / "alone" / "policy.json").read_bytes() == (run_dir / "policy.json").read_bytes()
    own, other = learner_of(run_dir), learner_of(tmp_path / "alone")
    assert own.keys() == other.keys()
    for name in own:
        np.testing.assert_allclose(own[name], other[name], atol=1e-5, err_msg=name)
    rows, others = rows_of(run_dir), rows_of(tmp_path / "alone")
    assert len(rows) == 11  # the untrained policy, and ten iterations
    for row, expected in zip(rows, others, strict=True):
        assert row.keys() == expected.keys()
        for name in row:
            assert row[name] == expected[name] or row[name] == pytest.approx(expected[name], rel=1e-3, abs=1e-4)
    score = json.loads((run_dir / "evaluation.json").read_text())["mean_return"]
    assert score == alone.evaluate(4, True, run_config["seed"]).mean_return


@pytest.mark.nightly
@pytest.mark.usefixtures("shared_programs")
def test_each_of_64_members_equals_a_run_of_its_own(tmp_path):
    """16 learning rates and 4 seeds, 10 iterations."""
    base, rates = BASE | {"eval": {"episodes": 1}}, np.geomspace(1e-4, 1e-2, 16).round(6).tolist()
    result = ppax.sweep_runs(base, {"agent.learning_rate": rates}, seeds=4, run_dir=tmp_path / "sweep")
    assert len(result.members) == 64
    for one in result.members:
        alone = tmp_path / one.run_dir.name
        fit_run(*config.build(config.read(one.run_dir / "run.toml")), alone)
        own, other = learner_of(one.run_dir), learner_of(alone)
        assert own.keys() == other.keys()
        for name in own:
            np.testing.assert_allclose(own[name], other[name], atol=1e-5, err_msg=f"{one.run_dir.name}: {name}")


def test_settings_differ(whole):
    """Members that learn at another rate, under another gravity or from another seed have other weights."""
    weights = [np.concatenate([x.ravel() for x in learner_of(members_of(whole.run_dir)[i]).values()]) for i in FINITE]
    for i, one in enumerate(weights):
        for other in weights[:i]:
            assert np.abs(one - other).max() > 1e-4


def test_members_that_are_not_finite_are_dropped_alone(whole):
    assert [one.number for one in whole.dropped] == [4, 5, 6, 7]
    for one in whole.dropped:
        assert one.dropped == "iteration 1 is not finite"
        assert json.loads((one.run_dir / "stopped.json").read_text())["kind"] == "fault"
        assert rows_of(one.run_dir)[1:] == []  # the evaluation of the untrained policy alone
        assert not (one.run_dir / "evaluation.json").exists()
        assert np.isnan(one.score)
    with pytest.raises(ppax.NumericalError, match="iteration 1 is not finite"):
        ppax.resume(shutil.copytree(whole.dropped[0].run_dir, whole.run_dir.parent / "copy"))
    assert [json.loads((m / "stopped.json").read_text())["kind"] for m in members_of(whole.run_dir)] == (
        ["done"] * 4 + ["fault"] * 4 + ["done"] * 4
    )


@pytest.fixture
def told(monkeypatch):
    """What a logger of each member is told, by the number of the member."""
    found = {}

    class WithOne(RunLoggers):
        def __init__(self, path, loggers, *rest):
            one = Told()
            found[path.name] = one.told
            super().__init__(path, [*loggers, one], *rest)

    monkeypatch.setattr(member, "RunLoggers", WithOne)
    return found


@pytest.mark.usefixtures("shared_programs")
def test_loggers_are_told_which_members_were_dropped(told, tmp_path):
    ppax.sweep_runs(BASE, {"agent.learning_rate": [1e-2, HUGE]}, run_dir=tmp_path / "sweep")
    assert told["000"] == ["closed"]
    assert told["001"] == ["NumericalError('iteration 1 is not finite')", "closed"]


@pytest.mark.usefixtures("shared_programs")
@pytest.mark.parametrize(
    ("end", "heard"),
    [(RuntimeError("boom"), ["RuntimeError('boom')", "closed"]), (training.SweepStopped(), ["closed"])],
)
def test_loggers_of_members_that_train_are_told_of_a_failure_of_the_sweep(told, tmp_path, monkeypatch, end, heard):
    """After the save at iteration 3; a member that a condition has ended before is none that failed."""
    saved, before = [], training.ProgramTraining._save

    def save(self, iteration, states):
        before(self, iteration, states)
        saved.append(iteration)
        if iteration:
            raise end

    monkeypatch.setattr(training.ProgramTraining, "_save", save)
    base = BASE | {"stop": "env_steps >= 64 and learning_rate >= 0.005"}
    with contextlib.suppress(RuntimeError, ppax.Interrupted):
        ppax.sweep_runs(base, {"agent.learning_rate": [1e-2, 1e-3]}, run_dir=tmp_path / "sweep")
    assert saved[-1] == 3
    assert told == {"000": ["closed"], "001": heard}


def test_the_result_ranks_settings_by_the_iqm_over_seeds(whole):
    """Of two seeds the IQM is the mean; a member without a score counts as the worst."""
    scores = {
        i: json.loads((members_of(whole.run_dir)[i] / "evaluation.json").read_text())["mean_return"] for i in FINITE
    }
    means = {setting: (scores[2 * setting] + scores[2 * setting + 1]) / 2 for setting in (0, 1, 4, 5)}
    order = sorted(means, key=lambda setting: -means[setting])
    ranked = [setting.members[0].number // 2 for setting in whole.settings]
    assert ranked[:4] == order
    assert [setting.iqm for setting in whole.settings[:4]] == [means[setting] for setting in order]
    assert set(ranked[4:]) == {2, 3}
    assert all(setting.iqm == -np.inf for setting in whole.settings[4:])
    best = members_of(whole.run_dir)[2 * order[0]]
    text = whole.best.read_text()
    assert text.endswith((best / "run.toml").read_text())
    head = text.removesuffix((best / "run.toml").read_text()).splitlines()
    assert all(line.startswith("# ") for line in head[:-1])
    assert head[-1] == ""
    # as all members: on several devices, sums have another order, and the run file would not repeat the member
    assert config.read(whole.best)["agent"]["program"]["devices"] == 1
    assert json.loads((whole.run_dir / "result.json").read_text()) == whole.to_dict()
    settings, members, *_ = (block.splitlines() for block in str(whole).split("\n\n"))
    assert (len(settings), len(members)) == (7, 13)
    assert members[1].startswith(best.name)
    assert sum("dropped: iteration 1" in line for line in members) == 4


def test_reloading_a_finished_sweep_compiles_nothing(whole, tmp_path, capsys):
    copy = tmp_path / "copy"
    shutil.copytree(whole.run_dir, copy)
    with compilations() as compiled:
        again = ppax.resume_sweep(copy)
    assert compiled == []
    assert capsys.readouterr().out == ""
    assert str(again) == str(whole)
    assert again.best.read_text() == whole.best.read_text()
    # without a score a member is evaluated again, and that is compiled
    (members_of(copy)[0] / "evaluation.json").unlink()
    with compilations() as compiled:
        assert str(ppax.resume_sweep(copy)) == str(whole)
    assert compiled


def test_pictures_that_are_missing_are_drawn_when_a_sweep_is_reloaded(whole, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole.run_dir, copy)
    (copy / "members.png").unlink()
    ppax.resume_sweep(copy)
    assert (copy / "members.png").exists()


def test_members_are_ordinary_runs(whole, tmp_path):
    run_dir = Path(shutil.copytree(members_of(whole.run_dir)[0], tmp_path / "member"))
    assert ppax.load(run_dir).act(np.zeros(4, np.float32)) in (0, 1)
    assert [saved.iteration for saved in ppax.checkpoints(run_dir)] == [10]
    longer = ppax.resume(run_dir, total_steps=704)
    assert int(longer.state.iteration) == 11
    assert "000" in str(ppax.compare([members_of(whole.run_dir)[0], members_of(whole.run_dir)[1]]))


class Killed(BaseException):
    """Stands for a kill: nothing in ppax catches it."""


def assert_same_sweep(one, other):
    for a, b in zip(members_of(one), members_of(other), strict=True):
        assert rows_of(a) == rows_of(b)
        states = [checkpoint.newest_valid(x / "checkpoints")[0] for x in (a, b)]
        assert states[0].name == states[1].name
        data = [(path / "state.safetensors").read_bytes() for path in states]
        assert data[0] == data[1]
    results = [json.loads((x / "result.json").read_text().replace(str(x), "")) for x in (one, other)]
    assert results[0] == results[1]
    assert last_row(one / "sweep.jsonl")["env_steps"] == last_row(other / "sweep.jsonl")["env_steps"]


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(  # in the first save, the third, at the end
    "saves", [pytest.param(3, marks=NIGHTLY), 17, pytest.param(30, marks=NIGHTLY)]
)
def test_a_killed_sweep_resumes_bit_for_bit(whole, saves, tmp_path, monkeypatch):
    """Killed while checkpoints are written: some members have a newer one than others."""
    save, count = member.MemberRun.save, []

    def counted(self, state):
        count.append(self)
        if len(count) == 4 + saves:  # the dropped members are saved first
            raise Killed
        save(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "save", counted)
        with pytest.raises(Killed):
            ppax.sweep_runs(BASE, VALUES, seeds=SEEDS, run_dir=tmp_path)
    ppax.resume_sweep(tmp_path)
    assert_same_sweep(tmp_path, whole.run_dir)
    assert ppax.resume_sweep(tmp_path).settings[0].iqm == whole.settings[0].iqm  # nothing left to do
    assert_same_sweep(tmp_path, whole.run_dir)


@pytest.mark.nightly
def test_a_kill_between_checkpoints_leaves_those_before(tmp_path, monkeypatch):
    """With one checkpoint kept, a member has two of them until all others have the newer one."""
    save, count = member.MemberRun.save, []

    def counted(self, state):
        count.append(int(state.iteration))
        if count.count(6) == 2:
            raise Killed
        save(self, state)

    monkeypatch.setattr(member.MemberRun, "save", counted)
    with pytest.raises(Killed):
        ppax.sweep_runs(BASE, {"agent.learning_rate": [1e-2, 1e-3]}, run_dir=tmp_path)
    found = [sorted(path.name for path in tmp_path.glob(f"members/00{i}/checkpoints/*")) for i in (0, 1)]
    assert found == [["0000000003", "0000000006"], ["0000000003"]]


@pytest.mark.nightly
def test_a_damaged_checkpoint_of_one_member_sends_all_back(whole, tmp_path, monkeypatch):
    base = BASE | {"log": BASE["log"] | {"keep": 2}}
    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "evaluate", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            ppax.sweep_runs(base, VALUES, seeds=SEEDS, run_dir=tmp_path)
    for one in members_of(tmp_path):
        if json.loads((one / "stopped.json").read_text())["kind"] == "done":
            (one / "stopped.json").unlink()
    state = tmp_path / "members" / "003" / "checkpoints" / "0000000010" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.warns(UserWarning, match="skipped a damaged checkpoint"):
        ppax.resume_sweep(tmp_path)
    assert_same_sweep(tmp_path, whole.run_dir)


@pytest.mark.nightly
def test_a_signal_saves_all_and_resumes(whole, tmp_path, monkeypatch):
    stopping = signalling(member.MemberRun.log, 4)

    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "log", stopping)
        with pytest.raises(ppax.Interrupted, match=f"ppax resume {tmp_path}"):
            ppax.sweep_runs(BASE, VALUES, seeds=SEEDS, run_dir=tmp_path)
    assert {path.name for path in tmp_path.glob("members/*/checkpoints/*")} == {"0000000000", "0000000004"}
    ppax.resume_sweep(tmp_path)
    assert_same_sweep(tmp_path, whole.run_dir)


@pytest.mark.nightly
def test_members_of_several_programs_equal_those_of_one(whole, tmp_path, monkeypatch):
    """Twelve members in programs of at most five: three of four, which is even."""
    monkeypatch.setattr(training, "members_that_fit", lambda *_: 5)
    ppax.sweep_runs(BASE, VALUES, seeds=SEEDS, run_dir=tmp_path)
    assert directory.read(tmp_path).programs == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11))
    for i in FINITE:
        own, other = (learner_of(members_of(x)[i]) for x in (tmp_path, whole.run_dir))
        for name in own:
            np.testing.assert_allclose(own[name], other[name], atol=1e-5, err_msg=name)


def packed_numbers(values, base=BASE):
    members = plan.members_of(config.resolve(base), plan.read(values))
    return [tuple(task.member.number for task in pack.tasks) for pack in packing.packed(members)]


def test_members_that_differ_in_numbers_alone_share_a_program():
    numbers = {"agent.gamma": [0.9, 0.99], "agent.loss.clip_eps": [0.1, 0.2], "env_params.half_length": [0.4, 0.6]}
    assert packed_numbers(numbers) == [tuple(range(8))]
    assert packed_numbers({"env_params.half_length": [{"low": 0.1, "high": 0.2}, {"low": 0.3, "high": 0.4}]}) == [
        (0, 1)
    ]
    for path, pair in {
        "agent.network.hidden": [[4], [8]],
        "num_envs": [4, 8],
        "total_steps": [640, 1280],
        "agent.loss.part": ["clipped", "spo"],
        "eval.every": [1, 2],
        "env": ["CartPole-v1", "Acrobot-v1"],
    }.items():
        assert packed_numbers({path: pair}) == [(0,), (1,)], path


def test_a_schedule_of_the_environment_is_swept():
    base = BASE | {"schedule": {"part": "linear", "leaves": ["env.gravity"], "end": 20.0}}
    members = plan.members_of(config.resolve(base), plan.read({"schedule.end": [20.0, 30.0]}))
    (pack,) = packing.packed(members)
    assert [float(task.env.schedule.end) for task in pack.tasks] == [20.0, 30.0]


@pytest.mark.nightly
def test_a_stop_condition_ends_one_member_alone(tmp_path):
    """The member with learning rate 0 never changes its learning rate's column: the other one's is 0.01."""
    base = BASE | {"stop": "learning_rate <= 1e-5", "eval": {"episodes": 2}}
    result = ppax.sweep_runs(base, {"agent.learning_rate": [1e-2, 1e-6]}, run_dir=tmp_path)
    ends = [json.loads((one.run_dir / "stopped.json").read_text()) for one in result.members]
    assert [(end["kind"], end["iteration"]) for end in ends] == [("done", 10), ("stopped", 1)]
    assert [len(rows_of(one.run_dir)) for one in result.members] == [10, 1]
    assert result.dropped == ()
    assert all(np.isfinite(one.score) for one in result.members)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"num_envs": 3, "num_steps": 7}, r"sweep, member 0: a rollout of num_steps 7"),
    ],
)
def test_settings_that_no_sweep_has_are_refused_before_anything_is_written(options, text, tmp_path):
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.sweep_runs(BASE | options, {"agent.gamma": [0.9]}, run_dir=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


def test_a_directory_in_use_or_with_a_sweep_is_refused(whole, tmp_path):
    with pytest.raises(ppax.ConfigError, match=r"already holds a sweep, which is finished"):
        ppax.sweep_runs(BASE, VALUES, run_dir=whole.run_dir)
    with pytest.raises(ppax.ConfigError, match="is not a sweep directory"):
        ppax.resume_sweep(tmp_path)


@pytest.mark.parametrize("target", ["CartPole-v1", {"env": "CartPole-v1"}, "mine.toml"])
def test_a_sweep_begins_from_the_settings_of_ppax_train(target, tmp_path, monkeypatch):
    """The first thing that a sweep does with its configuration is replaced; nothing trains."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('env = "CartPole-v1"\n[sweep]\nseeds = 2\n')
    started = []
    monkeypatch.setattr(runs, "start", lambda run_config, *_, **__: started.append(run_config))
    ppax.sweep_runs(target, seeds=2)
    assert started == [config.resolve(config.completed({"env": "CartPole-v1"}).config)]
    assert started[0]["num_steps"] == 32  # by the class: 128


def test_what_build_returns_is_a_target():
    built = ppax.build("CartPole-v1", total_steps=640)
    assert config.resolve(runs.config_of(built)) == config.resolve(config.describe_run(*built))
    env = ppax.make("CartPole-v1", 4)
    own = built._replace(agent=ppax.PPO(ppax.networks.mlp(env), loss=lambda *_: None))
    with pytest.raises(ppax.ConfigError, match="cannot hold agent"):
        runs.config_of(own)


def test_settings_of_several_environments_are_ranked_within_each_and_none_is_the_best(tmp_path, capsys):
    base = BASE | {"total_steps": 64, "eval": {"episodes": 2}, "log": {"console": False}}
    envs = ["Pendulum-v1", "CartPole-v1"]  # returns of the first are below those of the second
    result = ppax.sweep_runs(base, {"env": envs, "agent.learning_rate": [1e-2, 1e-6]}, run_dir=tmp_path / "sweep")
    assert [setting.values["env"] for setting in result.settings] == [envs[0], envs[0], envs[1], envs[1]]
    assert all(one.iqm >= other.iqm for one, other in (result.settings[:2], result.settings[2:]))
    assert result.best is None
    assert result.environments == tuple(envs)
    assert not (tmp_path / "sweep/best.toml").exists()
    assert repr(result).endswith("of 2 environments)")
    assert main(["resume", str(tmp_path / "sweep")]) == 0
    assert "returns of 2 environments are not compared: there is no best.toml" in capsys.readouterr().out
    ppax.sweep_runs(base | {"agent": {"learning_rate": HUGE}}, {"env": envs}, run_dir=tmp_path / "none")
    assert main(["resume", str(tmp_path / "none")]) == 4  # no member has a score


@pytest.mark.nightly
def test_environments_on_the_host_train_one_after_the_other(tmp_path):
    base = BASE | {
        "env": "gymnasium/CartPole-v1",
        "total_steps": 128,
        "eval": {"episodes": 2},
        "log": {"console": False},
    }
    result = ppax.sweep_runs(base, {"agent.learning_rate": [1e-2, HUGE]}, seeds=2, run_dir=tmp_path / "sweep")
    assert [bool(one.dropped) for one in result.members] == [False, False, True, True]
    second = result.members[1]
    alone = config.build(config.read(second.run_dir / "run.toml"))
    with alone.env:
        fit_run(*alone, tmp_path / "alone")
    mine, other = learner_of(second.run_dir), learner_of(tmp_path / "alone")
    for name in mine:
        np.testing.assert_array_equal(mine[name], other[name])
    assert ppax.resume_sweep(tmp_path / "sweep").to_dict() == result.to_dict()


def test_notes_are_of_the_members_that_have_begun(tmp_path):
    """A member of a study that another worker has repeated has a directory without a run file."""
    made = [results.MemberResult(n, {}, 0, math.nan, math.nan, 0, "", tmp_path / str(n)) for n in range(2)]
    settings = tuple(results.SettingResult({}, (one,), -math.inf, math.nan, math.nan) for one in made)
    assert results.SweepResult(tmp_path, settings, None).notes() == []


CONTRADICTIONS = {
    "of an extension": (
        {"agent": {"extensions": {"entropy_target": {"target": 0.4}}}},
        {"agent.ent_coef": [0.01, 0.0]},
        "member 1: ent_coef = 0: entropy_target multiplies it",
    ),
    "of a schedule": (
        {"agent": {"schedule": {"part": "linear", "leaves": ["gamma"]}}},
        {"agent.schedule.end": [0.9, 1.5]},
        "member 1: .*gamma",
    ),
    "of a metric": (
        {"stop": "clip_fraction >= 0.9"},
        {"agent.loss.part": ["clipped", "kl_penalty"]},
        "member 1: .*clip_fraction",
    ),
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_settings_of_every_member_are_checked_before_anything_compiles(kind):
    own, values, text = CONTRADICTIONS[kind]
    base = config.resolve(BASE | own | {"agent": BASE["agent"] | own.get("agent", {})})
    with pytest.raises(ppax.ConfigError, match=text):
        runs.dry_run(base, plan.read(values))


class Reading:
    """Stop condition of a user that reads weights of the training state; met in the second iteration."""

    metrics = ()

    def update(self, before, state, row):
        weights = np.asarray(state.learner.params["policy"]["kernel"])
        assert weights.shape == (8, 2)
        return ConditionState(row["iteration"] >= 2 and bool(np.isfinite(weights).all()), "read")


def test_a_users_stop_condition_may_read_the_training_state(tmp_path, monkeypatch):
    """As in a run of its own, it gets the member's state, and not shapes."""
    monkeypatch.setitem(sys.modules, "own_stop", SimpleNamespace(Reading=Reading))
    monkeypatch.setattr(Reading, "__module__", "own_stop")
    base = BASE | {"stop": "own_stop:Reading", "log": {"console": False, "every": 1}}
    with imports.trusting(["own_stop"]):
        ppax.sweep_runs(base, {"agent.learning_rate": [1e-2, 1e-3]}, run_dir=tmp_path)
    assert [rows_of(path)[-1]["iteration"] for path in members_of(tmp_path)[:2]] == [2, 2]
