"""Loggers of a run: one that fails is removed, with its traceback, and the others go on."""

import warnings
from types import SimpleNamespace

import pytest

from ppax.run.rows import RunLoggers


class Fails:
    """Logger that raises at its second row."""

    def __init__(self):
        self.calls = 0

    def log(self, row):
        self.calls += 1
        row["episode_return"]

    def close(self): ...


class Keeps(Fails):
    def log(self, row):
        self.calls += 1


def test_a_logger_that_raises_is_removed_with_class_and_traceback_once():
    fails, keeps = Fails(), Keeps()
    with RunLoggers(None, [fails, keeps], False, SimpleNamespace(iteration=0)) as loggers:
        loggers.log({"episode_return": 1.0})
        with pytest.warns(UserWarning, match="Fails failed") as caught:
            loggers.log({})
        with warnings.catch_warnings(action="error"):
            loggers.log({})
    (warning,) = caught
    first, *trace = str(warning.message).splitlines()
    assert first == "Fails failed (KeyError: 'episode_return') and is removed; training goes on"
    assert any(line.strip() == 'row["episode_return"]' for line in trace)
    assert trace[-1] == "KeyError: 'episode_return'"
    assert (fails.calls, keeps.calls) == (2, 3)
