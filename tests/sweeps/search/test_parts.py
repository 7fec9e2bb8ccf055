"""Searches as pure functions: decisions against calculations by hand, and the limits of their settings."""

import math

import numpy as np
import pytest

import ppax
from ppax.core.protocols import Copy, Search, Standings, Stop
from ppax.sweeps import PBT, Choice, Grid, Halving, LogUniform, Normal, Uniform
from ppax.sweeps import search as searches

NAN = math.nan
PATH = "agent.learning_rate"


def standings(scores, iteration=3, total=27, members=None, values=None, swept=None, limits=None):
    values = {number: {PATH: 1e-3} for number in scores} if values is None else values
    swept = {PATH: Uniform(0.0, 1.0)} if swept is None else swept
    return Standings(iteration, total, members or len(scores), scores, values, swept, limits or {})


def test_halving_keeps_a_third_of_all_members_at_each_rung():
    """27 iterations, eta 3: rungs at 1, 3, 9. Nine members: three go on after the first rung, then one."""
    search = Halving(eta=3, rungs=3)
    rungs = [search.next_after(i, 27) for i in (0, 1, 3, 9)]
    assert rungs == [1, 3, 9, 27]
    scores = {0: 5.0, 1: NAN, 2: 9.0, 3: 5.0, 4: -1.0, 5: 7.0, 6: 5.0, 7: -math.inf, 8: 2.0}
    found = search.decide(standings(scores, iteration=1))
    # best first: 2 (9), 5 (7), then of the three with 5 the first number, 0; last 1 and 7, no score and the lowest
    assert {one.member for one in found} == {1, 3, 4, 6, 7, 8}
    assert all(isinstance(one, Stop) for one in found)
    assert next(one.reason for one in found if one.member == 8) == (
        "stopped by halving at rung 1 of 3 (iteration 1): score 2, place 6 of 9; 3 go on"
    )
    assert "no score, place 8 of 9" in next(one.reason for one in found if one.member == 1)
    # one of the three has been dropped meanwhile: still one goes on
    found = search.decide(standings({2: 1.0, 5: 3.0}, iteration=3, members=9))
    assert [one.member for one in found] == [2]
    assert search.decide(standings({5: 3.0}, iteration=9, members=9)) == []  # 9 // 27 is none, and one always goes on


def test_rungs_are_rounded_up_to_whole_iterations():
    assert [Halving(eta=2, rungs=2).next_after(i, 10) for i in (0, 3, 5)] == [3, 5, 10]
    assert Halving(eta=4, rungs=1).next_after(0, 10) == 3


def test_the_worst_of_a_population_copy_the_best():
    scores = {number: float(number) for number in range(10)}
    values = {number: {PATH: (number + 1) * 1e-3} for number in scores}
    found = PBT(fraction=0.2, resample=0.0).decide(standings(scores, values=values, iteration=5))
    assert [one.member for one in found] == [1, 0]
    assert all(isinstance(one, Copy) and one.source in (8, 9) for one in found)
    for one in found:
        ratio = one.values[PATH] / values[one.source][PATH]
        assert min(abs(ratio - 0.8), abs(ratio - 1.2)) < 1e-5
    assert f"score 1 is among the worst; score {found[0].source} of member {found[0].source}" in found[0].reason


def test_draws_depend_on_seed_iteration_and_member_alone():
    """Over many iterations each member draws other sources and factors; its draws are the same in any population."""

    def copies(seed, numbers):
        search = PBT(fraction=0.5, resample=0.0, seed=seed)
        scores = {number: -float(number) for number in numbers}
        found = [search.decide(standings(scores, iteration=i, total=99)) for i in range(1, 40)]
        return [(one.member, one.source, one.values[PATH]) for decisions in found for one in decisions]

    assert copies(0, range(8)) == copies(0, range(8))
    assert copies(0, range(8)) != copies(1, range(8))
    first = copies(0, range(8))
    assert {source for _, source, _ in first} == {0, 1, 2, 3}
    assert {round(value / 1e-3, 3) for *_, value in first} == {0.8, 1.2}
    of_seven = [source for member, source, _ in first if member == 7]
    of_six = [source for member, source, _ in first if member == 6]
    assert of_seven != of_six


