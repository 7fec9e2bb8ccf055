"""Searches while members train: decisions from the rows on disk, copies inside a program, kills, the result."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

import ppax
from ppax import config
from ppax.core import imports
from ppax.run import checkpoint
from ppax.run.restore import fresh_state
from ppax.sweeps import (
    PBT,
    Halving,
    LogUniform,
    directory,
    member,
    plan,
    results,
    runs,
    training,
)
from ppax.sweeps.decisions import Decisions, Searching, Stage, lineage_of, scheduled_values
from ppax.training.loop import MEASURED
from ppax.training.sweeps import MemberStates, stacked, with_learners
from support.sweeping import compilations, signalling

pytestmark = pytest.mark.usefixtures("vmapped_keys", "quick_programs", "cached_programs", "shared_sweeps")

BASE = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "num_steps": 32,
    "total_steps": 1024,  # 8 iterations
    "agent": {"num_epochs": 1, "network": {"hidden": [8]}, "schedule": {"part": "constant"}},
    "eval": {"episodes": 2},
    "log": {"console": False, "checkpoint_every": 1, "keep": 1},
}
VALUES = {"agent.learning_rate": LogUniform(1e-4, 3e-2), "agent.ent_coef": LogUniform(1e-4, 1e-1)}
MEMBERS = 6
SEARCHES = {
    "pbt": PBT(interval=2, fraction=0.34),
    "halving": Halving(eta=2, rungs=2),
    "none": None,
}
NIGHTLY = pytest.mark.nightly


def rows_of(path):
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{name: x for name, x in row.items() if name not in MEASURED} for row in rows]


def learner_of(path):
    """Arrays of the newest checkpoint's learner by name."""
    arrays = checkpoint.read_arrays(checkpoint.newest_valid(path / "checkpoints")[0]).arrays
    return {name: x for name, x in arrays.items() if name.startswith("learner.")}


def members_of(path):
    return [path / "members" / f"{number:03d}" for number in range(MEMBERS)]


