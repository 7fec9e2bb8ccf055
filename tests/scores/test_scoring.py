"""Measuring: members equal runs of their own; what is known is not trained again."""

import contextlib
import dataclasses
import math

import jax
import numpy as np
import pytest

import ppax
from ppax.scores import results, scoring, tables
from ppax.scores.results import SeedResult
from ppax.scores.suite import SuiteRow

TINY = {"num_envs": 4, "num_steps": 32, "agent": {"network": {"hidden": [8]}, "num_epochs": 1}}


def member(seed, score=1.0):
    return SeedResult(seed, score, 0.0, 1.0, 0.0, 10, 1.0, ((10, score),))


# ---------------------------------------------------------------- against runs of their own


@pytest.mark.usefixtures("vmapped_keys", "quick_programs")
@pytest.mark.parametrize(("name", "sampled"), [("CartPole-v1", False), ("gymnasium/CartPole-v1", True)])
def test_members_equal_separate_runs(name, sampled):
    """Three seeds, on two devices: one is filled up. Three iterations, before rounding can tell them apart."""
    row = SuiteRow(name="A", target=name, steps=384, sampled=sampled, options=TINY | {"agent": TINY["agent"]})
    out = scoring.measure(row, seeds=[0, 1, 2], episodes=6)
    assert out.seeds == (0, 1, 2)
    for one in out.members[:: 2 if sampled else 1]:
        tuned = ppax.build(name, **TINY, total_steps=384, seed=one.seed, log={"console": False})
        with tuned.env if sampled else contextlib.nullcontext():
            run = tuned.fit()
            alone = run.evaluate(6, deterministic=not sampled, seed=one.seed)
        assert one.env_steps == run.env_steps
        assert (one.score, one.length) == (alone.mean_return, alone.mean_length)
        assert one.std == pytest.approx(alone.std_return)
        rows = [(row["env_steps"], row["episode_return"]) for row in run.history]
        assert [steps for steps, _ in one.curve] == [steps for steps, _ in rows]
        pairs = zip(one.curve, rows, strict=True)
        assert all(a == pytest.approx(b, rel=1e-5, nan_ok=True) for (_, a), (_, b) in pairs)
        assert 9 <= one.random <= 60  # CartPole falls after some 20 steps of random actions


@pytest.mark.usefixtures("vmapped_keys", "quick_programs")
def test_a_row_scores_a_metric_of_its_environment_over_episodes_of_its_length():
    row = SuiteRow(
        name="A", target="rl8/MountainCar", steps=128, metric="at_goal", options=TINY | {"eval": {"max_steps": 5}}
    )
    (one,) = scoring.measure(row, seeds=[0], episodes=16).members
    run = ppax.build("rl8/MountainCar", **TINY, total_steps=128, eval={"max_steps": 5}, log={"console": False}).fit()
    alone = run.evaluate(16, seed=0)
    assert one.length == 5
    assert one.score == alone.mean_metrics["at_goal"]
    assert one.score != alone.mean_return
    with pytest.raises(ppax.ConfigError, match="metric = 'caught': must be return, at_goal"):
        scoring.measure(dataclasses.replace(row, metric="caught"), seeds=[0], episodes=2)


@pytest.mark.usefixtures("vmapped_keys")
@pytest.mark.parametrize("name", ["gymnax/Acrobot-v1", "gymnax/MemoryChain-bsuite"])
def test_arrays_of_an_environment_are_no_values_of_seeds(name):
    """Acrobot of gymnax has three torques; the spaces of the memory chain are computed from its parameters."""
    pytest.importorskip("gymnax")
    agent, env, run = ppax.build(name)
    for members in (2, 3):
        envs, keys = scoring.for_members(env, members), jax.random.split(jax.random.key(0), members)
        with jax.numpy_rank_promotion("allow"):
            states = jax.eval_shape(lambda envs, keys: ppax.start_sweep(agent, envs, run.num_steps, keys), envs, keys)
            swept = jax.eval_shape(lambda envs, states: ppax.sweep(agent, envs, states, 3), envs, states)
        assert swept.metrics.means.shape == (members, len(swept.metrics.kinds()))