def test_a_member_without_a_score_is_never_a_source():
    scores = {0: NAN, 1: NAN, 2: 1.0, 3: NAN}
    found = PBT(fraction=0.5).decide(standings(scores))
    assert {one.member: one.source for one in found} == {1: 2, 3: 2}
    assert PBT(fraction=0.5).decide(standings(dict.fromkeys(range(4), NAN))) == []


def explored(swept, value, limits=None, **settings):
    """Values that 200 copies of a member with `value` get."""
    values, found = {0: {PATH: value}, 1: {PATH: value}}, []
    for iteration in range(1, 201):
        one = standings({0: 1.0, 1: 0.0}, iteration, 999, values=values, swept={PATH: swept}, limits=limits)
        found += [copy.values[PATH] for copy in PBT(**settings).decide(one)]
    return found


def test_perturbed_numbers_stay_within_their_bounds():
    assert set(explored(LogUniform(9e-4, 1.1e-3), 1e-3, resample=0.0)) == {9e-4, 1.1e-3}
    assert set(explored((1e-3, 1.5e-3), 1e-3, resample=0.0)) == {1e-3, 1.2e-3}
    assert set(explored(Choice((0.5, 2.0)), 1.0, resample=1.0)) == {0.5, 2.0}
    gamma = {PATH: {"low": 0.0, "high": 1.0}}
    assert set(explored(Normal(0.9, 0.01), 0.9, gamma, resample=0.0)) == {0.72, 1.0}
    rate = {PATH: {"above": 0.0}}
    assert min(explored(Normal(0.0, 1.0), 1.0, rate, resample=1.0)) > 0.0


def test_a_quarter_is_drawn_anew():
    """Of 200 draws a quarter, within four standard errors, is neither 0.8 nor 1.2 times the source's value."""
    new = [x for x in explored(Uniform(0.0, 1.0), 0.5) if x not in (0.4, 0.6)]
    assert abs(len(new) - 50) < 4 * math.sqrt(200 * 3 / 16)
    assert np.ptp(new) > 0.8


def test_tables_are_read_and_written():
    for search in (Grid(), Halving(eta=4), PBT(interval=7, factors=(0.5, 2.0))):
        assert isinstance(search, Search)
        assert searches.read(searches.to_table(search)) == search
    assert searches.read({}) == Grid()
    assert searches.read({"part": "pbt", "factors": [2, 0.5]}) == PBT(factors=(2.0, 0.5))


@pytest.mark.parametrize(
    ("own", "text"),
    [
        ("halving", r"search = 'halving': must be a table, \[search\]; write search.part = 'halving'"),
        (
            {"part": "havling"},
            r"search.part = 'havling': must be one of grid, halving, pbt, optuna; nearest: halving",
        ),
        ({"part": "halving", "rung": 3}, r"unknown option 'search.rung'; did you mean 'search.rungs'"),
        ({"part": "halving", "eta": 1}, r"search.eta = 1: must be at least 2; nearest valid value: 2"),
        ({"part": "halving", "rungs": 1.5}, r"search.rungs = 1.5: must be of type int"),
        ({"part": "pbt", "fraction": 0.7}, r"search.fraction = 0.7: must be at most 0.5"),
        ({"part": "my_searches:Best"}, r"search.part = 'my_searches:Best': to import code is to run it"),
    ],
)
def test_a_wrong_table_is_refused_by_name(own, text):
    with pytest.raises(ppax.ConfigError, match=text):
        searches.read(own)


@pytest.mark.parametrize(
    ("search", "members", "total", "text"),
    [
        (Halving(eta=3, rungs=3), 9, 8, r"search.rungs = 3: 8 iterations have no 3 rungs .*; nearest valid value: 2"),
        (Halving(eta=2, rungs=1), 9, 1, r"search.rungs = 1: 1 iterations are too few for a rung"),
        (Halving(eta=3, rungs=1), 2, 99, r"search.eta = 3: a sweep of 2 members must have at least 3"),
        (PBT(), 1, 99, r"a population of 1 has nothing to copy"),
        (PBT(interval=9), 4, 9, r"search.interval = 9: must be below the 9 iterations; nearest valid value: 8"),
        (PBT(factors=(0.0,)), 4, 9, r"search.factors = \[0.0\]: must be at least one number above 0"),
    ],
)
def test_a_sweep_that_is_too_small_is_refused(search, members, total, text):
    with pytest.raises(ppax.ConfigError, match=text):
        search.check(members, total)