def decisions_of(path):
    return [json.loads(line) for line in (path / "search.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch):
    monkeypatch.setattr(runs.pictures, "draw", lambda result: [])


def swept(name, path):
    return ppax.sweep_runs(BASE, VALUES, draws=MEMBERS, search=SEARCHES[name], run_dir=path)


_whole = {}


@pytest.fixture
def whole(tmp_path_factory):
    """Result of an uninterrupted sweep with the search of this name; each is trained once."""

    def of(name):
        if name not in _whole:
            _whole[name] = swept(name, tmp_path_factory.mktemp(name))
        return _whole[name]

    return of


def assert_same_bits(one, other):
    own, others = learner_of(one), learner_of(other)
    assert own.keys() == others.keys()
    for name in own:
        np.testing.assert_array_equal(own[name], others[name], err_msg=name)


def assert_same_sweep(one, other):
    for a, b in zip(members_of(one), members_of(other), strict=True):
        assert rows_of(a) == rows_of(b)
        states = [checkpoint.newest_valid(x / "checkpoints")[0] for x in (a, b)]
        assert states[0].name == states[1].name
        assert (states[0] / "state.safetensors").read_bytes() == (states[1] / "state.safetensors").read_bytes()
    assert decisions_of(one) == decisions_of(other)
    found = [json.loads((x / "result.json").read_text().replace(str(x), "")) for x in (one, other)]
    assert found[0] == found[1]


def test_a_copy_has_the_learner_of_its_source_and_its_own_environments_and_key():
    agent, env, run = config.build(BASE)
    states = [fresh_state(agent, env, run.__class__(num_envs=4, num_steps=32, seed=seed)) for seed in range(3)]
    before = MemberStates(stacked(states), 3)
    after = MemberStates(with_learners(stacked(states), np.array([0, 2, 2])), 3)
    for place, source in enumerate((0, 2, 2)):
        for x, y in zip(jax.tree.leaves(after[place].learner), jax.tree.leaves(before[source].learner), strict=True):
            np.testing.assert_array_equal(x, y)
        own = [jax.tree.leaves((s.actor, jax.random.key_data(s.key))) for s in (after[place], before[place])]
        for x, y in zip(*own, strict=True):
            np.testing.assert_array_equal(x, y)
    kernels = [np.concatenate([np.ravel(x) for x in jax.tree.leaves(before[i].learner.params)]) for i in range(3)]
    assert np.abs(kernels[1] - kernels[2]).max() > 0.01
    assert not np.array_equal(*(jax.random.key_data(before[i].key) for i in (1, 2)))


def expected_score(rows, since, iteration):
    """Mean return of the newest five rows in which an episode ended."""
    known = [row["episode_return"] for row in rows if since < row["iteration"] <= iteration]
    known = [x for x in known if x is not None][-5:]
    return sum(known) / len(known) if known else None


@pytest.mark.parametrize(("name", "decided"), [("pbt", (2, 4, 6)), ("halving", (2, 4))])
def test_scores_are_means_of_recent_rows(whole, name, decided):
    path = whole(name).run_dir
    found = decisions_of(path)
    assert sorted({row["iteration"] for row in found}) == list(decided)
    for row in found:
        since = max([0, *(x for x in decided if x < row["iteration"])])
        expected = expected_score(rows_of(members_of(path)[row["member"]]), since, row["iteration"])
        assert row["score"] == pytest.approx(expected, rel=1e-12)
        assert (row["decision"] == "on") == ("reason" not in row)


def test_halving_leaves_half_and_a_quarter(whole):
    """Of six members three train beyond iteration 2, and one beyond iteration 4."""
    result = whole("halving")
    by_rung = {i: [row for row in decisions_of(result.run_dir) if row["iteration"] == i] for i in (2, 4)}
    best = sorted(by_rung[2], key=lambda row: (-row["score"], row["member"]))
    assert [row["member"] for row in by_rung[2] if row["decision"] == "on"] == sorted(r["member"] for r in best[:3])
    assert [row["member"] for row in by_rung[4]] == sorted(r["member"] for r in best[:3])
    last = [[*rows_of(path)][-1]["iteration"] for path in members_of(result.run_dir)]
    assert sorted(last) == [2, 2, 2, 4, 4, 8]
    assert len(result.stopped) == 5
    for one in result.stopped:
        end = json.loads((one.run_dir / "stopped.json").read_text())
        assert (end["kind"], end["why"]) == ("search", one.stopped)
        assert one.stopped.startswith("stopped by halving at rung")
        assert end["iteration"] == last[one.number]
        assert int(checkpoint.newest_valid(one.run_dir / "checkpoints")[0].name) == end["iteration"]
        assert not (one.run_dir / "evaluation.json").exists()
    # those that trained longer rank higher, whatever their scores
    assert [last[setting.members[0].number] for setting in result.settings] == sorted(last, reverse=True)
    assert "stopped by halving at rung 1 of 2" in str(result)
    assert config.read(result.best) == config.read(result.settings[0].members[0].run_dir / "run.toml")
    assert directory.read(result.run_dir).programs == ((result.settings[0].members[0].number,),)  # a smaller one


@pytest.mark.parametrize("name", ["halving", "pbt"])
def test_members_that_no_decision_touches_equal_those_of_a_grid(whole, name):
    """Up to its end, each member has the rows of the same member without a search, to the last bit.

    From iteration 4 on, halving has one member left, in a program of its own: equal to rounding.
    """
    found, grid = whole(name).run_dir, whole("none").run_dir
    assert not (grid / "search.jsonl").exists()
    assert "search" not in config.read(grid / "sweep.toml")
    copied = {row["member"] for row in decisions_of(found) if row["decision"] == "copy"}
    untouched = [number for number in range(MEMBERS) if number not in copied]
    assert untouched
    for number in untouched:
        own, other = (members_of(path)[number] for path in (found, grid))
        rows, others = rows_of(own), rows_of(other)
        values = {path for path in VALUES if name == "pbt"}
        rows = [{key: x for key, x in row.items() if key not in values} for row in rows]
        exact = len(rows) if name == "pbt" else min(len(rows), 4)
        assert rows[:exact] == others[:exact]
        for row, expected in zip(rows[exact:], others[exact:], strict=True) if len(rows) == 8 else ():
            assert row == {key: pytest.approx(x, rel=1e-3, abs=1e-4) for key, x in expected.items()}
        if name == "pbt":
            assert_same_bits(own, other)


def test_a_population_copies_and_perturbs(whole, tmp_path, monkeypatch):
    """The copies that are recorded are those of the program, and rows have the values that they bring."""
    expected, seen = whole("pbt").run_dir, []

    def watched(states, sources):
        seen.append([int(x) for x in sources[:MEMBERS]])
        return with_learners(states, sources)

    monkeypatch.setattr(training, "with_learners", watched)
    result = swept("pbt", tmp_path)
    assert_same_sweep(tmp_path, expected)
    found = decisions_of(tmp_path)
    for iteration, sources in zip((2, 4, 6), seen, strict=True):
        copies = {row["member"]: row for row in found if row["iteration"] == iteration and row["decision"] == "copy"}
        assert len(copies) == 2
        assert sources == [copies[i]["source"] if i in copies else i for i in range(MEMBERS)]
        scores = {row["member"]: row["score"] for row in found if row["iteration"] == iteration}
        order = sorted(scores, key=lambda number: (-scores[number], number))
        assert set(copies) == set(order[-2:])
        assert {row["source"] for row in copies.values()} <= set(order[:2])
        for number, row in copies.items():
            after = [r for r in rows_of(members_of(tmp_path)[number]) if r["iteration"] == iteration + 1]
            assert {path: after[0][path] for path in VALUES} == row["values"]
            assert after[0]["learning_rate"] == pytest.approx(row["values"]["agent.learning_rate"], rel=1e-6)
    assert len(result.settings) == MEMBERS
    assert result.lineage[-1].values == result.settings[0].values


@pytest.mark.parametrize("name", SEARCHES)
def test_reloading_a_finished_search_compiles_nothing(whole, name, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(whole(name).run_dir, copy)
    with compilations() as compiled:
        again = ppax.resume_sweep(copy)
    assert compiled == []
    assert str(again) == str(whole(name))
    assert again.best.read_text() == whole(name).best.read_text()


def test_the_best_run_file_has_the_schedule_of_the_lineage(whole):
    """At each iteration its agent has the numbers with which the best learner was trained."""
    result = whole("pbt")
    agent, _, _ = config.build(config.read(result.best))
    for iteration in range(8):
        stage = [stage for stage in result.lineage if stage.iteration <= iteration][-1]
        now = agent.annealed(np.float32(iteration / 8), np.float32(0.0))
        assert float(now.learning_rate) == pytest.approx(stage.values["agent.learning_rate"], rel=1e-6)
        assert float(now.ent_coef) == pytest.approx(stage.values["agent.ent_coef"], rel=1e-6)


def test_a_lineage_goes_back_through_the_sources(tmp_path):
    """Member 0 copies 1 at 6, which had copied 2 at 4; 2 copied 0 only later, at 6, and 0 copied 1 at 2."""
    copies = [(6, 0, 1, 0.5), (4, 1, 2, 0.4), (6, 2, 0, 0.3), (2, 0, 1, 0.2), (2, 1, 0, 0.1)]
    rows = [
        {"iteration": i, "member": to, "score": 0.0, "decision": "copy", "source": source, "values": {"x": x}}
        for i, to, source, x in copies
    ]
    (tmp_path / "search.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stages = lineage_of(Decisions(tmp_path), 0, {number: {"x": float(number)} for number in range(3)})
    assert stages == (Stage(0, 2, {"x": 2.0}), Stage(4, 1, {"x": 0.4}), Stage(6, 0, {"x": 0.5}))


def test_a_lineage_goes_on_with_the_schedule_of_the_run():
    base = config.resolve(BASE | {"agent": {"schedule": {"part": "linear", "leaves": ["learning_rate"]}}})
    stages = [
        Stage(0, 0, {"agent.learning_rate": 1.0, "env_params.gravity": 9.0}),
        Stage(4, 1, {"agent.learning_rate": 2.0, "env_params.gravity": 8.0}),
    ]
    found = scheduled_values(base, stages, 8)
    assert found["env_params"] == {"gravity": 8.0}
    assert found["agent"]["schedule"]["part"] == "both"
    assert found["agent"]["schedule"]["second"] == base["agent"]["schedule"]
    first = found["agent"]["schedule"]["first"]
    assert (first["at"], first["values"]) == ([0.0, 3.5 / 8], [1.0, 2.0])


@pytest.mark.parametrize("group", ["prey", "my_agent", "agent"])
def test_a_lineage_of_a_group_is_a_schedule_of_its_agent(group):
    """Whatever the group is called; a parameter of the environment is none of an agent, whatever it is called."""
    groups = {group: {"players": [0]}, "others": {"players": [1, 2]}}
    base = config.resolve(BASE | {"env": "Pursuit-3", "groups": groups})
    rate, parameter = f"groups.{group}.agent.learning_rate", "env_params.agent.speed"
    stages = [Stage(0, 0, {rate: 1.0, parameter: 1.0}), Stage(4, 1, {rate: 2.0, parameter: 2.0})]
    found = scheduled_values(base, stages, 8)
    schedule = found["groups"][group]["agent"]["schedule"]
    assert (schedule["leaves"], schedule["values"]) == (["learning_rate"], [1.0, 2.0])
    assert found["env_params"] == {"agent": {"speed": 2.0}}


def newest_copy(path):
    """The last copy of a population whose member no later copy replaces."""
    return [row for row in decisions_of(path) if row["decision"] == "copy"][-1]


@pytest.mark.usefixtures("shared_programs")
def test_a_member_of_a_population_that_is_resumed_alone_goes_on_with_its_latest_values(whole, tmp_path):
    """And not with those of its beginning, which its run file had: the file is as new as the checkpoint."""
    copy = newest_copy(whole("pbt").run_dir)
    run_dir = Path(shutil.copytree(members_of(whole("pbt").run_dir)[copy["member"]], tmp_path / "member"))
    run_config = config.read(run_dir / "run.toml")
    manifest = json.loads((run_dir / "checkpoints" / "0000000008" / "manifest.json").read_text())
    for name, value in copy["values"].items():
        assert dict(config.flatten(run_config))[name] == value
        assert manifest["origin"]["config"][name] == value
    ppax.resume(run_dir, total_steps=10 * 128, console=False)  # no warning: an error in these tests
    last = rows_of(run_dir)[-1]
    assert last["iteration"] == 10
    assert last["learning_rate"] == pytest.approx(copy["values"]["agent.learning_rate"], rel=1e-6)


def test_a_member_of_a_population_has_values_and_checkpoint_of_one_iteration(whole, tmp_path, monkeypatch):
    """A kill before the checkpoint after a copy leaves the values before it, with which that state was trained."""
    expected = whole("pbt").run_dir
    save, count = member.MemberRun.save, []

    def counted(self, state):
        count.append(int(state.iteration))
        if count[-1] == 7:
            raise Killed
        save(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "save", counted)
        with pytest.raises(Killed):
            swept("pbt", tmp_path)
    decisions = Decisions(tmp_path)
    assert decisions.at(6)
    for number, run_dir in enumerate(members_of(tmp_path)):
        first = {name: rows_of(members_of(expected)[number])[0][name] for name in VALUES}
        values = dict(config.flatten(config.read(run_dir / "run.toml")))
        assert {name: values[name] for name in VALUES} == decisions.values(number, first, before=6)
    ppax.resume_sweep(tmp_path)
    assert_same_sweep(tmp_path, expected)


STOPPING = {"stop": "episode_return >= 24"}  # some members of a population end before others have copied them


def ended_sources(path):
    """Numbers of the members of a population that others have copied and that a stop condition has ended."""
    ends = {run_dir.name: member.end_of(run_dir) for run_dir in members_of(path)}
    copied = {row["source"]: row["iteration"] for row in decisions_of(path) if row["decision"] == "copy"}
    found = [n for n in copied if ends[f"{n:03d}"].kind == "stopped" and ends[f"{n:03d}"].iteration >= copied[n]]
    assert found, "no source has ended before the others: choose another stop condition"
    return found


@pytest.mark.parametrize("checkpoints", [{"checkpoint_every": 8}, {"checkpoint_every": 3, "keep": 1}])
def test_a_population_goes_on_after_a_kill_that_comes_after_the_end_of_a_source(checkpoints, tmp_path, monkeypatch):
    """The others are saved before an end is recorded: no resume copies from a member that trains no more."""
    base = BASE | STOPPING | {"log": BASE["log"] | checkpoints}

    def begin(name):
        return ppax.sweep_runs(base, VALUES, draws=MEMBERS, search=SEARCHES["pbt"], run_dir=tmp_path / name)

    begin("whole")
    sources = ended_sources(tmp_path / "whole")
    finish = member.MemberRun.finish

    def killed(self, *arguments):
        finish(self, *arguments)
        if self.task.member.number in sources:
            raise Killed

    for attempt in range(len(sources)):
        with monkeypatch.context() as patch:
            patch.setattr(member.MemberRun, "finish", killed)
            with pytest.raises(Killed):
                ppax.resume_sweep(tmp_path / "killed") if attempt else begin("killed")
    ppax.resume_sweep(tmp_path / "killed")
    assert_same_sweep(tmp_path / "killed", tmp_path / "whole")


def test_an_evaluation_after_a_kill_has_what_one_before_it_has(tmp_path, monkeypatch):
    """Reason for the end and times of training: of members whose training ended in an earlier process."""
    base = BASE | STOPPING | {"num_envs": 2}
    values = {"agent.learning_rate": [1e-3, 1e-2]}
    ppax.sweep_runs(base, values, run_dir=tmp_path / "whole")

    def killed(self, state):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "evaluate", killed)
        with pytest.raises(Killed):
            ppax.sweep_runs(base, values, run_dir=tmp_path / "killed")
    ppax.resume_sweep(tmp_path / "killed")
    names = {"train_seconds", "started_at", "compile_seconds", "steps_per_second", "run_dir", "run_id"}
    for number in range(2):
        found, expected = (
            json.loads((tmp_path / name / f"members/00{number}/evaluation.json").read_text())
            for name in ("killed", "whole")
        )
        assert found.keys() == expected.keys()
        assert {name: found[name] for name in found.keys() - names} == {
            name: expected[name] for name in expected.keys() - names
        }
        assert found["train_seconds"] > 0.0


def test_a_killed_sweep_that_began_from_another_run_needs_that_no_more(whole, tmp_path, monkeypatch):
    """As a run of its own: the states before the first iteration are saved."""
    source = shutil.copytree(members_of(whole("pbt").run_dir)[0], tmp_path / "source")
    base = BASE | {"init_from": {"run": str(source)}, "log": BASE["log"] | {"checkpoint_every": 8}}
    values = {"agent.learning_rate": [1e-3, 1e-2]}
    monkeypatch.setattr(imports, "places", lambda: (str(tmp_path),))
    ppax.sweep_runs(base, values, run_dir=tmp_path / "whole")

    def killed(self, row, states, place):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "log", killed)
        with pytest.raises(Killed):
            ppax.sweep_runs(base, values, run_dir=tmp_path / "killed")
    shutil.rmtree(source)
    ppax.resume_sweep(tmp_path / "killed")
    for number in range(2):
        assert_same_bits(*(tmp_path / name / f"members/00{number}" for name in ("killed", "whole")))


def test_members_that_have_ended_train_again_if_the_others_resume_from_before(tmp_path, monkeypatch):
    """Where the newest checkpoints are damaged, for example."""
    base = BASE | STOPPING | {"log": BASE["log"] | {"checkpoint_every": 8}}

    def begin(name):
        return ppax.sweep_runs(base, VALUES, draws=MEMBERS, search=SEARCHES["pbt"], run_dir=tmp_path / name)

    begin("whole")
    sources = ended_sources(tmp_path / "whole")
    finish, ended = member.MemberRun.finish, []

    def killed(self, *arguments):
        finish(self, *arguments)
        ended.append(self.path)
        if self.task.member.number in sources:
            raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "finish", killed)
        with pytest.raises(Killed):
            begin("killed")
    for run_dir in members_of(tmp_path / "killed"):
        if run_dir not in ended:
            shutil.rmtree(run_dir / "checkpoints")
    ppax.resume_sweep(tmp_path / "killed")
    assert_same_sweep(tmp_path / "killed", tmp_path / "whole")


def test_a_population_of_self_play_keeps_the_running_games():
    """Returns of running episodes are of a member's own environments; copied opponents did not play them."""
    run_config = BASE | {
        "env": "Pursuit-2",
        "groups": {"prey": {"players": [0]}, "hunter": {"players": [1]}},
        "self_play": {"every": 50, "size": 2, "opponents": 1},
    }
    agent, env, run = config.build(config.resolve(run_config))
    states = [fresh_state(agent, env, dataclasses.replace(run, seed=seed)) for seed in range(2)]
    shape = states[0].learner.returns.shape
    games = [{"returns": np.full(shape, float(i), np.float32), "counts": np.ones(shape[0], bool)} for i in (3, 7)]
    pairs = zip(states, games, strict=True)
    states = [dataclasses.replace(one, learner=one.learner._replace(**own)) for one, own in pairs]
    after = MemberStates(with_learners(stacked(states), np.array([0, 0])), 2)
    for place in (0, 1):
        np.testing.assert_array_equal(after[place].learner.returns, games[place]["returns"])
        assert (after[place].learner.counts == (place == 0)).all()
        pools = [jax.tree.leaves((x.pool, x.current, x.elo)) for x in (after[place].learner, states[0].learner)]
        for x, y in zip(*pools, strict=True):
            np.testing.assert_array_equal(x, y)


class Killed(BaseException):
    """Stands for a kill: nothing in ppax catches it."""


@pytest.mark.parametrize(
    ("name", "saves"),
    [
        ("pbt", 14),
        pytest.param("pbt", 32, marks=NIGHTLY),
        ("halving", 15),  # while members are saved after the first rung
        pytest.param("halving", 8, marks=NIGHTLY),
    ],
)
def test_a_killed_sweep_resumes_bit_for_bit(whole, name, saves, tmp_path, monkeypatch):
    expected, save, count = whole(name), member.MemberRun.save, []

    def counted(self, state):
        count.append(self)
        if len(count) == saves:
            raise Killed
        save(self, state)

    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "save", counted)
        with pytest.raises(Killed):
            swept(name, tmp_path)
    ppax.resume_sweep(tmp_path)
    assert_same_sweep(tmp_path, expected.run_dir)
    ppax.resume_sweep(tmp_path)  # nothing left to do
    assert_same_sweep(tmp_path, expected.run_dir)


