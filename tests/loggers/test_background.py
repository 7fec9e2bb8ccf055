"""Logger in a thread: rows in order, errors raised once, and a server that does not answer holds nothing up."""

import threading

import pytest

from ppax.core.protocols import Artifact
from ppax.loggers import background
from ppax.loggers.background import Background


class Keeps:
    def __init__(self):
        self.seen, self.threads = [], set()

    def log(self, row):
        self.seen.append(row["iteration"])
        self.threads.add(threading.current_thread())

    def store(self, artifact):
        self.seen.append(artifact.kind)

    def close(self):
        self.seen.append("closed")


class Fails(Keeps):
    def log(self, row):
        super().log(row)
        if row["iteration"] == 1:
            raise OSError("no route to host")


def test_rows_and_files_arrive_in_order_in_another_thread():
    kept = Keeps()
    logger = Background(lambda: kept)
    logger.log({"iteration": 1})
    logger.store(Artifact("film", {}, 1))
    logger.log({"iteration": 2})
    logger.close()
    assert kept.seen == [1, "film", 2, "closed"]
    assert kept.threads.isdisjoint({threading.current_thread()})


def test_an_error_is_raised_once_and_the_logger_is_closed():
    failing = Fails()
    logger = Background(lambda: failing)
    logger.log({"iteration": 1})
    logger._thread.join()
    with pytest.raises(OSError, match="no route to host"):
        logger.log({"iteration": 2})
    logger.close()  # says nothing more
    assert failing.seen == [1, "closed"]


def test_an_error_after_the_last_row_is_raised_by_close():
    def refused():
        raise PermissionError("no API key")

    logger = Background(refused)
    with pytest.raises(PermissionError, match="no API key"):
        logger.close()


def test_a_server_that_never_answers_holds_up_neither_rows_nor_the_end():
    answers = threading.Event()
    logger = Background(lambda: answers.wait() and Keeps(), patience=0.05)
    for iteration in range(3):
        logger.log({"iteration": iteration})
    with pytest.raises(TimeoutError, match=r"4 rows or files still waited after 0.05 s"):  # and the sign of the end
        logger.close()
    answers.set()
    logger._thread.join()


def test_rows_do_not_pile_up_without_limit_and_those_that_wait_are_logged(monkeypatch):
    monkeypatch.setattr(background, "WAITING", 2)
    answers, kept = threading.Event(), Keeps()
    logger = Background(lambda: answers.wait() and kept)
    logger.log({"iteration": 1})
    logger.log({"iteration": 2})
    with pytest.raises(TimeoutError, match="2 rows or files wait: they come faster than it logs"):
        logger.log({"iteration": 3})
    threading.Timer(0.1, answers.set).start()
    logger.close()  # waits for a place in the full queue
    assert kept.seen == [1, 2, "closed"]


def test_a_full_queue_holds_up_the_end_no_longer_than_the_patience(monkeypatch):
    monkeypatch.setattr(background, "WAITING", 1)
    answers = threading.Event()
    logger = Background(lambda: answers.wait() and Keeps(), patience=0.05)
    logger.log({"iteration": 1})
    with pytest.raises(TimeoutError, match=r"1 rows or files still waited after 0.05 s"):
        logger.close()
    answers.set()


def test_rows_that_wait_for_a_logger_that_failed_do_not_hold_up_the_end(monkeypatch):
    monkeypatch.setattr(background, "WAITING", 1)
    answers = threading.Event()

    def refused():
        answers.wait()
        raise PermissionError("no API key")

    logger = Background(refused)
    logger.log({"iteration": 1})
    answers.set()
    logger._thread.join()
    assert logger._waiting.empty()
    with pytest.raises(PermissionError, match="no API key"):
        logger.close()


def test_a_failed_run_is_told_to_a_logger_that_wants_to_know():
    class Wants(Keeps):
        def fail(self, error):
            self.seen.append(repr(error))

    for kept, seen in ((Wants(), [1, "OSError('boom')", "closed"]), (Keeps(), [1, "closed"])):
        logger = Background(lambda kept=kept: kept)
        logger.log({"iteration": 1})
        logger.fail(OSError("boom"))
        logger.close()
        assert kept.seen == seen
