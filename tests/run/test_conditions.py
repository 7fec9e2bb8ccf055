"""Stop conditions and the best learner, on rows written by hand, and in a real run."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import ConfigError
from ppax.config import Log
from ppax.networks import mlp
from ppax.run.conditions import And, HitsLowerBound, HitsUpperBound, KeepBest, Or, Plateaus, StopsFalling, StopsRising
from ppax.types import LearnerState, TrainState

NAN = math.nan


def verdicts(condition, values, key="x", first=1):
    """What the condition says at each row; iterations go up from `first`."""
    return [condition(None, {"iteration": i, key: value, "other": 0.0}) for i, value in enumerate(values, first)]


def test_bounds():
    assert verdicts(HitsUpperBound("x", 2.0), [1, 1.9, 2.0, 3, 1]) == [False, False, True, True, False]
    assert verdicts(HitsLowerBound("x", 2.0), [3, 2.1, 2.0, 1, 3]) == [False, False, True, True, False]


def test_nan_leaves_the_verdict_as_it_was():
    assert verdicts(HitsUpperBound("x", 2.0), [NAN, 1, NAN, 3, NAN, 1]) == [False, False, False, True, True, False]
    # 5, then twice no rise; NaN is neither a rise nor a row
    assert verdicts(StopsRising("x", 2), [NAN, 5, NAN, 5, NAN, NAN, 4]) == [False] * 6 + [True]
    assert verdicts(Plateaus("x", 2), [NAN, 5, NAN, 5, NAN, 5]) == [False] * 5 + [True]


def test_stops_rising_counts_rows_below_the_highest_so_far():
    # highest 3 at row 3; 2, 3, 2.9 are not above it: three rows, at row 6
    assert verdicts(StopsRising("x", 3), [1, 2, 3, 2, 3, 2.9, 4]) == [False] * 5 + [True, False]
    # a zigzag that rises never stops
    assert not any(verdicts(StopsRising("x", 3), [1, 0, 0, 2, 0, 0, 3, 0, 0, 4]))
    assert verdicts(StopsRising("x", 1), [-5, -6]) == [False, True]


def test_stops_falling_is_its_mirror():
    values = [1, 2, 3, 2, 3, 2.9, 4]
    assert verdicts(StopsFalling("x", 3), [-x for x in values]) == verdicts(StopsRising("x", 3), values)
    assert verdicts(StopsFalling("x", 2), [3, 2, 1, 1, 1]) == [False] * 4 + [True]


def test_a_plateau_is_flat_against_its_beginning():
    # 100 +- 1 %: 100, then 101, 99, 100.5
    assert verdicts(Plateaus("x", 3, 0.01), [50, 100, 101, 99, 100.5]) == [False] * 4 + [True]
    # 102 leaves the band and begins another
    assert verdicts(Plateaus("x", 2, 0.01), [100, 101, 102, 102, 102]) == [False] * 4 + [True]
    # each row is within 1 % of the row before, and yet it climbs
    assert not any(verdicts(Plateaus("x", 3, 0.01), [100 * 1.009**i for i in range(50)]))
    assert verdicts(Plateaus("x", 1, 0.01), [-100, -100.5]) == [False, True]
    assert verdicts(Plateaus("x", 2), [0, 0, 0]) == [False, False, True]


def test_and_or():
    rows = [{"a": a, "b": b} for a, b in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 0))]
    a, b = HitsUpperBound("a", 1), HitsUpperBound("b", 1)
    assert [And(a, b)(None, row) for row in rows] == [False, False, False, True, False]
    assert [Or(a, b)(None, row) for row in rows] == [False, True, True, True, False]
    assert [Or(And(a, b), lambda state, row: row["b"] > 0)(None, row) for row in rows] == [
        False,
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("kind", [And, Or])
def test_every_condition_sees_every_row(kind):
    seen = []
    conditions = [lambda state, row, i=i: seen.append(i) or i == 1 for i in range(3)]
    kind(*conditions)(None, {})
    assert seen == [0, 1, 2]


def test_another_run_begins_anew():
    condition, best = StopsRising("x", 2), KeepBest("x")
    assert verdicts(condition, [9, 8, 7]) == [False, False, True]
    assert verdicts(condition, [1, 2, 1]) == [False, False, False]
    assert verdicts(condition, [1], first=4) == [True]  # the same run, gone on: 2 is not beaten
    for start, value, expected in ((1, 9.0, 9.0), (2, 5.0, 9.0), (1, 3.0, 3.0)):
        best(state(value), {"iteration": start, "x": value})
        assert best.value == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda key: HitsUpperBound(key, 1),
        lambda key: HitsLowerBound(key, 1),
        Plateaus,
        StopsRising,
        StopsFalling,
        KeepBest,
    ],
)
def test_an_unknown_metric_is_named_with_the_nearest(make):
    row = {"iteration": 1, "episode_return": 1.0, "loss": 2.0}
    with pytest.raises(ConfigError, match="no metric 'episode_returns' is logged; did you mean 'episode_return'"):
        make("episode_returns")(state(0.0), row)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Plateaus("x", 0),
        lambda: Plateaus("x", rtol=-1.0),
        lambda: StopsRising("x", 0),
        lambda: StopsFalling("x", -1),
        lambda: HitsUpperBound("x", NAN),
        lambda: KeepBest("x", "maximum"),
        And,
        lambda: Or(3),
    ],
)
def test_what_cannot_be_is_refused(make):
    with pytest.raises(ConfigError, match=r"must be|needs conditions"):
        make()


def state(value):
    learner = LearnerState({"w": jnp.full(3, value)}, (jnp.int32(value),), None, None)
    return TrainState(learner, None, None, None, None, num_steps=1)


@pytest.mark.parametrize(("mode", "kept"), [("max", 7.0), ("min", -3.0)])
def test_the_best_is_kept_and_the_first_of_equals(mode, kept):
    best = KeepBest("x", mode)
    assert best.learner is best.row is None
    assert math.isnan(best.value)
    for i, value in enumerate([NAN, 1.0, 7.0, -3.0, 7.0, -3.0, NAN], 1):
        assert best(state(i), {"iteration": i, "x": value}) is False
    assert best.value == kept
    assert best.row == {"iteration": 3 if mode == "max" else 4, "x": kept}
    np.testing.assert_array_equal(best.learner.params["w"], np.full(3, best.row["iteration"]))


def test_what_is_kept_is_a_copy_on_the_host():
    best, before = KeepBest("x"), state(2.0)
    best(before, {"iteration": 1, "x": 1.0})
    leaves = jax.tree.leaves(best.learner)
    assert all(type(leaf) is np.ndarray and leaf.flags.owndata for leaf in leaves)
    # as `fit` does: the state's memory is given away and written over
    jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)(before.learner)
    np.testing.assert_array_equal(best.learner.params["w"], np.full(3, 2.0))


def test_in_a_run():
    env = ppax.make("CartPole-v1", 4)
    agent = ppax.PPO(mlp(env, hidden=(4,)))
    best, last = KeepBest("iteration", "min"), KeepBest("iteration")
    stop = And(HitsUpperBound("env_steps", 100), HitsUpperBound("iteration", 3))
    run = ppax.fit(agent, env, 8 * 4 * 20, num_steps=8, log=Log(every=1, console=False), callbacks=[best, stop, last])
    # 4 streams of 8 steps make 32 rows an iteration, fewer valid: 100 steps at the fourth
    assert len(run.history) == int(run.state.iteration) == 4
    assert best.row == run.history[0]
    assert last.row == run.history[-1]
    jax.tree.map(np.testing.assert_array_equal, last.learner, jax.device_get(run.state.learner))
    after_one = ppax.fit(agent, env, 8 * 4, num_steps=8, log=Log(every=1, console=False)).state.learner
    jax.tree.map(np.testing.assert_array_equal, best.learner, jax.device_get(after_one))
    # what is kept plays
    kept = dataclasses.replace(run, state=dataclasses.replace(run.state, learner=best.learner))
    assert kept.evaluate(4).returns.shape == (4,)