@pytest.mark.parametrize("name", ["pbt", pytest.param("halving", marks=NIGHTLY)])
@pytest.mark.parametrize("iteration", [pytest.param(2, marks=NIGHTLY), 4, pytest.param(5, marks=NIGHTLY)])
def test_a_signal_saves_all_and_resumes(whole, name, iteration, tmp_path, monkeypatch):
    """At an iteration at which the search decides: what is saved is the state before its decisions."""
    expected = whole(name)
    stopping = signalling(member.MemberRun.log, iteration)

    with monkeypatch.context() as patch:
        patch.setattr(member.MemberRun, "log", stopping)
        with pytest.raises(ppax.Interrupted, match=f"ppax resume {tmp_path}"):
            swept(name, tmp_path)
    ppax.resume_sweep(tmp_path)
    assert_same_sweep(tmp_path, expected.run_dir)


def test_kills_between_a_decision_and_its_record_change_nothing(whole, tmp_path, monkeypatch):
    """Killed when the first, then when the second member is marked as stopped."""
    expected, mark = whole("halving"), member.stop
    for allowed in (0, 1):
        left = [allowed]

        def killed(*arguments, left=left):
            if not left[0]:
                raise Killed
            left[0] -= 1
            return mark(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(member, "stop", killed)
            with pytest.raises(Killed):
                ppax.resume_sweep(tmp_path) if allowed else swept("halving", tmp_path)
    ppax.resume_sweep(tmp_path)
    assert_same_sweep(tmp_path, expected.run_dir)


@NIGHTLY
def test_halving_packs_survivors_of_several_programs_together(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "members_that_fit", lambda *_: 3)
    swept("halving", tmp_path)
    assert decisions_of(tmp_path) == decisions_of(whole("halving").run_dir)
    assert len(directory.read(tmp_path).programs) == 1


def test_a_member_that_is_not_finite_is_no_source(tmp_path):
    values = {"agent.learning_rate": [1e-3, 1e-2, 1e30, 3e-3]}
    result = ppax.sweep_runs(BASE, values, search=PBT(interval=2, fraction=0.5), run_dir=tmp_path)
    assert [one.number for one in result.dropped if one.values["agent.learning_rate"] == 1e30] == [2]
    found = decisions_of(tmp_path)
    assert 2 not in {row["member"] for row in found}
    assert 2 not in {row.get("source") for row in found}


@pytest.mark.parametrize(
    ("values", "base", "search", "text"),
    [
        ({"num_envs": [4, 8]}, {}, PBT(), r"search: num_envs = 4 is a size, a choice or a whole number"),
        ({"agent.loss.part": ["clipped", "spo"]}, {}, PBT(), r"agent.loss.part = 'clipped' is a size, a choice"),
        (
            {"agent.schedule.end": [0.1, 0.5]},
            {"agent": {"schedule": {"part": "linear"}}},
            PBT(),
            r"agent.schedule.end is a number of the schedule",
        ),
        (
            {"agent.num_epochs": [1, 2]},
            {},
            PBT(),
            r"search: agent.num_epochs = 1 is .*; sweep numbers",
        ),
        (
            {"env_params.gravity": [{"low": 1.0, "high": x} for x in (2.0, 3.0)]},
            {},
            PBT(),
            r"env_params.gravity = .* is a size",
        ),
        ({}, {}, PBT(), r"search: there is nothing to perturb; sweep numbers of the agent"),
        ({"agent.gamma": [0.9, 0.99]}, {}, Halving(), r"search.rungs = 3: 8 iterations have no 3 rungs"),
        ({"num_envs": [4, 8]}, {}, Halving(eta=2, rungs=1), r"search: members have 4, 8 iterations"),
        (
            {"agent.gamma": [0.9, 0.99]},
            {"env": "gymnasium/CartPole-v1"},
            Halving(eta=2, rungs=1),
            r"search: gymnasium/CartPole-v1 is on the host",
        ),
    ],
)
def test_sweeps_that_a_search_cannot_have_are_refused_before_anything_is_written(values, base, search, text, tmp_path):
    with pytest.raises(ppax.ConfigError, match=text):
        ppax.sweep_runs(BASE | base, values, seeds=2, search=search, run_dir=tmp_path / "sweep")
    assert not (tmp_path / "sweep").exists()


@pytest.mark.parametrize(
    ("own", "path"),
    [
        ({"env": "Navigator-8", "total_steps": 16 * 2 * 8 * 4}, "agent.gamma"),
        (
            {
                "env": "Pursuit-2",
                "total_steps": 16 * 2 * 2 * 4,
                "groups": {"prey": {"players": [0]}, "h": {"players": [1]}},
            },
            "groups.prey.agent.gamma",
        ),
    ],
)
@NIGHTLY
def test_populations_of_many_agents(own, path, tmp_path):
    """No episode ends in training: the scores are those of evaluations."""
    base = BASE | {"num_envs": 2, "num_steps": 16, "eval": {"episodes": 2, "every": 2}} | own
    search = {"part": "pbt", "interval": 2, "fraction": 0.5}
    result = ppax.sweep_runs(base, {path: [0.1, 0.2]}, search=search, run_dir=tmp_path)
    copy = next(row for row in decisions_of(tmp_path) if row["decision"] == "copy")
    assert copy["source"] == 1 - copy["member"]
    assert 0.1 <= copy["values"][path] <= 0.2
    assert all(math.isfinite(one.score) for one in result.members)


def test_a_damaged_record_is_refused(tmp_path):
    row = b'{"iteration": 1, "member": 0, "score": 1, "decision": '
    endless = b'{"iteration": Infinity, "member": 0, "score": 1, "decision": "on"}'
    huge = row.replace(b'"score": 1', b'"score": 1' + b"0" * 400) + b'"on"}'
    for data in (b"{", b'{"iteration": 2}', row + b'"copy"}', b"[]", b"\xff\xfe{}", endless, huge, b"[" * 10**5):
        (tmp_path / "search.jsonl").write_bytes(data + b"\n")
        with pytest.raises(ppax.ConfigError, match="is damaged"):
            Decisions(tmp_path)


def test_a_source_that_does_not_train_is_refused(tmp_path):
    row = {"iteration": 2, "member": 0, "score": 1.0, "decision": "copy", "source": 7, "values": {"agent.gamma": 0.5}}
    (tmp_path / "search.jsonl").write_text(json.dumps(row) + "\n")
    made = plan.read({"agent.gamma": [0.9, 0.99], "search": {"part": "pbt", "interval": 2}})
    looking = Searching(tmp_path, made, plan.members_of(config.resolve(BASE), made), 8)
    with pytest.raises(ppax.ConfigError, match=r"iteration 2 .* damaged: a source trains no more"):
        looking.decide(2, {0: tmp_path})


def test_settings_with_members_that_trained_longer_come_first(tmp_path):
    """Two seeds a setting; the IQM of two is their mean, of those that trained longest."""

    def member_of(number, score, stopped="", dropped=""):
        return results.MemberResult(number, {}, number, score, 0.0, 1, dropped, Path(), stopped)

    rows = [(2, 1, 90.0), (4, 3, 80.0), (2, 5, 70.0)]
    text = [{"iteration": i, "member": n, "score": x, "decision": "stop", "reason": "stopped"} for i, n, x in rows]
    (tmp_path / "search.jsonl").write_text("".join(json.dumps(row) + "\n" for row in text))
    known = Decisions(tmp_path)
    pairs = [
        results._ranked((member_of(0, 10.0), member_of(1, 90.0, "stopped")), known),
        results._ranked((member_of(2, math.nan, dropped="x"), member_of(3, 80.0, "stopped")), known),
        results._ranked((member_of(4, math.nan, dropped="x"), member_of(6, math.nan, dropped="x")), known),
        results._ranked((member_of(7, 10.0), member_of(8, 30.0)), known),
    ]
    assert [place.iteration for place in pairs] == [math.inf, 4, -math.inf, math.inf]
    assert [place.setting.iqm for place in pairs] == [10.0, -math.inf, -math.inf, 20.0]


def test_of_settings_with_failed_seeds_the_one_with_fewer_is_best(tmp_path):
    """Both have no IQM, and the worse one comes first in the sweep: the run file of the best is that of the other."""
    members = [plan.Member(n, n // 3, {"agent.gamma": 0.9 + 0.09 * (n // 3)}, n % 3, {}) for n in range(6)]
    for one, score in zip(members, (math.nan, math.nan, 300.0, math.nan, 20.0, 30.0), strict=True):
        path = directory.member_dir(tmp_path, one)
        path.mkdir(parents=True)
        (path / "run.toml").write_text(f"seed = {one.seed}\n[agent]\ngamma = {one.values['agent.gamma']}\n")
        if math.isfinite(score):
            (path / "evaluation.json").write_text(json.dumps({"mean_return": score, "std_return": 0.0}))
    result = results.conclude(tmp_path, plan.read({"agent.gamma": [0.9, 0.99]}), members, 8)
    assert [setting.values["agent.gamma"] for setting in result.settings] == [0.99, 0.9]


# Scores of three seeds by learning rate; None: dropped, math.nan: no episode of the evaluation has ended
CASES = {
    "a failed seed is the worst, whatever its return in training": {
        1e-3: (50.0, 50.0, None),
        1e-2: (1.0, 2.0, 3.0),
    },
    "an evaluation without an episode is none": {1e-3: (50.0, math.nan, 50.0), 1e-2: (1.0, 2.0, 3.0)},
    "fewer failed seeds are better": {1e-3: (None, None, 90.0), 1e-2: (None, 5.0, 5.0)},
    "of equal IQMs the one with the higher bound is best": {1e-3: (0.0, 20.0, 40.0), 1e-2: (19.0, 20.0, 21.0)},
    "of equals the first is best": {1e-2: (7.0, 7.0, 7.0), 1e-3: (7.0, 7.0, 7.0)},
}


@pytest.mark.parametrize("scores", CASES.values(), ids=CASES)
def test_sweep_best_run_file_and_comparison_name_the_same_winner(scores, tmp_path):
    run_config = config.resolve(BASE)
    table = plan.read({"agent.learning_rate": list(scores), "seeds": 3})
    members = plan.members_of(run_config, table)
    for one in members:
        path, score = directory.member_dir(tmp_path, one), scores[one.values["agent.learning_rate"]][one.seed]
        path.mkdir(parents=True)
        (path / "run.toml").write_text(config.to_toml(one.config))
        (path / "metrics.jsonl").write_text(
            json.dumps({"iteration": 3, "env_steps": 9, "episode_return": 400.0}) + "\n"
        )
        end = {"kind": "done" if score is not None else "fault", "iteration": 3, "env_steps": 9}
        (path / "stopped.json").write_text(json.dumps(end))
        if score is not None:
            known = None if math.isnan(score) else score
            (path / "evaluation.json").write_text(
                json.dumps({"mean_return": known, "std_return": 0.0, "iterations": 3})
            )
    result, compared = results.conclude(tmp_path, table, members, 8), ppax.compare([tmp_path])
    assert result.settings[0].values["agent.learning_rate"] == 1e-2
    if math.isfinite(result.settings[0].iqm):
        assert config.read(result.best)["agent"]["learning_rate"] == 1e-2
    else:
        assert result.best is None
    order = [f"learning_rate = {one.values['agent.learning_rate']:g}" for one in result.settings]
    assert [one.label for one in compared.settings] == order
    np.testing.assert_array_equal([one.standing.iqm for one in compared.settings], [one.iqm for one in result.settings])
