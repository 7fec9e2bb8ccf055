"""Loggers of a run: one that fails is removed, with its traceback, and the others go on."""

import contextlib
import warnings

import pytest

from ppax.core.protocols import Artifact, LoggedRun
from ppax.run.logging import RunLoggers
from support.told import Told

RUN = LoggedRun("mine", None, "", {}, "", 0, 0)
FILM = Artifact("film", {}, 0)


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


class Service(Keeps):
    """Part and logger at once: stores films."""

    stores = ("film",)

    def __init__(self):
        super().__init__()
        self.stored = []

    def open(self, run):
        assert run is RUN
        return self

    def store(self, artifact):
        self.stored.append(artifact)


class Full(Service):
    def store(self, artifact):
        raise OSError("quota exceeded")


class Closed(Service):
    def open(self, run):
        raise PermissionError("no API key")


def test_a_logger_that_raises_is_removed_with_class_and_traceback_once():
    fails, keeps = Fails(), Keeps()
    with RunLoggers(None, [fails, keeps], 0) as loggers:
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


def test_a_logger_that_cannot_store_a_file_is_removed_and_gets_no_more_rows():
    full, stores = Full(), Service()
    with RunLoggers(None, [], 0, [full, stores], RUN) as loggers:
        loggers.log({})
        with pytest.warns(UserWarning, match=r"Full failed \(OSError: quota exceeded\)"):
            loggers.store(FILM)
        loggers.log({})
        loggers.store(None)
        loggers.store(Artifact("policy", {}, 0))  # of a kind that it does not store
    assert (full.calls, stores.calls) == (1, 2)
    assert stores.stored == [FILM]


def test_a_logger_that_cannot_store_a_file_gets_no_more_files():
    with RunLoggers(None, [], 0, [Full()], RUN) as loggers:
        with pytest.warns(UserWarning, match="Full failed"):
            loggers.store(FILM)
        with warnings.catch_warnings(action="error"):
            loggers.store(FILM)


def test_a_logger_that_cannot_be_opened_is_left_out():
    stores = Service()
    with pytest.warns(UserWarning, match=r"Closed failed \(PermissionError: no API key\)"):
        loggers = RunLoggers(None, [], 0, [Closed(), stores], RUN)
    with loggers:
        loggers.log({})
    assert stores.calls == 1


def test_two_loggers_of_one_class_are_kept_apart():
    fails, keeps = Fails(), Fails()
    with RunLoggers(None, [fails, keeps], 0) as loggers:
        with pytest.warns(UserWarning, match="Fails.? failed"):
            loggers.log({})
        loggers.log({})
    assert (fails.calls, keeps.calls) == (1, 1)


def test_a_logger_that_cannot_be_opened_leaves_another_of_its_class():
    class Other(Service):
        def open(self, run):
            raise PermissionError("no API key")

    own = type("Other", (Keeps,), {})()
    with pytest.warns(UserWarning, match="Other failed"):
        loggers = RunLoggers(None, [own], 0, [Other()], RUN)
    with loggers:
        loggers.log({})
    assert own.calls == 1


def test_a_logger_that_changes_its_row_changes_no_other_rows():
    class Pops(Keeps):
        def log(self, row):
            row.pop("env_steps")

    class Sees(Keeps):
        def log(self, row):
            assert row == {"env_steps": 8}
            self.calls += 1

    row, sees = {"env_steps": 8}, Sees()
    with RunLoggers(None, [Pops(), sees], 0) as loggers:
        loggers.log(row)
    assert (sees.calls, row) == (1, {"env_steps": 8})


@pytest.mark.parametrize(
    ("end", "told"),
    [(OSError("boom"), ["OSError('boom')", "closed"]), (KeyboardInterrupt(), ["closed"]), (None, ["closed"])],
)
def test_a_logger_is_told_before_it_is_closed_that_the_run_failed(end, told):
    logger = Told()
    with contextlib.suppress(OSError, KeyboardInterrupt), RunLoggers(None, [logger, Keeps()], 0):
        if end is not None:
            raise end
    assert logger.told == told


def test_a_logger_that_cannot_be_told_is_removed_and_closed():
    logger, other = Told(), Told()
    logger.fail = lambda error: 1 / 0
    warned = pytest.warns(UserWarning, match="Told failed .ZeroDivisionError")
    with pytest.raises(OSError, match="boom"), warned, RunLoggers(None, [logger, other], 0):
        raise OSError("boom")
    assert logger.told == ["closed"]
    assert other.told == ["OSError('boom')", "closed"]
