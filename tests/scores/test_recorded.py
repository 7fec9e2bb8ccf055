"""Published scores: written from results, by the target of `ppax train`."""

import dataclasses
import tomllib

import pytest

import ppax
from ppax import config
from ppax.scores import results, tables
from ppax.scores.results import Score, SeedResult
from ppax.scores.suite import SuiteRow, choose


def score(row):
    members = tuple(SeedResult(1000 + i, 498.0 + i, 0.0, 1.0, 0.0, 499_000 + i, 12.0, ()) for i in range(5))
    return Score(row, "CartPole-v1", "compiled", 128, members, {"time": "2026-01-01"}, "mark")


def test_scores_with_the_settings_of_a_target_alone():
    rows = [
        SuiteRow(name="A", target="CartPole-v1", steps=400_000),
        SuiteRow(name="B", target="CartPole-v1", steps=500_000),  # the target's own budget goes before others
        SuiteRow(name="C", target="CartPole-v1", steps=600_000),
        SuiteRow(name="D", target="Pendulum-v1", steps=499_999),
        SuiteRow(name="E", target="MountainCar-v0", options={"agent": {"gamma": 0.5}}),
        SuiteRow(name="F", target="gymnax/Acrobot-v1", at_most=3.0),
    ]
    seeds = [score(row) for row in rows]
    seeds[1] = dataclasses.replace(seeds[1], about={"time": "2026-11-23 02:00:00"})
    written = tomllib.loads(tables.scores_to_toml(seeds))
    assert list(written) == ["CartPole-v1", "Pendulum-v1"]
    one = tables.PresetScore(**written["CartPole-v1"])
    assert (one.iqm, one.seeds, one.steps, one.seconds, one.date) == (500.0, 5, 499_004, 12.0, "2026-11-23")
    assert 498.0 <= one.low < 500.0 < one.high <= 502.0
    assert str(one).startswith("500 (IQM of 5 seeds, 95 % interval 49")
    assert str(one).endswith(") after 499,004 steps, 12 s a seed")


@pytest.mark.parametrize("change", [None, "seeds", "settings"])
def test_complete_results_with_present_settings_are_published(change, tmp_path):
    (row,) = choose(["L1"])
    mark = results.fingerprint(row, 128, "0.0.1")
    one = dataclasses.replace(score(row), fingerprint=mark, about={"ppax": "0.0.1"})
    if change == "seeds":
        one = dataclasses.replace(one, members=one.members[:4])
    if change == "settings":
        one = dataclasses.replace(one, fingerprint=results.fingerprint(row, 64, "0.0.1"))
    results.save_score(one, tmp_path)
    assert [score.row.name for score in tables.published(tmp_path)] == ([] if change else ["L1"])


@pytest.mark.parametrize("change", [{}, {"steps": 3}, {"options": {"agent": {"gamma": 0.5}}}])
def test_without_the_environments_library_the_rows_own_settings_are_compared(change, tmp_path, monkeypatch):
    """The settings of an environment whose library is not installed are unknown where pages are generated."""
    (row,) = choose(["L1"])
    results.save_score(score(dataclasses.replace(row, **change)), tmp_path)

    def refused(*args):
        raise ImportError("no such library")

    monkeypatch.setattr(tables, "fingerprint", refused)
    assert [score.row.name for score in tables.published(tmp_path)] == ([] if change else ["L1"])


def test_presets_in_python():
    listed = ppax.presets()
    assert list(listed) == list(config.presets())
    assert listed["styles/brax"] is None
    assert all(one is None or one.seeds in (3, 5) for one in listed.values())
