"""Callbacks passed to `fit`: functions, loggers and conditions are told apart; anything else is refused."""

import pytest

import ppax
from ppax import ConfigError
from ppax.config import Log
from ppax.core.protocols import ConditionState
from ppax.run.conditions import HitsUpperBound, KeepBest, sort_callbacks
from ppax.training import backends


class Rows:
    """Logger that also can be called."""

    def __init__(self):
        self.rows, self.closed = [], 0

    def log(self, row):
        self.rows.append(row)

    def close(self):
        self.closed += 1

    def __call__(self, state, row):
        raise AssertionError("a logger is not called")


def stop_now(state, row):
    return True


def test_callbacks_are_sorted_by_their_protocol_in_the_given_order():
    logger, best, bound = Rows(), KeepBest("loss"), HitsUpperBound("loss", 1.0)
    loggers, conditions = sort_callbacks([best, logger, stop_now, bound])
    assert loggers == [logger]
    assert [str(one) for one in conditions] == ["KeepBest('loss')", "callback stop_now", "loss >= 1"]
    assert conditions[0] is best
    assert conditions[2] is bound


@pytest.mark.parametrize("result", [True, False, None])
def test_a_function_is_met_where_it_returns_true(result):
    (condition,) = sort_callbacks([lambda state, row: result]).conditions
    after = condition.update(ConditionState(), None, {})
    assert (after.met, after.reason) == ((True, "callback <lambda>") if result else (False, ""))


class OnlyLog:
    def log(self, row): ...


@pytest.mark.parametrize("wrong", [3, "episode_return >= 475", None, OnlyLog(), [stop_now], Rows, KeepBest])
def test_other_objects_are_refused_with_the_accepted_forms(wrong):
    with pytest.raises(ConfigError, match=r"function f\(state, row\).*log\(row\) and close\(\).*ppax\.stop"):
        sort_callbacks([wrong])


def test_fit_refuses_before_it_compiles(tmp_path, monkeypatch):
    monkeypatch.setattr(ppax.training.backends, "compile", None)  # would fail
    env = ppax.make("probe/Constant", 2)
    with pytest.raises(ConfigError, match="callback 3: must be a function"):
        ppax.fit(ppax.PPO(ppax.networks.mlp(env, (2,))), env, 16, num_steps=4, run_dir=tmp_path / "run", callbacks=[3])
    assert not (tmp_path / "run").exists()


def test_a_logger_is_closed_once_also_where_nothing_is_trained(tmp_path, monkeypatch):
    env = ppax.make("probe/Constant", 2)
    agent = ppax.PPO(ppax.networks.mlp(env, (2,)), num_epochs=1)
    ppax.fit(agent, env, 16, num_steps=4, log=Log(console=False), run_dir=tmp_path / "run")
    rows = Rows()
    ppax.resume(tmp_path / "run", callbacks=[rows], console=False)
    assert (rows.rows, rows.closed) == ([], 1)

    def fail(*_):
        raise RuntimeError("no compiler")

    monkeypatch.setattr(backends, "compile", fail)
    with pytest.raises(RuntimeError, match="no compiler"):
        ppax.fit(agent, env, 16, num_steps=4, log=Log(console=False), callbacks=[rows])
    assert (rows.rows, rows.closed) == ([], 2)


def test_a_logger_gets_every_row_before_the_callbacks_and_is_closed_once():
    """Also a run that a callback ends by an exception closes its loggers."""
    env = ppax.make("probe/Constant", 2)
    agent, rows, order = ppax.PPO(ppax.networks.mlp(env, (2,)), num_epochs=1), Rows(), []

    def fail(state, row):
        order.append(len(rows.rows))
        if row["iteration"] == 2:
            raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        ppax.fit(agent, env, 64, num_steps=4, log=Log(every=1, console=False), callbacks=[fail, rows])
    assert order == [1, 2]
    assert [row["iteration"] for row in rows.rows] == [1, 2]
    assert rows.closed == 1