def test_python_takes_presets_rows_and_options(monkeypatch):
    asked = {}

    def trained(backend, built, seeds, episodes, sampled, metric):
        asked.update(steps=built.run.total_steps, length=built.run.env_params, gamma=built.agent.gamma, seeds=seeds)
        yield tuple(map(member, seeds))

    monkeypatch.setattr(scoring, "train_seeds", trained)
    score = ppax.score("CartPole-v1", options={"agent": {"gamma": 0.5}, "total_steps": 77})
    assert (asked["gamma"], asked["seeds"], score.row.threshold) == (0.5, [1000, 1001, 1002, 1003, 1004], 475.0)
    assert asked["steps"] == 77
    assert ppax.score("CartPole-v1", seeds=range(2)).seeds == (0, 1)
    for seeds in (0, 1001, (), (3, 3)):
        with pytest.raises(ppax.ConfigError, match="seeds"):
            ppax.score("CartPole-v1", seeds=seeds)
    with pytest.raises(ppax.ConfigError, match="episodes"):
        ppax.score("CartPole-v1", episodes=0)


# ---------------------------------------------------------------- what is known


@pytest.fixture
def trainings(monkeypatch):
    """Return the seeds of each training; nothing is trained, and seeds are done one by one."""
    calls = []

    def trained(backend, built, seeds, episodes, sampled, metric):
        calls.append(list(seeds))
        for seed in seeds:
            yield (member(seed),)

    monkeypatch.setattr(scoring, "train_seeds", trained)
    return calls


def test_only_missing_seeds_are_trained(trainings, tmp_path):
    row = SuiteRow(name="A", target="CartPole-v1")
    scoring.score_rows([row], tmp_path, seeds=2)
    scoring.score_rows([row], tmp_path, seeds=2)
    (outcome,) = scoring.score_rows([row], tmp_path, seeds=3)
    assert trainings == [[1000, 1001], [1002]]
    assert outcome.score.seeds == (1000, 1001, 1002)
    (fewer,) = scoring.score_rows([row], tmp_path, seeds=1)
    assert fewer.score.seeds == (1000,)
    assert results.load(row, tmp_path).seeds == (1000, 1001, 1002)
    scoring.score_rows([SuiteRow(name="A", target="CartPole-v1", steps=5)], tmp_path, seeds=1)
    assert trainings[2:] == [[1000]]


def test_a_row_says_how_many_seeds_it_has(trainings, tmp_path):
    """Unless the caller does."""
    row = SuiteRow(name="A", target="CartPole-v1", seeds=3)
    scoring.score_rows([row], tmp_path)
    scoring.score_rows([row], tmp_path / "other", seeds=1)
    assert trainings == [[1000, 1001, 1002], [1000]]


@pytest.mark.parametrize(
    ("given", "seeds"),
    [(range(3), (0, 1, 2)), (np.arange(2), (0, 1)), ([np.int64(7), 3], (3, 7)), (np.int64(2), (1000, 1001))],
)
def test_seeds_may_be_ranges_and_numbers_of_numpy(given, seeds):
    found = scoring.score_seeds(given, "compiled")
    assert found == seeds
    assert {type(seed) for seed in found} == {int}


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ([1, -1], "seeds = -1: must be at least 0; nearest valid value: 0"),
        ([1.5], "seeds = 1.5: must be of type int"),
        ("1000-1003", "seeds = '1000-1003': must be of type int"),
        (True, "seeds = True: must be of type int"),
        ([], "must be at least one, and all different"),
    ],
)
def test_other_seeds_are_refused(given, text):
    with pytest.raises(ppax.ConfigError, match=text):
        scoring.score_seeds(given, "compiled")


