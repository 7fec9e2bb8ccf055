"""Stop conditions and `KeepBest`: hand-written rows, and one real run."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppax
from ppax import ConfigError
from ppax.config import Log
from ppax.core.protocols import ConditionState, StopCondition
from ppax.core.types import LearnerState, TrainState
from ppax.networks import mlp
from ppax.run.conditions import And, HitsLowerBound, HitsUpperBound, KeepBest, Or, Plateaus, StopsFalling, StopsRising

NAN = math.nan


def met_at(condition, rows):
    """Whether the condition is met, row by row, from the start of a run."""
    after, met = ConditionState(), []
    for row in rows:
        after = condition.update(after, None, row)
        met.append(after.met)
    return met


def met(condition, values, key="x"):
    """`met_at` for rows with one metric."""
    return met_at(condition, [{key: value, "other": 0.0} for value in values])


def test_bounds_are_inclusive():
    assert met(HitsUpperBound("x", 2.0), [1, 1.9, 2.0, 3, 1]) == [False, False, True, True, False]
    assert met(HitsLowerBound("x", 2.0), [3, 2.1, 2.0, 1, 3]) == [False, False, True, True, False]


def test_rows_with_nan_are_skipped():
    assert met(HitsUpperBound("x", 2.0), [NAN, 1, NAN, 3, NAN, 1]) == [False, False, False, True, True, False]
    # 5, then two rows without a rise; NaN is neither a rise nor a row
    assert met(StopsRising("x", 2), [NAN, 5, NAN, 5, NAN, NAN, 4]) == [False] * 6 + [True]
    assert met(Plateaus("x", 2), [NAN, 5, NAN, 5, NAN, 5]) == [False] * 5 + [True]


def test_stops_rising_counts_rows_since_the_maximum():
    # maximum 3 at row 3; 2, 3, 2.9 do not exceed it: three rows, at row 6
    assert met(StopsRising("x", 3), [1, 2, 3, 2, 3, 2.9, 4]) == [False] * 5 + [True, False]
    # a zigzag with a rising maximum never stops
    assert not any(met(StopsRising("x", 3), [1, 0, 0, 2, 0, 0, 3, 0, 0, 4]))
    assert met(StopsRising("x", 1), [-5, -6]) == [False, True]


def test_stops_falling_mirrors_stops_rising():
    values = [1, 2, 3, 2, 3, 2.9, 4]
    assert met(StopsFalling("x", 3), [-x for x in values]) == met(StopsRising("x", 3), values)
    assert met(StopsFalling("x", 2), [3, 2, 1, 1, 1]) == [False] * 4 + [True]


def test_plateaus_compare_with_the_first_value_of_the_plateau():
    # 100 +- 1 %: 100, then 101, 99, 100.5
    assert met(Plateaus("x", 3, 0.01), [50, 100, 101, 99, 100.5]) == [False] * 4 + [True]
    # 102 is outside of 100 +- 1 % and begins another plateau
    assert met(Plateaus("x", 2, 0.01), [100, 101, 102, 102, 102]) == [False] * 4 + [True]
    # each row is within 1 % of the previous row, and yet the metric rises
    assert not any(met(Plateaus("x", 3, 0.01), [100 * 1.009**i for i in range(50)]))
    assert met(Plateaus("x", 1, 0.01), [-100, -100.5]) == [False, True]
    assert met(Plateaus("x", 2), [0, 0, 0]) == [False, False, True]


def test_and_needs_all_and_or_needs_one():
    rows = [{"a": a, "b": b} for a, b in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 0))]
    a, b = HitsUpperBound("a", 1), HitsUpperBound("b", 1)
    assert met_at(And(a, b), rows) == [False, False, False, True, False]
    assert met_at(Or(a, b), rows) == [False, True, True, True, False]
    assert met_at(Or(And(a, b), lambda state, row: row["b"] > 0), rows) == [False, False, True, True, False]


@pytest.mark.parametrize("kind", [And, Or])
def test_combined_conditions_update_every_part_with_every_row(kind):
    seen = []
    parts = [lambda state, row, i=i: seen.append(i) or i == 1 for i in range(3)]
    kind(*parts).update(ConditionState(), None, {})
    assert seen == [0, 1, 2]


def test_conditions_are_frozen_values_without_a_run_in_them():
    """One condition followed through two runs at once: neither sees the rows of the other."""
    condition = Or(StopsRising("x", 2), Plateaus("x", 9))
    assert condition == Or(StopsRising("x", 2), Plateaus("x", 9))
    assert hash(condition) == hash(Or(StopsRising("x", 2), Plateaus("x", 9)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        condition.conditions = ()
    one = two = ConditionState()
    for first, second in ((9, 1), (8, 2), (7, 3)):
        one = condition.update(one, None, {"x": first})
        two = condition.update(two, None, {"x": second})
    assert (one.met, two.met) == (True, False)


@pytest.mark.parametrize(
    "condition", [HitsUpperBound("x", 1), HitsLowerBound("x", 1), Plateaus("x"), StopsRising("x"), StopsFalling("x")]
)
def test_conditions_satisfy_the_protocol(condition):
    assert isinstance(condition, StopCondition)
    assert condition.metrics == ("x",)
    assert And(condition, Or(condition)).metrics == ("x", "x")


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
def test_invalid_conditions_are_refused(make):
    with pytest.raises(ConfigError, match=r"must be|needs conditions"):
        make()


def state(value):
    learner = LearnerState({"w": jnp.full(3, value)}, (jnp.int32(value),), None, None)
    return TrainState(learner, None, None, None, None, num_steps=1)


@pytest.mark.parametrize(("mode", "kept"), [("max", 7.0), ("min", -3.0)])
def test_keep_best_keeps_the_first_of_equal_rows(mode, kept):
    best = KeepBest("x", mode)
    assert best.learner is best.row is None
    assert math.isnan(best.value)
    for i, value in enumerate([NAN, 1.0, 7.0, -3.0, 7.0, -3.0, NAN], 1):
        assert not best.update(ConditionState(), state(i), {"iteration": i, "x": value}).met
    assert best.value == kept
    assert best.row == {"iteration": 3 if mode == "max" else 4, "x": kept}
    np.testing.assert_array_equal(best.learner.params["w"], np.full(3, best.row["iteration"]))


def test_keep_best_forgets_an_earlier_run():
    """Iterations of one run only increase: a smaller one is of another run."""
    best = KeepBest("x")
    for iteration, value, expected in ((1, 9.0, 9.0), (2, 5.0, 9.0), (1, 3.0, 3.0)):
        best.update(ConditionState(), state(value), {"iteration": iteration, "x": value})
        assert best.value == expected


def test_keep_best_copies_the_learner_to_the_host():
    best, before = KeepBest("x"), state(2.0)
    best.update(ConditionState(), before, {"iteration": 1, "x": 1.0})
    leaves = jax.tree.leaves(best.learner)
    assert all(type(leaf) is np.ndarray and leaf.flags.owndata for leaf in leaves)
    # as in `fit`: the state's memory is donated and written over
    jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)(before.learner)
    np.testing.assert_array_equal(best.learner.params["w"], np.full(3, 2.0))


def test_conditions_and_keep_best_in_a_run():
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
    # the kept learner can be evaluated
    kept = dataclasses.replace(run, state=dataclasses.replace(run.state, learner=best.learner))
    assert kept.evaluate(4).returns.shape == (4,)