def test_seeds_that_are_added_have_the_precision_of_those_before(tmp_path, monkeypatch):
    """Also on a machine for which `auto` means another one; a result of an earlier version has none."""
    dtypes = []

    def trained(backend, built, seeds, episodes, sampled, metric):
        dtypes.append(built.agent.compute_dtype)
        yield tuple(map(member, seeds))

    monkeypatch.setattr(scoring, "train_seeds", trained)
    row = SuiteRow(name="A", target="CartPole-v1")
    for seeds, machine in ((1, "bfloat16_where_safe"), (2, "float32"), (3, "bfloat16_where_safe")):
        monkeypatch.setattr(scoring, "machine_dtype", lambda machine=machine: machine)
        scoring.score_rows([row], tmp_path, seeds=seeds)
    assert dtypes == ["bfloat16_where_safe"] * 3
    path = results.result_path(row, tmp_path)
    path.write_text(path.read_text().replace("bfloat16_where_safe", "float16"))
    monkeypatch.setattr(scoring, "machine_dtype", lambda: "float32")
    scoring.score_rows([row], tmp_path, seeds=4)
    assert dtypes[3:] == ["float32"]


@pytest.mark.parametrize(("mode", "sampled"), [(True, False), (False, True), (None, True)])
def test_the_option_eval_deterministic_has_priority_over_the_row(monkeypatch, mode, sampled):
    found = []

    def trained(backend, built, seeds, episodes, sampled, metric):
        found.append(sampled)
        yield tuple(map(member, seeds))

    monkeypatch.setattr(scoring, "train_seeds", trained)
    options = {} if mode is None else {"eval": {"deterministic": mode}}
    out = scoring.measure(SuiteRow(name="A", target="CartPole-v1", sampled=True, options=options), seeds=[0])
    assert found == [out.row.sampled] == [sampled]
    if options:
        ppax.score("CartPole-v1", seeds=[0], options=options)
        assert found[1] is sampled


def test_seeds_that_were_done_before_an_interruption_are_kept(trainings, tmp_path, monkeypatch):
    row = SuiteRow(name="A", target="CartPole-v1")
    save, files = results.save_score, []

    def interrupted(score, out):
        save(score, out)
        files.append(score.seeds)
        if len(files) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(results, "save_score", interrupted)
    with pytest.raises(KeyboardInterrupt):
        scoring.score_rows([row], tmp_path, seeds=4)
    assert results.load(row, tmp_path).seeds == (1000, 1001)
    scoring.score_rows([row], tmp_path, seeds=4)
    assert trainings == [[1000, 1001, 1002, 1003], [1002, 1003]]


def test_an_error_ends_its_row_only(tmp_path, monkeypatch):
    def trained(backend, built, seeds, episodes, sampled, metric):
        if built.run.env == "Pendulum-v1":
            raise ppax.NumericalError("seed 1000: iteration 3 is not finite")
        yield tuple(map(member, seeds))

    monkeypatch.setattr(scoring, "train_seeds", trained)
    rows = [SuiteRow(name="A", target="Pendulum-v1"), SuiteRow(name="B", target="CartPole-v1")]
    first, second = scoring.score_rows(rows, tmp_path, seeds=1)
    assert (first.failed, second.failed) == (True, False)
    text = tables.terminal_table([first, second], color=False)
    assert "not measured: seed 1000: iteration 3 is not finite" in text
    assert "\033" not in text


def test_rows_that_fall_short_are_red(trainings, tmp_path):
    rows = [
        SuiteRow(name="A", target="CartPole-v1", threshold=0.5),
        SuiteRow(name="B", target="CartPole-v1", threshold=2.0),
    ]
    lines = tables.terminal_table(scoring.score_rows(rows, tmp_path), color=True).splitlines()
    assert [line.startswith("\033[31m") for line in lines] == [False, False, True]
    assert "passed" in lines[1]
    assert "FAILED: IQM 1, threshold 2" in lines[2]


def test_numbers_and_durations():
    assert [tables.number_cell(x) for x in (None, math.nan, 475.123, -86.42, 2382.9)] == [
        "-",
        "-",
        "475.1",
        "-86.42",
        "2,383",
    ]
    assert [tables.duration(x) for x in (119.4, 180)] == ["119 s", "3 min"]
